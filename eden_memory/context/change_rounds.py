"""Changes of all partitions, worked on together: several of the same moment concern the same contexts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from eden_memory.stages.stage import Delivery

LONGEST_SECONDS = 120.0
"""A round that has not ended by then has failed."""
Work = Callable[[Sequence[Delivery]], Awaitable[None]]


class _Waiting(NamedTuple):
    deliveries: Sequence[Delivery]
    done: "asyncio.Future[None]"


class ChangeRounds:
    """Gives `work` the changes of a moment; what comes meanwhile goes with the next round.

    `gather` seconds pass before a round, so that those of the same window share it, and `breath` seconds after it.
    """

    def __init__(self, work: Work, gather: float, breath: float) -> None:
        self._work, self._gather, self._breath = work, gather, breath
        self._waiting: list[_Waiting] = []
        self._rounds: asyncio.Task[None] | None = None

    async def join(self, deliveries: Sequence[Delivery]) -> None:
        """Return when a round that began after this call has worked on them; its error is raised."""
        waiting = _Waiting(deliveries, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._round_after_round(), name="rounds of changed contexts")
        await waiting.done

    async def _round_after_round(self) -> None:
        while self._waiting:
            await asyncio.sleep(self._gather)
            taken, self._waiting = self._waiting, []
            try:
                await self._round(taken)
            finally:  # where it was cancelled, nobody waits for ever
                for waiting in taken:
                    _end(waiting.done, RuntimeError("the round was cancelled"))
            await asyncio.sleep(self._breath)

    async def _round(self, taken: Sequence[_Waiting]) -> None:
        """Work on all; where that fails, on each alone: whose error it is shows then."""
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await self._work([delivery for waiting in taken for delivery in waiting.deliveries])
        except Exception as error:  # noqa: BLE001 - handed to those who wait
            if len(taken) == 1:
                _end(taken[0].done, error)
                return
            for waiting in taken:
                await self._round([waiting])
        for waiting in taken:
            _end(waiting.done, None)


def _end(done: "asyncio.Future[None]", error: Exception | None) -> None:
    if done.done():  # whoever waited was cancelled
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
