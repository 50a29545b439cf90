"""Exactly one active tailer among many: wait for the lease, lead, and after a failure begin again."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from eden_memory import metrics
from eden_memory.mongo.changes import SourceFailed
from eden_memory.mongo.leases import LeaseLost, MongoLease
from eden_memory.source.chat_topics import PublishFailed
from eden_memory.stages.process import State
from eden_memory.task_ending import end, first_of

STOP_SECONDS = 2.0
"""For what is under way to be sent, committed and saved; with the lease and the connections a stop takes < 5 s."""
AGAIN_SECONDS = 5.0
"""A cancellation that got lost is repeated after so long: disconnecting and giving the lease back come first."""
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0
STANDS_BY, STANDS_BY_SECONDS = "stands by: another tailer holds the lease", 1.0
"""What is said, once, after waiting so long for the lease."""

log = structlog.get_logger("eden.tailer")


class Tailing:
    """`lead` runs one leadership: it is given the lease's epoch and the signal to stop."""

    name = "tailer"

    def __init__(
        self,
        lease: MongoLease,
        lead: Callable[[int, asyncio.Event], Awaitable[None]],
        again_seconds: float = AGAIN_SECONDS,
    ) -> None:
        self._lease, self._lead, self._again_seconds = lease, lead, again_seconds
        self._stopping = asyncio.Event()
        self.leading = False

    def stop(self) -> None:
        """Flush, save, give the lease back; `run` returns then."""
        self._stopping.set()

    def state(self) -> State:
        """Ready whether it leads or stands by: a stand-by is what it is for."""
        return State(True, "leads" if self.leading else STANDS_BY)

    async def run(self) -> None:
        """Until `stop`; what trying again cannot put right is raised."""
        cycles = asyncio.create_task(self._cycles())
        try:
            await first_of(cycles, self._stopping)
            if self.leading:
                await asyncio.wait({cycles}, timeout=STOP_SECONDS)
        finally:
            await end([cycles], self._again_seconds)
        if not cycles.cancelled():
            cycles.result()

    async def _cycles(self) -> None:
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                await self._cycle()
                pause = FIRST_PAUSE
            except LeaseLost as error:
                log.warning("leadership lost", reason=error.what)
            except (PublishFailed, SourceFailed) as error:
                log.warning("begins again from the saved position", reason=error.what, in_seconds=pause)
                await self._pause(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _cycle(self) -> None:
        standing = asyncio.get_running_loop().call_later(STANDS_BY_SECONDS, log.info, STANDS_BY)
        try:
            async with self._lease.held() as epoch:
                standing.cancel()
                await self._led(epoch)
        finally:
            standing.cancel()

    async def _led(self, epoch: int) -> None:
        self.leading = True
        metrics.TAILER_LEADING.set(1)
        metrics.TAILER_TAKEOVERS.inc()
        log.info("leads", epoch=epoch)
        try:
            await self._lead(epoch, self._stopping)
        finally:
            self.leading = False
            metrics.TAILER_LEADING.set(0)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return
