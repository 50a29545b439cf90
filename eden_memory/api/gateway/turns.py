"""Find the new turns of a request, name them, and store each once, through the inbox.

A client sends the whole history with every turn. Stored are the turns behind the last answer; of the history nothing,
but for the last answer, should it be missing behind a turn that is known (a process ended before it was stored).

A turn's name is made of the session, the turn before it, what it says, and how often the two followed one another in
the history. Of a history that is cut, only the last depends on how much of it a client still sends: TurnStore.put_new
counts on from what is stored.

A turn's message waits in the inbox under its name, is carried, and is then recorded by memory. What memory has
recorded, or was asked to forget, was stored once: it is not written again. Nor is what this process has written, for
it is in neither place while it is carried, and may be deleted there.
"""

import json
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from eden_memory.api.gateway.chat_access import ChatAccess
from eden_memory.api.gateway.chat_formats import INSTRUCTIONS, role_of
from eden_memory.directory.author_store import MessageAuthors
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.mongo.document_fields import Unusable, cut, is_text_part, text_of, without_thoughts
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.names import hashed
from eden_memory.schemas.documents import Message
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.settings import Role, Settings
from eden_memory.source.messages_store import inbox_name

PREFIX = "gw-"
MOST_CHARACTERS = 200_000
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool", "function": "tool"}
START = "start"


Row = dict[str, Any]
REPEATS = 100
"""Names of a turn that are looked up at once."""
REMEMBERED = 20_000
"""Turns written by this process that are remembered."""
STEP = timedelta(milliseconds=1)
"""How far apart the turns of a request are dated."""
ANY_VERSION = "0" * 16


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One turn under its name; `slot` begins the names of all that may stand in its place."""

    name: str
    slot: str
    role: Role
    text: str
    mark: str = ""
    """What it says, in its name; "": it is named otherwise, and never said again under another name."""
    nth: int = 0
    """How often it was said before in this place."""

    def repeat(self, times: int) -> "ChatTurn":
        """Return the turn as it is named when it is said again, so many times."""
        nth = self.nth + times
        return replace(self, name=_name(self.slot, self.mark, nth), nth=nth)


@dataclass(frozen=True, slots=True)
class Lost:
    """An answer of the history: to be stored if the turn before it is known and nothing stands in its place."""

    answer: ChatTurn
    behind: str


@dataclass(frozen=True, slots=True)
class _Said:
    role: Role
    text: str
    mark: str


class Turns:
    """A request's turns in a session (its typed id); `anchor` names the conversation before them, where the
    provider keeps that.
    """

    def __init__(self, session_id: str, messages: Sequence[Any], *, anchor: str | None = None) -> None:
        self.session = session_prefix(session_id)
        said = [_said(message) for message in messages if role_of(message) not in {None, *INSTRUCTIONS}]
        while said and said[-1].role == "assistant":  # the beginning of the answer that is asked for
            said.pop()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._last, self._anchor = START, () if anchor is None else (anchor,)
        named = [self._named(turn) for turn in said]
        first_new = 1 + max((n for n, turn in enumerate(said) if turn.role == "assistant"), default=-1)
        self.history = named[:first_new]
        self.new = [turn for turn in named[first_new:] if turn.text]
        self.lost = _lost(self.history)

    def answer(self, text: str) -> ChatTurn | None:
        """Return the turn that answers the request."""
        text = without_thoughts(text).strip()
        said = _Said("assistant", storable(text), hashed("assistant", text))
        return self._turn(said, self._seen[self._last, said.mark]) if said.text else None

    def _named(self, said: _Said) -> ChatTurn:
        turn = self._turn(said, self._seen[self._last, said.mark])
        self._seen[self._last, said.mark] += 1
        self._last = said.mark
        return turn

    def _turn(self, said: _Said, nth: int) -> ChatTurn:
        slot = f"{self.session}{hashed(self._last, *self._anchor)}-"
        return ChatTurn(_name(slot, said.mark, nth), slot, said.role, said.text, said.mark, nth)


def _name(slot: str, mark: str, nth: int) -> str:
    return slot + hashed(mark, str(nth))


def session_prefix(session_id: str) -> str:
    """Return the prefix of the names of all turns of a session."""
    return f"{PREFIX}{hashed(session_id)}-"


def last_user_text(messages: Sequence[Any]) -> str:
    """Return the user's last text; "" if it has no text."""
    return next((_text(message) for message in reversed(messages) if role_of(message) == "user"), "")


def _lost(history: Sequence[ChatTurn]) -> Lost | None:
    """Return the last answer of the history, with the turn before it."""
    if len(history) < 2 or not history[-1].text:
        return None
    return Lost(history[-1], history[-2].name)


def _said(message: dict[str, Any]) -> _Said:
    role = ROLES.get(message["role"], "other")
    text = _text(message)
    return _Said(role, storable(text), hashed(role, text, *_beside(role, message)))


def _text(message: dict[str, Any]) -> str:
    try:
        text = text_of(message.get("content"))
    except Unusable:
        return ""
    return (without_thoughts(text) if message["role"] == "assistant" else text).strip()


def _beside(role: Role, message: dict[str, Any]) -> list[str]:
    """Return what distinguishes turns with the same text: pictures, the call that a result belongs to."""
    if role == "tool":
        return [str(message.get("tool_call_id"))]
    content = message.get("content")
    if role != "user" or not isinstance(content, list):
        return []
    parts = cast("list[Any]", content)
    return [json.dumps(part, sort_keys=True) for part in parts if not _is_text(part)]


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (isinstance(part, dict) and is_text_part(cast("dict[str, Any]", part)))


def storable(text: str) -> str:
    """Return the text as MongoDB accepts it: without lone surrogates, cut at MOST_CHARACTERS."""
    return cut(text.encode(errors="replace").decode(), MOST_CHARACTERS)


class StoredTurn(NamedTuple):
    """When a stored turn was said, and whether its message is deleted or forgotten."""

    at: datetime
    ended: bool = False


class TurnStore:
    """`source` is the application's database, `memory` our own."""

    def __init__(self, source: AsyncDatabase[Row], memory: AsyncDatabase[Row], settings: Settings) -> None:
        self._mapped, self._makes_sessions = settings.sessions, settings.gateway.create_sessions
        self._sessions = source[self._mapped.collection] if self._mapped.collection is not None else None
        self._inbox = source[inbox_name(settings)]
        self._authors = MessageAuthors(source, memory, settings)
        self._recorded = memory[settings.names[Message.COLLECTION]]
        self._forgotten = MongoForgetting(memory, settings.names)
        self._written: OrderedDict[str, datetime] = OrderedDict()
        """When the newest turns that this process has written were said, by name."""

    async def put(self, who: ChatAccess, turns: Sequence[ChatTurn], at: datetime) -> int:
        """Write the turns that were never stored, in order, and return how many; safe to repeat."""
        new = [(number, turn) for number, turn in enumerate(turns) if turn.name not in self._written]
        if not new:
            return 0
        known = await self.remembered(encode_id(turn.name) for _, turn in new)
        rows: list[Row] = [
            {
                "_id": turn.name,
                "kind": "added_text",
                "session_id": who.session,
                "user_id": who.user if turn.role == "user" else None,
                "role": turn.role,
                "text": turn.text,
                "created_at": at + number * STEP,
                "asked_by": "gateway",
            }
            for number, turn in new
            if encode_id(turn.name) not in known
        ]
        stored = await insert_new(self._inbox, rows)
        self._written |= {row["_id"]: row["created_at"] for row in rows}
        while len(self._written) > REMEMBERED:
            self._written.popitem(last=False)
        return stored

    async def put_new(
        self, who: ChatAccess, turns: Sequence[ChatTurn], history: Sequence[ChatTurn], at: datetime
    ) -> int:
        """As :meth:`put`; a turn that was said before in its place, and is said again, becomes a message of its own.

        It is said again, rather than sent again, where the history is cut (it does not reach back to the session's
        first message) or the earlier one was deleted, and the user has said something else since. So is an answer in
        the place of a deleted one: the provider has just given it.
        """
        stored = await self.put(who, turns, at)
        if stored == len(turns):
            return stored
        is_cut = bool(history) and not await self._reaches_back(who, history)
        earlier = [await self._earlier(turn) if turn.mark else None for turn in turns]
        newest = [(turn.repeat(number - 1), found) for turn, number, found in filter(None, earlier)]
        of_request = [*turns, *(turn for turn, _ in newest)]
        for offset, (turn, found) in enumerate(newest):
            answers = found.ended and turn.role == "assistant"
            if answers or ((is_cut or found.ended) and await self._went_on(who, found.at, of_request)):
                stored += await self.put(who, [turn.repeat(1)], at + offset * STEP)
        return stored

    async def put_lost(self, who: ChatAccess, lost: Lost, before: datetime) -> int:
        """Write an answer of the history that was never stored, dated before a time; return 0 or 1.

        It is lost if the turn before it is known, nothing stands in its place, and neither of the two is forgotten.
        """
        if lost.answer.name in self._written:
            return 0
        behind = (await self._stored([lost.behind])).get(lost.behind)
        if behind is None or behind.ended:
            return 0
        slot = {"$gte": lost.answer.slot, "$lt": f"{lost.answer.slot}~"}
        typed = {name: encode_id(bound) for name, bound in slot.items()}
        for collection, names in ((self._inbox, slot), (self._recorded, typed)):
            if await collection.find_one({"_id": names}, {"_id": 1}) is not None:
                return 0
        session, user = encode_id(who.session), None if who.user is None else encode_id(who.user)
        asked = SourceMessage(
            message_id=encode_id(lost.behind),
            version=ANY_VERSION,
            session_id=session,
            user_id=user,
            time=behind.at,
        )
        of_session = [("message", asked.message_id), ("session", session)]
        marks = await self._forgotten.among([*of_session, *([("user", user)] if user else [])])
        if marks.source_gone(asked):
            return 0
        return await self.put(who, [lost.answer], before - STEP)

    async def remembered(self, message_ids: Iterable[str]) -> set[str]:
        """Return those of the messages that memory knows, or was asked to forget; ids typed."""
        wanted = list(message_ids)
        known = set(await self._recorded.distinct("_id", {"_id": {"$in": wanted}}))
        marks = await self._forgotten.among([("message", name) for name in wanted])
        return known | {name for name in wanted if marks.entity_gone("message", name, 0)}

    async def make_session(self, session: Any, agent: Any, user: Any) -> None:
        """Create the session's document and add the user to the users that it lists, if the gateway is set to.

        A list begins only where nobody else has written, because whoever it leaves out does not count as present.
        The users of a document without a list are the authors of the messages.
        """
        if self._sessions is None or not self._makes_sessions:
            return
        users, of_session = self._mapped.users, {self._mapped.id: session}
        fits: Row = {} if user is None else {"$or": [{users: user}, {users: {"$not": {"$type": "array"}}}]}
        if await self._sessions.find_one(of_session | fits, {"_id": 1}) is not None:
            return
        begins = user is not None and await self._authors.nobody_else_in(encode_id(session), encode_id(user))
        new: Row = {self._mapped.agent_id: agent, **({users: []} if begins else {})}
        await self._sessions.update_one(of_session, {"$setOnInsert": new}, upsert=True)
        if user is not None and not begins:  # an empty list would say that nobody is there
            await self._sessions.update_one({**of_session, users: []}, {"$unset": {users: ""}})
        if user is not None:
            listed: Row = {users: {"$type": "array"}} if begins else {f"{users}.0": {"$exists": True}}
            await self._sessions.update_one(of_session | listed, {"$addToSet": {users: user}})

    async def _stored(self, names: Sequence[str]) -> dict[str, StoredTurn]:
        """Return those of the turns that are stored, or were, by name."""
        found = {name: StoredTurn(self._written[name]) for name in names if name in self._written}
        async for row in self._inbox.find({"_id": {"$in": list(names)}}, {"created_at": 1}):
            found[row["_id"]] = StoredTurn(_aware(row["created_at"]))
        fields = dict.fromkeys(("created_at", "time", "deleted", "forgotten"), 1)
        typed = {encode_id(name): name for name in names}
        async for row in self._recorded.find({"_id": {"$in": list(typed)}}, fields):
            ended = bool(row.get("deleted") or row.get("forgotten"))
            found[typed[row["_id"]]] = StoredTurn(_aware(row.get("created_at") or row["time"]), ended)
        return found

    async def _earlier(self, turn: ChatTurn) -> "tuple[ChatTurn, int, StoredTurn] | None":
        """Return how often a turn was stored in its place, and the last of these; None if it never was."""
        last: StoredTurn | None = None
        number = 0
        while True:
            names = [turn.repeat(number + more).name for more in range(REPEATS)]
            known = await self._stored(names)
            for name in names:
                if name not in known:
                    return None if last is None else (turn, number, last)
                last, number = known[name], number + 1

    async def _reaches_back(self, who: ChatAccess, history: Sequence[ChatTurn]) -> bool:
        """Return whether a history begins no later than what is stored of its session."""
        names = {turn.name for turn in history}
        recorded = {"session_id": encode_id(who.session), "deleted": {"$ne": True}}
        waiting = {"session_id": who.session, "kind": "added_text"}
        for collection, query in ((self._recorded, recorded), (self._inbox, waiting)):
            first = await collection.find_one(query, {"_id": 1}, sort=[("created_at", 1)])
            if first is not None:
                return first["_id"] in names | set(map(encode_id, names))
        return True

    async def _went_on(self, who: ChatAccess, at: datetime, of_request: Sequence[ChatTurn]) -> bool:
        """Return whether the user has said something else since."""
        names = [turn.name for turn in of_request]
        others: Row = {"role": "user", "_id": {"$nin": [*names, *map(encode_id, names)]}}
        later: Row = {"$gt": at}
        dated: Row = {"$or": [{"created_at": later}, {"created_at": None, "time": later}]}
        recorded = {"session_id": encode_id(who.session), **others, **dated}
        waiting = {"session_id": who.session, "kind": "added_text", **others, "created_at": later}
        for collection, query in ((self._recorded, recorded), (self._inbox, waiting)):
            if await collection.find_one(query, {"_id": 1}) is not None:
                return True
        return False


async def insert_new(collection: AsyncCollection[Row], rows: Sequence[Row]) -> int:
    """Insert those of the rows that are not there yet, and return how many."""
    if not rows:
        return 0
    try:
        return len((await collection.insert_many(rows, ordered=False)).inserted_ids)
    except BulkWriteError as error:
        only_duplicates(error)
        if any("_id" not in one.get("keyPattern", {"_id": 1}) for one in error.details["writeErrors"]):
            raise
        return int(error.details["nInserted"])


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
