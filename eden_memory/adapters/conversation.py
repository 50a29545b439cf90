"""One conversation's memory, as adapters bind it: its context, its search tool, its messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, cast
from uuid import uuid4

from eden_memory.api.gateway.turns import STEP, TurnStore, insert_new, session_prefix, storable
from eden_memory.api.service import MemoryService
from eden_memory.api.tool import INSTRUCTIONS, answer, search_tool
from eden_memory.directory.author_store import role_query
from eden_memory.errors import EdenError, NotFound
from eden_memory.mongo.document_fields import Unusable, first_with_text, getter, moment_of, text_of
from eden_memory.mongo.ids import encode_id, raw, typed, typed_or_none
from eden_memory.operations.reach import SessionReach
from eden_memory.schemas.events.chat import ALL_OTHERS, role_of, roles_of
from eden_memory.settings import MessagesSettings, Role

SEARCH: Mapping[str, Any] = search_tool("openai")["function"]
"""Name, description and parameters (JSON Schema) of the search tool."""


class TurnMessage(NamedTuple):
    """One message of a chat."""

    role: Role
    text: str
    name: str = ""
    """Distinguishes it from others of its session; a repeat of the name is the same message. Empty: always new."""


@dataclass(frozen=True, slots=True)
class ConversationMemory:
    """An agent's memory for one user in one session; ids as the application has them."""

    service: MemoryService
    session: Any
    user: Any = None

    async def context(self, message: str | None = None) -> str:
        """Return the XML for the prompt; with the user's `message`, also the facts that it recalls."""
        return await self.service.get_memory_context(self.session, self.user, message)

    async def instructions(self, message: str | None = None) -> str:
        """Return the context, and how to use the search tool where it is offered."""
        how = INSTRUCTIONS if await self.offers_search_tool() else ""
        return "\n\n".join(filter(None, (how, await self.context(message))))

    async def offers_search_tool(self) -> bool:
        """Tell whether the agent's model is to be offered the search tool; the agent's stream may say no."""
        return await self.service.offers_search_tool()

    async def search(self, arguments: str | Mapping[str, Any]) -> str:
        """Answer a call of the search tool; arguments that do not fit become a sentence for the model."""
        explain = partial(self.service.explain_search, session=self.session, user=self.user)
        return await answer(explain, arguments)

    @property
    def messages(self) -> "ChatMessages":
        """The session's messages in the application's collection; NotAnId without a session."""
        return ChatMessages(self)


class ChatMessages:
    """Reads and writes a session's messages in the application's own collection, with text ids and dates.

    Memory is formed from these messages as from any others. Every call raises NotFound for a session of another
    agent, and for one whose document lists its users without this one.
    """

    def __init__(self, of: ConversationMemory) -> None:
        memory, self._session = of.service.memory, typed(of.session, "session")
        self._of, self._settings, self._source = of, memory.settings, memory.source
        self._fields: MessagesSettings = memory.settings.messages
        self._store = TurnStore(memory.source, memory.database, memory.settings)
        self._reach, self._user = SessionReach(memory), typed_or_none(of.user, "user")

    async def add(self, said: Sequence[TurnMessage], at: datetime | None = None) -> int:
        """Write the messages that are not stored yet, and return how many."""
        await self._demand_open()
        if self._fields.created_at == "_id":
            what = "messages whose `_id` says when they were written cannot be written here"
            raise EdenError(what, "Write them yourself.")
        agent = raw(self._of.service.agent_id, "agent")
        await self._store.make_session(self._of.session, agent, self._of.user)
        at = at or await self._behind_newest()
        texts = [message for message in said if message.text.strip()]
        rows = [self._row(message, at + number * STEP) for number, message in enumerate(texts)]
        known = await self._store.remembered(encode_id(row["_id"]) for row in rows)
        return await insert_new(self._collection, [row for row in rows if encode_id(row["_id"]) not in known])

    def _row(self, said: TurnMessage, at: datetime) -> dict[str, Any]:
        """Return a message in the fields that the settings name, with a text id and a date."""
        fields = self._fields
        theirs = {ours: name for name, ours in fields.roles.items() if name != ALL_OTHERS}
        row: dict[str, Any] = {"_id": session_prefix(self._session) + (said.name or uuid4().hex)}
        values = {
            fields.session_id: self._of.session,
            fields.role: theirs.get(said.role, said.role),
            fields.contents[0]: storable(said.text),
            fields.created_at: at,
        }
        if said.role == "user" and fields.role == fields.user_id:  # the author says the role
            del values[fields.role]
        if said.role == "user" and self._of.user is not None:
            values[fields.user_id] = self._of.user
        for path, value in values.items():
            *above, last = path.split(".")
            inside = row
            for name in above:
                inside = inside.setdefault(name, {})
            inside[last] = value
        return row

    async def _behind_newest(self) -> datetime:
        """Return the time now, or one behind the newest message: several that were added at once may be ahead."""
        at = datetime.now(UTC)
        async for row in self._newest(1):
            newest = moment_of(getter(self._fields.created_at)(row))
            return at if newest is None else max(at, datetime.fromisoformat(newest) + STEP)
        return at

    async def read(self, limit: int | None = None) -> list[TurnMessage]:
        """Return the newest messages of user and assistant, oldest first."""
        await self._demand_open()
        if limit is not None and limit < 1:
            return []
        found = [self._said(row) async for row in self._newest(limit)]
        return [said for said in reversed(found) if said.text]

    async def pop(self) -> TurnMessage | None:
        """Delete the newest message, and return it; memory forgets what it derived from it."""
        await self._demand_open()
        async for row in self._newest(1):
            await self._collection.delete_one({"_id": row["_id"]})
            return self._said(row)
        return None

    async def clear(self) -> None:
        """Delete the session's messages; memory forgets what it derived from them."""
        await self._demand_open()
        await self._collection.delete_many(self._query)

    async def _demand_open(self) -> None:
        if not await self._reach.is_open_to(self._of.service.agent_id, self._session, self._user):
            raise NotFound("there is no such session here")

    @property
    def _collection(self) -> Any:
        return self._source[self._fields.collection]

    @property
    def _query(self) -> dict[str, Any]:
        return {self._fields.session_id: self._of.session}

    def _newest(self, limit: int | None) -> Any:
        query = self._query | {self._fields.role: role_query(self._fields, ("user", "assistant"))}
        order = [(self._fields.created_at, -1), ("_id", -1)]
        return self._collection.find(query).sort(order).limit(limit or 0)

    def _said(self, row: Mapping[str, Any]) -> TurnMessage:
        role = role_of(getter(self._fields.role)(row), roles_of(self._fields.roles))
        try:
            text = text_of(first_with_text(self._fields.contents)(row))
        except Unusable:
            text = ""
        return TurnMessage(cast("Role", role), text)
