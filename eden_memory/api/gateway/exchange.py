"""Handle one chat: store the question while the provider answers, and the answer after it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from functools import partial
from typing import Any

from pymongo.errors import PyMongoError

from eden_memory.api.gateway.chat_access import ChatAccess
from eden_memory.api.gateway.chat_request import ChatRequest
from eden_memory.api.gateway.remembering import Remembering
from eden_memory.api.gateway.turn_store import TurnStore
from eden_memory.api.gateway.turns import Turns, last_user_text
from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import GATEWAY_TURNS
from eden_memory.mongo.application_ids import typed
from eden_memory.settings import GatewaySettings

log = LibraryLogger()
PAUSES = (0.2, 1.0, 5.0, 15.0)
"""Seconds between attempts."""
MOST_WAITING = 10_000
"""Writes that wait for MongoDB; what comes beyond that is lost, and counted."""
NO_USER = "no user named: no user's own memory is shown or formed; send `user`"


class TurnWriter:
    """Writes the turns of one gateway's chats in the background; `close` waits for running writes."""

    def __init__(self, store: TurnStore, clock: Callable[[], datetime]) -> None:
        self._store, self._clock = store, clock
        self._under_way: set[asyncio.Task[None]] = set()

    def asked(self, who: ChatAccess, turns: Turns) -> "asyncio.Task[None] | None":
        """Store the new turns of a request; pass the task to :meth:`answered`, which waits for it."""
        at = self._clock()

        async def write() -> int:
            await self._store.make_session(who.session, who.agent, who.user)
            found = await self._store.put_lost(who, turns.lost, at) if turns.lost is not None else 0
            return found + await self._store.put_new(who, turns.new, turns.history, at)

        return self._start(self._tried(write, len(turns.new)))

    def answered(self, who: ChatAccess, turns: Turns, text: str, before: "asyncio.Task[None] | None") -> None:
        """Store the answer, or its beginning, after the request's turns."""
        answer, at = turns.answer(text), self._clock()
        if answer is None:
            return

        async def in_order() -> None:
            if before is not None:
                await asyncio.wait([before])
            await self._tried(lambda: self._store.put_new(who, [answer], turns.history, at), 1)

        self._start(in_order())

    async def close(self, seconds: float) -> None:
        """Wait for running writes, then cancel the rest."""
        if self._under_way:
            _, left = await asyncio.wait(self._under_way, timeout=seconds)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def idle(self) -> None:
        """Wait until no write is running."""
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
            except Exception as error:  # noqa: BLE001 - whatever it is, these turns raised it: again, it would be the same
                GATEWAY_TURNS.labels("lost").inc(max(turns, 1))
                log.error("turns of a chat are lost", turns=turns, reason=describe(error))
                return
            else:
                GATEWAY_TURNS.labels("stored").inc(stored)
                GATEWAY_TURNS.labels("known").inc(max(turns - stored, 0))
                return


class Exchange:
    """One chat and its turns; `who` None: the chat has no memory."""

    def __init__(
        self,
        chat: ChatRequest,
        who: ChatAccess | None,
        remembering: Remembering,
        keeping: TurnWriter,
        settings: GatewaySettings,
    ) -> None:
        self._chat, self._who, self._settings = chat, who, settings
        self._remembering, self._keeping = remembering, keeping
        self._turns: Turns | None = None
        self._asked: asyncio.Task[None] | None = None

    async def prepare(self) -> tuple[bytes, bytes | None]:
        """Return the body for the provider, and `memory_hits` as JSON, None if the answer is to have none."""
        who = self._who
        if who is None:
            return await self._chat.computed(self._chat.forwarded), None
        try:
            if who.keeps:
                self._turns = await self._chat.computed(self._new_turns)
            return await self._with_memory(who)
        finally:  # also when the caller has left; it runs while the provider is asked
            if self._turns is not None:
                self._asked = self._keeping.asked(who, self._turns)

    async def _with_memory(self, who: ChatAccess) -> tuple[bytes, bytes | None]:
        chat, settings = self._chat, self._settings
        most = settings.top_k if chat.asked.top_k is None else chat.asked.top_k
        tells = settings.memory_hits and chat.names_memory and most > 0
        if not who.shows or chat.asked.top_k == 0:
            return await chat.computed(chat.forwarded), b"[]" if tells else None
        message = await chat.computed(partial(last_user_text, chat.messages))
        found = await self._remembering.of(who, chat.asked, message)
        body = await chat.computed(partial(chat.forwarded, *found.text, settings.role))
        return body, found.hits if tells else None

    @property
    def notice(self) -> str | None:
        """Return a notice for the caller about memory in this chat, if there is any."""
        return NO_USER if self._who is not None and self._who.user is None else None

    def ended(self, said: str) -> None:
        """Store the answer; of several choices the next request's history shows the chosen one."""
        if self._who is not None and self._turns is not None and self._chat.choices == 1:
            self._keeping.answered(self._who, self._turns, said, self._asked)

    def _new_turns(self) -> Turns:
        assert self._who is not None
        session = typed(self._who.session, "session")
        return Turns(session, self._chat.messages, instructions=self._settings.store_instructions)
