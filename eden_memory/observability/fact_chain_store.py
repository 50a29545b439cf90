"""The chain of a memory from MongoDB alone: back to its windows and messages, forward to ready contexts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.visible import Asker
from eden_memory.context.context_xml import one_line
from eden_memory.directory.participants import Audiences
from eden_memory.memory.memory_views import FactView
from eden_memory.mongo.documents import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import Context, CountedCall, Message, SessionState, WindowTexts
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.windows.formation_requests import texts_of

Row = dict[str, Any]
MOST_CONTEXTS, MOST_MESSAGES = 20, 100


@dataclass(frozen=True, slots=True)
class ChainMessage:
    """A message that a memory rests on."""

    source: SourceMessage
    role: str | None
    """None if it is no longer known."""
    text: str | None
    """None where memory does not keep it any more (windows do for seven days), or it is another's."""


@dataclass(frozen=True, slots=True)
class ChainWindow:
    """The window in which messages were formed; `formation_id` None: not known (any more)."""

    formation_id: str | None
    closed_because: str | None
    closed_at: datetime | None
    calls: int
    cost_usd: Decimal | None
    """The cost of its calls, while they are stored; None if no price is known."""
    messages: tuple[ChainMessage, ...]


@dataclass(frozen=True, slots=True)
class ChainContext:
    """A ready context that shows the fact's scope."""

    session_id: str
    user_id: str | None
    built_at: datetime
    shows: bool
    """Whether it contains the fact's text."""


@dataclass(frozen=True, slots=True)
class FactChain:
    """The way of a fact from messages to contexts."""

    windows: tuple[ChainWindow, ...]
    contexts: tuple[ChainContext, ...]


class FactChains:
    """Reads the chains of memories that the asker may see: only of their own messages, only their own contexts.

    `users`: those whose texts the reader may see, None: everybody's. What memory keeps of a session may be of one
    who has left it.
    """

    def __init__(self, database: AsyncDatabase[Row], names: Names, users: frozenset[str] | None) -> None:
        self._users, self._sessions = users, database[names[SessionState.COLLECTION]]
        self._messages, self._windows = (
            database[names[Message.COLLECTION]],
            database[names[WindowTexts.COLLECTION]],
        )
        self._calls, self._contexts = (
            database[names[CountedCall.COLLECTION]],
            database[names[Context.COLLECTION]],
        )

    async def of(self, fact: FactView, asked: Asker) -> FactChain:
        """Return the chain of a fact; its sources are those that the asker may see."""
        return FactChain(await self.windows(fact.sources), await self._shown_in(fact, asked))

    async def windows(self, sources: Sequence[SourceMessage]) -> tuple[ChainWindow, ...]:
        """Return the windows of these messages, oldest first."""
        sources = sources[-MOST_MESSAGES:]
        ids = [source.message_id for source in sources]
        rows = {row["_id"]: row async for row in self._messages.find({"_id": {"$in": ids}})}
        formed = {name: row["formation_id"] for name, row in rows.items() if row.get("formation_id")}
        windows = {
            row["_id"]: row
            async for row in self._windows.find(
                {"_id": {"$in": sorted(set(formed.values()))}}, {"closed": 1, "messages": texts_of(ids)}
            )
        }
        readable = await self._readable(sources)
        texts = {name: text for name, text in _texts(windows.values(), rows).items() if name in readable}
        grouped: dict[str | None, list[ChainMessage]] = {}
        for source in sorted(sources, key=lambda message: message.said_at):
            row = rows.get(source.message_id, {})
            message = ChainMessage(source, row.get("role"), texts.get(source.message_id))
            grouped.setdefault(formed.get(source.message_id), []).append(message)
        return tuple([await self._window(name, windows.get(name or ""), of) for name, of in grouped.items()])

    async def _readable(self, sources: Sequence[SourceMessage]) -> set[str]:
        """Return the messages whose texts may be shown; answers only if nobody else was ever in the session."""
        users = self._users
        if users is None:
            return {source.message_id for source in sources}
        answers = [source for source in sources if source.user_id is None and source.participants in (0, 1)]
        answered = sorted({source.session_id for source in answers})
        rows = await self._sessions.find({"_id": {"$in": answered}}).to_list()
        own = {row["_id"] for row in rows if _everybody_in(row) <= users}
        shown = [source for source in sources if source.user_id in users]
        return {
            source.message_id
            for source in (*shown, *(answer for answer in answers if answer.session_id in own))
        }

    async def _window(
        self, name: str | None, row: Row | None, messages: Iterable[ChainMessage]
    ) -> ChainWindow:
        calls = [] if name is None else await self._calls.find({"formation_id": name}).to_list()
        priced = [plain(call["cost_usd"]) for call in calls if call.get("cost_usd") is not None]
        closed: Row = {} if row is None else row["closed"]
        return ChainWindow(
            name,
            closed.get("because"),
            closed.get("at"),
            len(calls),
            sum(priced, Decimal(0)) if priced else None,
            tuple(messages),
        )

    async def _shown_in(self, fact: FactView, asked: Asker) -> tuple[ChainContext, ...]:
        wanted: Row = {"scope_keys": fact.scope.key}
        asker = {"session_id": asked.session_id, "user_id": asked.user_id}
        wanted |= {name: value for name, value in asker.items() if value is not None}
        rows = self._contexts.find(wanted, sort=[("active_until", -1)], limit=MOST_CONTEXTS)
        line = one_line(fact.content)
        return tuple(
            [
                ChainContext(row["session_id"], row.get("user_id"), row["built_at"], line in row["xml"])
                async for row in rows
            ]
        )


def _everybody_in(session: Row) -> set[str]:
    """Return all who have ever been in a session, as formation-trigger knows it; "" among them: unlisted ones."""
    changes = Audiences.of_row(session).changes
    unlisted = {""} if any(change.large is not None for change in changes) else set[str]()
    return {*session.get("users", ()), *(user for change in changes for user in change.joined)} | unlisted


def _texts(windows: Iterable[Row], rows: dict[str, Row]) -> dict[str, str]:
    """Return the texts of messages that wait or whose window keeps them, without deleted and forgotten ones."""
    texts = {
        message["message_id"]: message["text"]
        for row in windows
        for message in row["messages"]
        if message["text"]
    }
    texts |= {name: row["text"] for name, row in rows.items() if row.get("text")}
    gone = {name for name, row in rows.items() if row.get("deleted") or row.get("forgotten")}
    return {name: text for name, text in texts.items() if name not in gone}
