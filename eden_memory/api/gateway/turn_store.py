"""Store turns as the application stores messages, or through the inbox if that is impossible."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import orjson
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, DuplicateKeyError

from eden_memory.api.gateway.chat_access import ChatAccess
from eden_memory.api.gateway.id_types import IdTypes, demand_type, id_types
from eden_memory.api.gateway.turn_shape import (
    Row,
    TurnShape,
    TurnToWrite,
    UnknownShape,
    checked_fields,
    learned_shape,
    plain_shape,
    sampled_fields,
)
from eden_memory.api.gateway.turns import ChatTurn, Lost
from eden_memory.directory.author_store import MessageAuthors
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.mongo.change_stream import PLAIN
from eden_memory.mongo.document_fields import Unusable, getter
from eden_memory.schemas.documents import Message
from eden_memory.settings import Settings
from eden_memory.source.configured_mapping import inbox_name, message_mapping
from eden_memory.source.message_mapping import MessageMapping

log = LibraryLogger()
DUPLICATE_KEY = 11_000
SAMPLE = 200
REPEATS = 100
"""Names of a turn that are looked up at once."""
AGAIN_SECONDS = 60.0
"""While the application has no message, its shape is looked for again."""
ANY_VERSION, ANY_TIME = "0" * 16, datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)


class LearnedTurns(NamedTuple):
    """The way to write turns, learned from the application's newest messages."""

    shape: TurnShape | UnknownShape
    stays: bool = True
    """Whether it need not be looked for again."""
    ids: IdTypes = IdTypes()
    forced: str | None = None
    """Why turns have a shape that is not the application's; None: they have the application's, or there is none."""


class _Place(NamedTuple):
    """A collection in which a session's turns stand."""

    collection: AsyncCollection[Row]
    id_of: Callable[[ChatTurn], Any]
    session: Row
    """Selects the session's messages."""
    of_user: Row
    """Selects the user's."""
    created_at: str


class _Stored(NamedTuple):
    """A stored turn, and when it was said, as the application has times."""

    turn: ChatTurn
    at: Any


class TurnStore:
    """`source` is the application's database, `memory` our own."""

    def __init__(self, source: AsyncDatabase[Row], memory: AsyncDatabase[Row], settings: Settings) -> None:
        self._settings, self._fields, self._mapped = settings, settings.messages, settings.sessions
        self._source = source
        self._messages = source[settings.messages.collection]
        self._sessions = source[self._mapped.collection] if self._mapped.collection is not None else None
        self._inbox = source[inbox_name(settings)]
        self._authors = MessageAuthors(source, memory, settings)
        self._recorded = memory[settings.names[Message.COLLECTION]]
        self._forgotten = MongoForgetting(memory, settings.names)
        self._makes_sessions = settings.gateway.create_sessions
        self._extra = checked_fields(settings.gateway.message_fields, settings.messages)
        self._learned: LearnedTurns | None = None
        self._until = 0.0

    async def check(self, who: ChatAccess) -> None:
        """Raise NotAnId if ids of this chat are of another type than those in the application's messages."""
        if not who.keeps:
            return
        ids = (await self._current()).ids
        demand_type(who.session, ids.session, self._fields.session_id, "EDEN_GATEWAY_SESSION_IDS")
        demand_type(who.user, ids.user, self._fields.user_id, "EDEN_GATEWAY_USER_IDS")

    async def put(self, who: ChatAccess, turns: Sequence[ChatTurn], at: datetime) -> int:
        """Insert the missing turns in order, and return how many; safe to repeat.

        What memory knows was stored once: if its message is missing, somebody has deleted it, and it stays away.
        """
        if not turns:
            return 0
        shape = (await self._current()).shape
        step = (TurnShape() if isinstance(shape, UnknownShape) else shape).step
        said = [
            TurnToWrite(turn, who.session, who.user, who.agent, at + n * step) for n, turn in enumerate(turns)
        ]
        known = await self._remembered([_typed_id(shape, turn) for turn in turns])
        said = [written for written in said if _typed_id(shape, written.turn) not in known]
        if not said:
            return 0
        if isinstance(shape, UnknownShape):
            return await _insert(self._inbox, [_asked(written) for written in said])
        rows = [shape.row(written, self._fields, self._extra) for written in said]
        return await _insert(self._messages, rows)

    async def put_new(
        self, who: ChatAccess, turns: Sequence[ChatTurn], history: Sequence[ChatTurn], at: datetime
    ) -> int:
        """As :meth:`put`, but a cut history hides that a turn was said before: it then counts as said again.

        The history is cut if it does not reach back to the session's first message; a turn that is stored is said
        again, rather than sent again, if the user has said something else since. So does a turn whose message was
        deleted, and an answer: the provider has just given it.
        """
        stored = await self.put(who, turns, at)
        if stored < len(turns):
            stored += await self._put_again(who, turns, at)
        if stored == len(turns) or not history:
            return stored
        places = await self._places(who)
        if await _reach_back(places, history):
            return stored
        newest = [await _newest(places, turn) if turn.mark else None for turn in turns]
        of_request = [*turns, *(found.turn for found in newest if found is not None)]
        for number, found in enumerate(newest):
            if found is not None and await _went_on(places, found.at, of_request):
                again = found.turn.repeat(1)
                stored += await self.put(who, [again], at + timedelta(milliseconds=number))
        return stored

    async def put_lost(self, who: ChatAccess, lost: Lost, before: datetime) -> int:
        """Insert an answer of the history that is not stored, dated before a time; return 0 or 1."""
        shape = (await self._current()).shape
        slot = (TurnShape() if isinstance(shape, UnknownShape) else shape).range_of(lost.answer.slot)
        typed = {name: encode_id(bound) for name, bound in slot.items()}
        if isinstance(shape, UnknownShape):
            asked = await self._known(encode_id(lost.behind), lost.behind)
            taken = await self._known(typed, slot)
        else:
            asked = await self._messages.find_one({"_id": shape.lost_id(lost.behind)}, {"_id": 1})
            taken = await self._messages.find_one({"_id": slot}, {"_id": 1}) or await self._recorded.find_one(
                {"_id": typed}, {"_id": 1}
            )
        if not asked or taken:
            return 0
        return await self.put(who, [lost.answer], before - timedelta(milliseconds=1))

    async def make_session(self, session: Any, agent: Any, user: Any) -> None:
        """Create the session's document and add the user to the users that it lists, if the gateway is set to.

        A list begins only where nobody else has written, because whoever it leaves out does not count as present.
        The users of a document without a list are the authors of the messages.
        """
        if self._sessions is None or not self._makes_sessions:
            return
        users = self._mapped.users
        fits: Row = {} if user is None else {"$or": [{users: user}, {users: {"$not": {"$type": "array"}}}]}
        if await self._sessions.find_one({"_id": session} | fits, {"_id": 1}) is not None:
            return
        begins = user is not None and await self._authors.nobody_else_in(encode_id(session), encode_id(user))
        new: Row = {self._mapped.agent_id: agent, **({users: []} if begins else {})}
        await self._sessions.update_one({"_id": session}, {"$setOnInsert": new}, upsert=True)
        if user is not None and not begins:  # an empty list would say that nobody is there
            await self._sessions.update_one({"_id": session, users: []}, {"$unset": {users: ""}})
        if user is not None:
            listed: Row = {users: {"$type": "array"}} if begins else {f"{users}.0": {"$exists": True}}
            await self._sessions.update_one({"_id": session} | listed, {"$addToSet": {users: user}})

    async def _places(self, who: ChatAccess) -> "Sequence[_Place]":
        """Return where a session's turns may stand."""
        shape, fields = (await self._current()).shape, self._fields
        if not isinstance(shape, UnknownShape):
            role = {fields.role: shape.roles.get("user", "user")}
            session = {fields.session_id: who.session}
            return [_Place(self._messages, shape.id_of, session, role, fields.created_at)]
        user, session = {"role": "user"}, {"session_id": who.session}
        recorded = {"session_id": encode_id(who.session), "deleted": {"$ne": True}}
        return [
            _Place(self._recorded, _typed_name, recorded, user, "created_at"),
            _Place(self._inbox, _name, session | {"kind": "added_text"}, user, "created_at"),
        ]

    async def _current(self) -> LearnedTurns:
        if self._learned is None or time.monotonic() > self._until:
            self._learned = await learned_turns(self._source, self._settings)
            self._until = float("inf") if self._learned.stays else time.monotonic() + AGAIN_SECONDS
            if isinstance(self._learned.shape, UnknownShape):
                log.info("the gateway stores turns through the inbox", reason=self._learned.shape.reason)
        return self._learned

    async def _put_again(self, who: ChatAccess, turns: Sequence[ChatTurn], at: datetime) -> int:
        """Insert turns that were said again after their messages were deleted, under names of their own."""
        stored = 0
        for turn in turns:
            again = await self._said_again(who, turn) if turn.mark else None
            stored += 0 if again is None else await self.put(who, [again], at)
        return stored

    async def _said_again(self, who: ChatAccess, turn: ChatTurn) -> ChatTurn | None:
        """Return the turn under the first of its names whose message was not deleted; None if it was sent again."""
        shape = (await self._current()).shape
        own = [_typed_id(shape, turn.repeat(number)) for number in range(REPEATS)]
        ended: Row = {"$or": [{"deleted": True}, {"forgotten": True}]}
        others: Row = {"session_id": encode_id(who.session), "role": "user", "_id": {"$nin": own}}
        for number, name in enumerate(own):
            row = await self._recorded.find_one({"_id": name, **ended}, {"created_at": 1, "time": 1})
            if row is None:
                return turn.repeat(number)
            dated = "created_at" if row.get("created_at") else "time"
            later: Row = {dated: {"$gt": row[dated]}}
            if turn.role != "assistant" and not await self._recorded.find_one(others | later, {"_id": 1}):
                return None
        return None

    async def _remembered(self, typed: Sequence[str]) -> set[str]:
        """Return the messages that memory knows, or was asked to forget."""
        known = set(await self._recorded.distinct("_id", {"_id": {"$in": list(typed)}}))
        marks = await self._forgotten.among([("message", name) for name in typed])
        return known | {name for name in typed if marks.entity_gone("message", name, 0)}

    async def _known(self, typed: Any, name: Any) -> bool:
        """Return whether memory knows such a message, or a request for it waits."""
        for collection, wanted in ((self._inbox, name), (self._recorded, typed)):
            if await collection.find_one({"_id": wanted}, {"_id": 1}) is not None:
                return True
        return False


async def learned_turns(source: AsyncDatabase[Row], settings: Settings) -> LearnedTurns:
    """Learn from the newest messages how to write turns."""
    chosen, fields = settings.gateway.turns, settings.messages
    if chosen == "inbox":
        return LearnedTurns(UnknownShape("EDEN_GATEWAY_TURNS=inbox"))
    newest = source.get_collection(fields.collection, codec_options=PLAIN).find(
        {}, sampled_fields(fields), sort=[("_id", -1)], limit=SAMPLE
    )
    documents = await newest.to_list()
    shape = learned_shape(documents, fields)
    if isinstance(shape, TurnShape):
        extra = checked_fields(settings.gateway.message_fields, fields)
        shape = (
            shape
            if _reads_back(shape, message_mapping(settings), settings, extra)
            else UnknownShape("the field mapping would not read a turn back as it was said")
        )
    ids = id_types(documents, fields)
    if chosen == "messages" and isinstance(shape, UnknownShape):
        return LearnedTurns(plain_shape(fields), ids=ids, forced=shape.reason)
    return LearnedTurns(shape, bool(documents), ids)


def _reads_back(
    shape: TurnShape, mapping: MessageMapping, settings: Settings, extra: Mapping[str, Any]
) -> bool:
    """Return whether a turn of each side, written in this shape, becomes the expected record."""
    for role in ("user", "assistant"):
        turn = ChatTurn("gw-a-b-c", "gw-a-b-", role, "Said.")
        row = shape.row(TurnToWrite(turn, "s", "u", "a", ANY_TIME), settings.messages, extra)
        try:
            event = orjson.loads(mapping.record(row, ANY_VERSION, b"", "stream").value or b"")
        except Unusable:
            return False
        author = "s.u" if role == "user" else None
        if (event["role"], event["user_id"], event["text"], event["session_id"]) != (
            role,
            author,
            "Said.",
            "s.s",
        ):
            return False
    return True


def _typed_id(shape: TurnShape | UnknownShape, turn: ChatTurn) -> str:
    """Return the id under which memory knows the turn."""
    return encode_id(turn.name if isinstance(shape, UnknownShape) else shape.id_of(turn))


def _name(turn: ChatTurn) -> str:
    return turn.name


def _typed_name(turn: ChatTurn) -> str:
    return encode_id(turn.name)


async def _reach_back(places: Sequence[_Place], history: Sequence[ChatTurn]) -> bool:
    """Return whether a history begins no later than what is stored of its session."""
    for place in places:
        first = await place.collection.find_one(place.session, {"_id": 1}, sort=[(place.created_at, 1)])
        if first is not None:
            return first["_id"] in [place.id_of(turn) for turn in history]
    return True


async def _newest(places: Sequence[_Place], turn: ChatTurn) -> _Stored | None:
    """Return the newest stored turn of those that say the same in the same place."""
    found: _Stored | None = None
    while True:
        repeats = [turn.repeat(number) for number in range(REPEATS)]
        known = await _known_times(places, repeats)
        for repeat in repeats:
            if repeat.name not in known:
                return found
            found = _Stored(repeat, known[repeat.name])
        turn = turn.repeat(REPEATS)


async def _known_times(places: Sequence[_Place], turns: Sequence[ChatTurn]) -> Row:
    """Return when the stored ones of these turns were said, by name."""
    found: Row = {}
    for place in places:
        names = {place.id_of(turn): turn.name for turn in turns}
        said = getter(place.created_at)
        rows = place.collection.find({"_id": {"$in": list(names)}}, {place.created_at: 1})
        found |= {names[row["_id"]]: said(row) async for row in rows}
    return found


async def _went_on(places: Sequence[_Place], at: Any, of_request: Sequence[ChatTurn]) -> bool:
    """Return whether the user has said something else since."""
    for place in places:
        others = {"$nin": [place.id_of(turn) for turn in of_request]}
        query = {**place.session, **place.of_user, place.created_at: {"$gt": at}, "_id": others}
        if await place.collection.find_one(query, {"_id": 1}) is not None:
            return True
    return False


async def _insert(collection: AsyncCollection[Row], rows: list[Row]) -> int:
    """Insert the rows and return how many were new."""
    try:
        if len(rows) == 1:
            await collection.insert_one(rows[0])
            return 1
        return len((await collection.insert_many(rows, ordered=False)).inserted_ids)
    except DuplicateKeyError as error:
        if not _is_known(error.details or {}):
            raise
        return 0
    except BulkWriteError as error:
        if not all(_is_known(detail) for detail in error.details["writeErrors"]):
            raise
        return int(error.details["nInserted"])


def _asked(written: TurnToWrite) -> Row:
    turn = written.turn
    author = written.user if turn.role == "user" else None
    return {
        "_id": turn.name,
        "kind": "added_text",
        "session_id": written.session,
        "user_id": author,
        "role": turn.role,
        "text": turn.text,
        "created_at": written.at,
        "asked_by": "gateway",
    }


def _is_known(refused: Mapping[str, Any]) -> bool:
    """Return whether the turn is stored already, rather than refused by the application's index."""
    return refused.get("code") == DUPLICATE_KEY and "_id" in refused.get("keyPattern", {"_id": 1})
