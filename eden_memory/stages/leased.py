"""Work that one process does for all, round after round, while it holds a lease."""

import asyncio
from collections.abc import Awaitable, Callable

from eden_memory.logs import LibraryLogger
from eden_memory.mongo.leases import LeaseLost, MongoLease
from eden_memory.stages.patience import until_done
from eden_memory.stages.process import State
from eden_memory.stages.stage import RetryPolicy
from eden_memory.tasks import run_until_first

log = LibraryLogger("eden.rounds")
PAUSES = 10
"""The longest wait after failed rounds, as a multiple of the pause."""


class Leased:
    """A part of a process; `every` and `pause` (the first after a round that failed) in seconds.

    A round that MongoDB or Kafka fails is repeated; what else it raises is a defect, and ends the part.
    """

    def __init__(
        self,
        name: str,
        lease: MongoLease,
        one_round: Callable[[], Awaitable[object]],
        every: float,
        pause: float,
        left: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._name, self._lease, self._round = name, lease, one_round
        self._every, self._left = every, left
        self._again = RetryPolicy(first=pause, cap=PAUSES * pause)
        self._stopping = asyncio.Event()
        self._leads = False

    @property
    def name(self) -> str:
        """Its name for people."""
        return self._name

    def stop(self) -> None:
        """End `run`; a later round does what this one had not done yet."""
        self._stopping.set()

    def state(self) -> State:
        """Ready whether it does the rounds or stands by."""
        return State(
            True, "makes the rounds" if self._leads else "stands by: another process makes the rounds"
        )

    async def run(self) -> None:
        """Run until `stop`."""
        await run_until_first(self._rounds(), self._stopping)

    async def _rounds(self) -> None:
        while True:
            try:
                async with self._lease.held():
                    self._leads = True
                    await self._round_after_round()
            except LeaseLost as error:
                log.info("stands by", part=self._name, reason=error.what)
            finally:
                self._leads = False
                if self._left is not None:
                    await self._left()

    async def _round_after_round(self) -> None:
        while True:
            await until_done(self._round, self._again, self._name)
            await asyncio.sleep(self._every)
