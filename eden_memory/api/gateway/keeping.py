"""Turns on their way into MongoDB, beside the chat: no answer waits for them, none is given up at the first fault."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

from pymongo.errors import PyMongoError

from eden_memory.api.gateway.turn_store import TurnStore
from eden_memory.api.gateway.turns import Turns
from eden_memory.api.gateway.who import Who
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import GATEWAY_TURNS

log = LibraryLogger()
PAUSES = (0.2, 1.0, 5.0, 15.0)
"""Seconds between attempts."""
MOST_WAITING = 10_000
"""Writes that wait for MongoDB; what comes beyond that is lost, and counted."""


class Keeping:
    """Of one gateway; `close` waits for what is under way."""

    def __init__(self, store: TurnStore, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock
        self._under_way: set[asyncio.Task[None]] = set()

    def asked(self, who: Who, turns: Turns) -> "asyncio.Task[None] | None":
        """Store what is new in a request; to be handed to :meth:`answered`, which comes behind it."""
        at = self._clock()

        async def write() -> int:
            await self._store.make_session(who.session, who.agent, who.user)
            found = await self._store.put_lost(who, turns.lost, at) if turns.lost is not None else 0
            return found + await self._store.put(who, turns.new, at)

        return self._start(self._tried(write, len(turns.new)))

    def answered(self, who: Who, turns: Turns, text: str, before: "asyncio.Task[None] | None") -> None:
        """Store what the assistant has said, all or so far, behind what it was said to."""
        answer, at = turns.answer(text), self._clock()
        if answer is None:
            return

        async def in_order() -> None:
            if before is not None:
                await asyncio.wait([before])
            await self._tried(lambda: self._store.put(who, [answer], at), 1)

        self._start(in_order())

    async def close(self, seconds: float) -> None:
        """Let what is under way end."""
        if self._under_way:
            _, left = await asyncio.wait(self._under_way, timeout=seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None] | None":
        if len(self._under_way) >= MOST_WAITING:
            work.close()
            GATEWAY_TURNS.labels("lost").inc()
            return None
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _tried(self, write: Callable[[], Awaitable[int]], turns: int) -> None:
        for pause in (*PAUSES, None):
            try:
                stored = await write()
            except PyMongoError as error:
                if pause is None:
                    GATEWAY_TURNS.labels("lost").inc(max(turns, 1))
                    log.error("turns of a chat are lost", turns=turns, reason=type(error).__name__)
                else:
                    await asyncio.sleep(pause)
            else:
                GATEWAY_TURNS.labels("stored").inc(stored)
                GATEWAY_TURNS.labels("known").inc(max(turns - stored, 0))
                return
