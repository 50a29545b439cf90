"""Find which users have written in a session, by the application's own messages: as soon as a message is committed.

Texts that the tailer has not carried yet count: turns of a chat may come through the inbox.
"""

import asyncio
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from bson import ObjectId
from bson.errors import BSONError
from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from eden_memory.directory.application_message_store import parts, placed, projection
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.document_fields import Unusable, getter
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.lenient_decoding import EACH, decoded
from eden_memory.schemas.events.chat import AGENT_SIDE, ALL_OTHERS, others_of, role_of, roles_of
from eden_memory.schemas.ids import NoId
from eden_memory.settings import TAILER, MessagesSettings, Settings

log = LibraryLogger()
Database = AsyncDatabase[dict[str, Any]]
Authors = dict[str, frozenset[str | None] | None]
"""Typed ids by session; None among them: a user whom nobody names; None in their place: they cannot be known."""
NO_ID = ""
"""In the place of an author that is no id: then it is not known who is in the session."""
MOST_MILLISECONDS = 2_000
"""Time limit of one query: without an index on the session it reads the whole collection."""
FLAGS: Mapping[str, Sequence[Any]] = {"true": (True,), "false": (False, None)}
NUMBER = re.compile(r"-?\d{1,19}", re.ASCII)
MOST_NUMBER = 2**63 - 1
"""Of BSON's integers."""


class _Writer(NamedTuple):
    """Somebody who writes in a session, in one of our roles; ids typed."""

    session: str
    author: str | None
    role: str

    @property
    def counts(self) -> bool:
        """Whether it is a user: without an author, a message of another role is nobody's."""
        return self.author is not None or self.role == "user"


class MessageAuthors:
    """`source` is the application's database, `memory` our own."""

    def __init__(self, source: Database, memory: Database, settings: Settings) -> None:
        self._paths, self._source_name = settings.messages, settings.source_name
        self._messages = source.get_collection(
            settings.messages.collection,
            codec_options=EACH,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("local"),  # also what is acknowledged, and not yet on a majority
        )
        self._inbox = source.get_collection(
            settings.names["inbox"],
            codec_options=EACH,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("local"),
        )
        self._roles = roles_of(settings.messages.roles)
        self._not_agent_side = role_query(settings.messages, ("user", "other"))
        self._user_side = role_query(settings.messages, ("user",))
        self._positions = memory[settings.names["positions"]]
        self._tailed = False
        self._warned = False

    async def of(self, session_ids: Iterable[str]) -> Authors:
        """Return the users who write in each session, whoever answers them.

        An index on session, role and author answers without reading messages.
        """
        wanted = list(dict.fromkeys(session_ids))
        if not wanted:
            return {}
        if not await self._is_tailed():
            self._warn(
                "the tailer reads another collection",
                "Give this process the tailer's EDEN_SOURCE_* and EDEN_MESSAGES_* settings.",
            )
            return dict.fromkeys(wanted)
        several = len(wanted) > 1 or not self._paths.server_reads
        if several and (together := await self._together(wanted)) is not None:
            return together
        return dict(zip(wanted, await asyncio.gather(*map(self._of, wanted)), strict=True))

    async def everybody_in(self, session_ids: Collection[str]) -> Authors | None:
        """Return the users who write in each of a few sessions, in two queries; None among them: an unnamed one.

        None in place of all: they cannot be known. A session without messages of users is left out.
        """
        writers = await self._writers_in(session_ids)
        if writers is None and len(session_ids) > 1:  # what cannot be read hides its own session alone
            each = await asyncio.gather(*(self.everybody_in([name]) for name in session_ids))
            return {
                name: None if found is None else found.get(name, frozenset())
                for name, found in zip(session_ids, each, strict=True)
            }
        return None if writers is None else _by_session(writers)

    async def _writers_in(self, session_ids: Collection[str]) -> list[_Writer] | None:
        if not session_ids or not await self._is_tailed():
            return None if session_ids else []
        wanted = {"$in": [decode_id(name) for name in session_ids]}
        try:
            found = await asyncio.gather(self._in_messages(wanted), self._in_inbox(wanted))
        except (TypeError, BSONError):
            self._warn("a session or an author is no id", "Run `eden doctor`.")
            return None
        writers = [writer for some in found for writer in some]
        if any(writer.author == NO_ID for writer in writers):
            self._warn("an author is no id", "Run `eden doctor`.")
        # a collation may take different ids for the same
        return writers if {writer.session for writer in writers} <= set(session_ids) else None

    async def _in_messages(self, wanted: Any) -> list[_Writer]:
        paths = self._paths
        if not paths.server_reads:
            return await self._in_whole_documents(wanted)
        match = {paths.session_id: wanted, paths.role: self._not_agent_side}
        rows = await _grouped(self._messages, match, (paths.session_id, paths.user_id, paths.role))
        return [_writer(session, author, role_of(role, self._roles)) for session, author, role in rows]

    async def _in_whole_documents(self, wanted: Any) -> list[_Writer]:
        """Return who writes in sessions, of messages that only whole documents tell."""
        paths = self._paths
        fields = projection(paths, (paths.session_id, paths.user_id, paths.role))
        found: Any = self._messages.find({paths.session_id: wanted}, fields).max_time_ms(MOST_MILLISECONDS)
        session, author, role = (
            getter(placed(paths, path)) for path in (paths.session_id, paths.user_id, paths.role)
        )
        writers: dict[_Writer, None] = {}
        async for document in found:
            try:
                for message in parts(paths, decoded(document)):
                    writer = _writer(session(message), author(message), role_of(role(message), self._roles))
                    if writer.role not in AGENT_SIDE:
                        writers[writer] = None
            except Unusable:
                continue  # the tailer makes no message of it either
        return list(writers)

    async def _in_inbox(self, wanted: Any) -> list[_Writer]:
        match = {"kind": "added_text", "session_id": wanted, "role": {"$nin": sorted(AGENT_SIDE)}}
        rows = await _grouped(self._inbox, match, ("session_id", "user_id", "role"))
        return [_writer(session, author, role or "user") for session, author, role in rows]

    async def nobody_else_in(self, session_id: str, user_id: str) -> bool:
        """Return whether no other user has written in a session; False where that cannot be known."""
        authors = (await self.of([session_id]))[session_id]
        return authors is not None and authors <= {user_id}

    async def _together(self, session_ids: Collection[str]) -> Authors | None:
        """Return the authors of several sessions by two queries; None where each session must be asked for alone."""
        try:
            writers = await self._writers_in(session_ids)
        except OperationFailure:
            return None
        if writers is None:
            return None
        authors = _by_session(writer for writer in writers if writer.counts)
        return {name: authors.get(name, frozenset()) for name in session_ids}

    async def _of(self, session_id: str) -> frozenset[str | None] | None:
        """Return a session's authors; a separate query finds an unnamed one, as `distinct` may skip missing ids."""
        paths = self._paths
        if not paths.server_reads:
            return None
        session, most = decode_id(session_id), MOST_MILLISECONDS
        try:
            named, unnamed, added = await asyncio.gather(
                self._messages.distinct(
                    paths.user_id,
                    {paths.session_id: session, paths.role: self._not_agent_side},
                    maxTimeMS=most,
                ),
                self._messages.find_one(
                    {
                        "$and": [
                            {paths.session_id: session, paths.user_id: None},
                            {paths.role: self._user_side},
                        ]
                    },
                    {"_id": 1},
                    max_time_ms=most,
                ),
                self._in_inbox(session),
            )
            if any(writer.author == NO_ID for writer in added):
                raise NoId("an added text")
            authors = {encode_id(author) for author in named if author is not None}
            nobody_named = {None} if unnamed is not None else set[None]()
            return frozenset(authors | nobody_named | {writer.author for writer in added if writer.counts})
        except OperationFailure as error:  # too slow, or not allowed
            self._warn(type(error).__name__, index_hint(self._messages.database.name, paths))
        except (TypeError, BSONError):
            self._warn("an author is no id", "Run `eden doctor`.")
        return None

    async def _is_tailed(self) -> bool:
        """Tell whether memory is formed from this very collection, or from no messages yet."""
        if not self._tailed:
            names = [
                row["_id"]
                async for row in self._positions.find({"_id": {"$regex": f"^{TAILER}"}}, {"_id": 1})
            ]
            self._tailed = self._source_name in names
            return self._tailed or not names
        return True

    def _warn(self, reason: str, hint: str) -> None:
        if not self._warned:
            self._warned = True
            what = "who is in a session cannot be known: no user's memory is shown in it"
            log.warning(what, messages=self._paths.collection, reason=reason, hint=hint)


async def _grouped(
    collection: AsyncCollection[Any], match: Mapping[str, Any], fields: Sequence[str]
) -> list[list[Any]]:
    """Return the values of the fields in messages, each combination once; an index on them answers."""
    grouped = {"$group": {"_id": {f"f{n}": f"${field}" for n, field in enumerate(fields)}}}
    cursor = await collection.aggregate([{"$match": match}, grouped], maxTimeMS=MOST_MILLISECONDS)
    rows = [decoded(row)["_id"] async for row in cursor]
    return [[row.get(f"f{n}") for n in range(len(fields))] for row in rows]


def _writer(session: Any, author: Any, role: str) -> _Writer:
    name = encode_id(session)
    try:
        return _Writer(name, None if author is None else encode_id(author), role)
    except NoId:
        return _Writer(name, NO_ID, role)


def _by_session(writers: Iterable[_Writer]) -> Authors:
    authors: dict[str, set[str | None]] = {}
    for writer in writers:
        authors.setdefault(writer.session, set()).add(writer.author)
    return {session: None if NO_ID in found else frozenset(found) for session, found in authors.items()}


def role_query(messages: MessagesSettings, ours: Collection[str]) -> dict[str, Any]:
    """Return the query for the values that stand for some of our roles in the application's messages."""
    roles = roles_of(messages.roles)
    others = others_of(roles) in ours
    listed = [
        value
        for name, role in roles.items()
        if name != ALL_OTHERS and (role in ours) is not others
        for value in _values_of(name)
    ]
    return {"$nin" if others else "$in": listed}


def _values_of(name: str) -> Iterator[Any]:
    """Yield what `role_name` reads as this name."""
    yield name
    if name in FLAGS:
        yield from FLAGS[name]
    elif ObjectId.is_valid(name):
        yield ObjectId(name)
    elif NUMBER.fullmatch(name) and abs(int(name)) <= MOST_NUMBER:
        yield int(name)


def index_hint(database: str, paths: MessagesSettings) -> str:
    """Return the command that makes the index which finds a session's authors."""
    found_by = (paths.session_id, paths.role, paths.user_id) if paths.server_reads else (paths.session_id,)
    keys = dict.fromkeys(found_by, 1)
    return create_index(database, paths.collection, keys)


def messages_of_user_hint(database: str, paths: MessagesSettings) -> str:
    """Return the command that makes the index which finds a user's newest messages."""
    order = {paths.created_at: -1, "_id": -1} if paths.server_reads else {"_id": -1}
    return create_index(database, paths.collection, {paths.user_id: 1, **order})


def newest_of_session_hint(database: str, paths: MessagesSettings) -> str:
    """Return the command that makes the index which finds a session's newest messages, whoever wrote them."""
    return create_index(database, paths.collection, {paths.session_id: 1, paths.created_at: -1, "_id": -1})


def create_index(database: str, collection: str, keys: Mapping[str, int]) -> str:
    """Return the command for mongosh, whichever database it is connected to."""
    place, name, fields = (json.dumps(given, ensure_ascii=False) for given in (database, collection, keys))
    return f"db.getSiblingDB({place}).getCollection({name}).createIndex({fields})"


def begins_with(index: Mapping[str, Any], field: str) -> bool:
    """Tell whether an index finds every document by this field."""
    first, order = next(iter(index["key"]))
    return first == field and order in (1, -1, "hashed") and "partialFilterExpression" not in index
