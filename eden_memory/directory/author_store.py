"""Find which users have written in a session, by the application's own messages: as soon as a message is committed.

Texts that the tailer has not carried yet count: turns of a chat may come through the inbox.
"""

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from eden_memory.logs import LibraryLogger
from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.schemas.events.chat import AGENT_SIDE, roles_of, values_of
from eden_memory.settings import TAILER, MessagesSettings, Settings

log = LibraryLogger()
Database = AsyncDatabase[dict[str, Any]]
Authors = dict[str, frozenset[str] | None]
"""Typed ids by session; None: the authors of that session cannot be known."""
MOST_MILLISECONDS = 2_000
"""Time limit of one query: without an index on the session it reads the whole collection."""


class MessageAuthors:
    """`source` is the application's database, `memory` our own."""

    def __init__(self, source: Database, memory: Database, settings: Settings) -> None:
        self._paths, self._source_name = settings.messages, settings.source_name
        self._messages = source.get_collection(
            settings.messages.collection,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("local"),  # also what is acknowledged, and not yet on a majority
        )
        self._inbox = source.get_collection(
            settings.names["inbox"], read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("local")
        )
        roles = roles_of(settings.messages.roles).items()
        self._agent_side = [value for name, role in roles if role in AGENT_SIDE for value in values_of(name)]
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
        if len(wanted) > 1 and (together := await self._together(wanted)) is not None:
            return together
        return dict(zip(wanted, await asyncio.gather(*map(self._of, wanted)), strict=True))

    async def everybody_in(self, session_ids: Collection[str]) -> dict[str, frozenset[str | None]] | None:
        """Return the users who write in each of a few sessions, in two queries; None among them: an unnamed one.

        None in place of all: they cannot be known. A session without messages of users is left out.
        """
        if not session_ids or not await self._is_tailed():
            return None if session_ids else {}
        paths, wanted = self._paths, {"$in": [decode_id(name) for name in session_ids]}
        found = await asyncio.gather(
            _pairs(
                self._messages,
                paths.session_id,
                paths.user_id,
                {paths.role: {"$nin": self._agent_side}},
                wanted,
            ),
            _pairs(self._inbox, "session_id", "user_id", {"role": {"$nin": sorted(AGENT_SIDE)}}, wanted),
        )
        everybody: dict[str, set[str | None]] = {}
        try:
            for session, author in (pair for pairs in found for pair in pairs):
                everybody.setdefault(encode_id(session), set()).add(
                    None if author is None else encode_id(author)
                )
        except TypeError:
            self._warn("an author is no id", "Run `eden doctor`.")
            return None
        if not everybody.keys() <= set(session_ids):  # a collation that takes different ids for the same
            return None
        return {name: frozenset(authors) for name, authors in everybody.items()}

    async def nobody_else_in(self, session_id: str, user_id: str) -> bool:
        """Return whether no other user has written in a session; False where that cannot be known."""
        try:
            everybody = await self.everybody_in([session_id])
        except OperationFailure:  # too slow, or not allowed
            return False
        return everybody is not None and everybody.get(session_id, frozenset()) <= {user_id}

    async def _together(self, session_ids: Collection[str]) -> Authors | None:
        """Return the authors of several sessions by two queries; None where each session must be asked for alone."""
        try:
            everybody = await self.everybody_in(session_ids)
        except OperationFailure:
            return None
        if everybody is None:
            return None
        return {name: frozenset(filter(None, everybody.get(name, ()))) for name in session_ids}

    async def _of(self, session_id: str) -> frozenset[str] | None:
        paths = self._paths
        session, most = decode_id(session_id), MOST_MILLISECONDS
        try:
            found = await asyncio.gather(
                self._messages.distinct(
                    paths.user_id,
                    {paths.session_id: session, paths.role: {"$nin": self._agent_side}},
                    maxTimeMS=most,
                ),
                self._inbox.distinct(
                    "user_id", {"session_id": session, "role": {"$nin": sorted(AGENT_SIDE)}}, maxTimeMS=most
                ),
            )
            return frozenset(
                encode_id(author) for authors in found for author in authors if author is not None
            )
        except OperationFailure as error:  # too slow, or not allowed
            self._warn(type(error).__name__, index_hint(self._messages.database.name, paths))
        except TypeError:
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


async def _pairs(
    collection: AsyncCollection[dict[str, Any]], session: str, user: str, of: Mapping[str, Any], wanted: Any
) -> list[tuple[Any, Any]]:
    """Return (session, author) of messages, each once; an index on session, role and author answers."""
    grouped = {"$group": {"_id": {"session": f"${session}", "user": f"${user}"}}}
    match = {"$match": {session: wanted, **of}}
    cursor = await collection.aggregate([match, grouped], maxTimeMS=MOST_MILLISECONDS)
    return [(row["_id"]["session"], row["_id"].get("user")) async for row in cursor]


def index_hint(database: str, paths: MessagesSettings) -> str:
    """Return the command that makes the index which finds a session's authors."""
    keys = dict.fromkeys((paths.session_id, paths.role, paths.user_id), 1)
    return create_index(database, paths.collection, keys)


def messages_of_user_hint(database: str, paths: MessagesSettings) -> str:
    """Return the command that makes the index which finds a user's newest messages."""
    return create_index(database, paths.collection, {paths.user_id: 1, paths.created_at: -1, "_id": -1})


def create_index(database: str, collection: str, keys: Mapping[str, int]) -> str:
    """Return the command for mongosh, whichever database it is connected to."""
    place, name, fields = (json.dumps(given, ensure_ascii=False) for given in (database, collection, keys))
    return f"db.getSiblingDB({place}).getCollection({name}).createIndex({fields})"


def begins_with(index: Mapping[str, Any], field: str) -> bool:
    """Tell whether an index finds every document by this field."""
    first, order = next(iter(index["key"]))
    return first == field and order in (1, -1, "hashed") and "partialFilterExpression" not in index
