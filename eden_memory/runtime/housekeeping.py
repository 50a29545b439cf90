"""The janitor as a part of a process: one active among all, a round every hour."""

import asyncio

import structlog

from eden_memory.ports import Lease, LeaseLost
from eden_memory.runtime.ending import end
from eden_memory.runtime.janitor import Janitor
from eden_memory.runtime.process import State
from eden_memory.runtime.stages.failures import Kind, classify

log = structlog.get_logger("eden.janitor")

ROUND_SECONDS = 3_600.0
PAUSE_SECONDS = 30.0


class Housekeeping:
    """Rounds of the janitor while the lease is held; a round that fails is made again."""

    name = "janitor"

    def __init__(self, lease: Lease, janitor: Janitor, every: float = ROUND_SECONDS) -> None:
        self._lease, self._janitor, self._every = lease, janitor, every
        self._stopping = asyncio.Event()
        self._leads = False

    def stop(self) -> None:
        """End `run`; what a round had not removed yet, a later one does."""
        self._stopping.set()

    def state(self) -> State:
        """Ready whether it makes the rounds or stands by."""
        return State(
            True, "makes the rounds" if self._leads else "stands by: another process makes the rounds"
        )

    async def run(self) -> None:
        """Until `stop`."""
        rounds = asyncio.create_task(self._rounds())
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({rounds, stopped}, return_when=asyncio.FIRST_COMPLETED)
        await end([stopped, rounds])
        if not rounds.cancelled():
            rounds.result()

    async def _rounds(self) -> None:
        while True:
            try:
                async with self._lease.held():
                    self._leads = True
                    await self._round_after_round()
            except LeaseLost as error:
                log.info("stands by", reason=error.what)
            finally:
                self._leads = False

    async def _round_after_round(self) -> None:
        while True:
            try:
                removed = await self._janitor.round()
            except Exception as error:
                if classify(error) not in (Kind.AWAY, Kind.TRANSIENT):
                    raise
                log.warning("round failed", reason=repr(error), again_in_seconds=PAUSE_SECONDS)
                await asyncio.sleep(PAUSE_SECONDS)
                continue
            if removed.records or removed.outcomes:
                log.info(
                    "removed what was consumed", topics=len(removed.records), stages=len(removed.outcomes)
                )
            await asyncio.sleep(self._every)
