"""One chat from its arrival to its end: the question is stored while the provider is asked, the answer behind it."""

import asyncio

from eden_memory.api.gateway.chat_request import ChatRequest
from eden_memory.api.gateway.keeping import Keeping
from eden_memory.api.gateway.remembering import Remembering
from eden_memory.api.gateway.turns import Turns, last_user_text
from eden_memory.api.gateway.who import Who
from eden_memory.mongo.application_ids import typed
from eden_memory.settings import GatewaySettings

NO_HITS = b"[]"
NO_USER = "no user named: no user's own memory is shown or formed; send `user`"


class Exchange:
    """`who` None: the chat has no memory."""

    def __init__(
        self,
        chat: ChatRequest,
        who: Who | None,
        remembering: Remembering,
        keeping: Keeping,
        settings: GatewaySettings,
    ) -> None:
        self._chat, self._who, self._settings = chat, who, settings
        self._remembering, self._keeping = remembering, keeping
        self._turns = self._new_turns() if who is not None and who.keeps else None
        self._asked: asyncio.Task[None] | None = None

    async def prepare(self) -> tuple[bytes, bytes | None]:
        """The body for the provider; `memory_hits` as JSON, None where memory has no part in the chat."""
        who = self._who
        if who is None:
            return self._chat.forwarded(), None
        try:
            return await self._with_memory(who)
        finally:  # also when the caller has left; it runs while the provider is asked
            if self._turns is not None:
                self._asked = self._keeping.asked(who, self._turns)

    async def _with_memory(self, who: Who) -> tuple[bytes, bytes]:
        if not who.shows:
            return self._chat.forwarded(), NO_HITS
        found = await self._remembering.of(who, self._chat.asked, last_user_text(self._chat.messages))
        return self._chat.forwarded(*found.text, self._settings.role), found.hits

    @property
    def notice(self) -> str | None:
        """What the caller should know of the part that memory has in the chat."""
        return NO_USER if self._who is not None and self._who.user is None else None

    def ended(self, said: str) -> None:
        """Store what was said; of several choices the next request's history shows the one that was taken."""
        if self._who is not None and self._turns is not None and self._chat.choices == 1:
            self._keeping.answered(self._who, self._turns, said, self._asked)

    def _new_turns(self) -> Turns:
        assert self._who is not None
        session = typed(self._who.session, "session")
        return Turns(session, self._chat.messages, instructions=self._settings.store_instructions)
