"""Facts that are to be retired: those that have expired, and those said first beyond a limit of their stream."""

from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime
from typing import Any, Literal

from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.directory.stream_store import streams_in
from eden_memory.memory.memory_index_store import BEGINNING
from eden_memory.names import Names
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.events import FactCommanded
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
MOST = 10_000
"""Facts of one look that have expired, and of one scope that are beyond a limit; a later look finds the others."""
MOST_REMEMBERED = 100_000
FIELDS = dict.fromkeys(("scope_key", "agent_id", "version", "formed_at", "valid_from", "expires_at"), 1)
NEWEST_FIRST = [("valid_from", -1), ("_id", 1)]
REASONS: Mapping[str, str] = {"expiry": "expired", "limit": "beyond the limit of its stream"}


class MongoRetirements:
    """Reads `facts`, `snapshots` and `streams` of one namespace; `clock` is the wall's."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, clock: Callable[[], datetime]) -> None:
        self._facts = _majority(database, names["facts"])
        self._snapshots = _majority(database, names["snapshots"])
        self._streams = database[names["streams"]]
        self._clock = clock
        self._within: dict[str, tuple[int, int]] = {}
        """Scopes in which no conversation was beyond its limit: (revision, limit)."""

    async def due(self) -> AsyncGenerator[FactCommanded]:
        """One command for one version of a fact, however often it is found."""
        async for command in self._expired():
            yield command
        wanted: Row = {"$or": [{name: {"$type": "number"}} for name in ("fifo_limit", "max_entries")]}
        async for row in self._streams.find({**wanted, "active": {"$ne": False}}):
            for stream in streams_in([row]).values():
                async for command in self._beyond_limits(stream):
                    yield command

    async def _expired(self) -> AsyncGenerator[FactCommanded]:
        query: Row = {"active": True, "expires_at": {"$gt": BEGINNING, "$lte": self._clock()}}
        async for row in self._facts.find(query, FIELDS).sort("expires_at").limit(MOST):
            yield _command("expiry", row, row["expires_at"])

    async def _beyond_limits(self, stream: Stream) -> AsyncGenerator[FactCommanded]:
        least = min(one for one in (stream.fifo_limit, stream.max_entries) if one is not None)
        query = {**_scopes_of(stream), "active_facts": {"$gt": least}}
        async for scope in self._snapshots.find(query, {"revision": 1}):
            key, revision = scope["_id"], int(scope["revision"])
            if stream.fifo_limit is not None:
                async for command in self._oldest({"scope_key": key}, stream.fifo_limit):
                    yield command
            if stream.max_entries is not None:
                async for command in self._of_conversations(key, revision, stream.max_entries):
                    yield command

    async def _of_conversations(self, key: str, revision: int, most: int) -> AsyncGenerator[FactCommanded]:
        """A fact counts for the conversation that all its messages are of."""
        if self._within.get(key) == (revision, most):
            return
        within = True
        pipeline: list[Row] = [
            {"$match": {"scope_key": key, "active": True, "session_ids": {"$size": 1}}},
            {"$group": {"_id": "$session_ids", "facts": {"$sum": 1}}},
            {"$match": {"facts": {"$gt": most}}},
        ]
        async for found in await self._facts.aggregate(pipeline):
            within = False
            async for command in self._oldest({"scope_key": key, "session_ids": found["_id"]}, most):
                yield command
        if len(self._within) >= MOST_REMEMBERED:
            self._within.clear()
        if within:
            self._within[key] = revision, most

    async def _oldest(self, of: Row, most: int) -> AsyncGenerator[FactCommanded]:
        """All but those said last, `most` of them; retired when the newest was said, which is one too many."""
        active = {**of, "active": True}
        newest = await self._facts.find_one(active, {"valid_from": 1}, sort=NEWEST_FIRST)
        if newest is None:
            return
        rows = self._facts.find(active, FIELDS).sort(NEWEST_FIRST).skip(most).limit(MOST)
        async for row in rows:
            yield _command("limit", row, newest["valid_from"])


def _scopes_of(stream: Stream) -> Row:
    if stream.shard is not None:
        return {"_id": Scope.of_shard(stream.agent_id, stream.shard).key}
    return {"agent_id": stream.agent_id, "scope": stream.scope}


def _command(by: Literal["expiry", "limit"], row: Row, at: datetime) -> FactCommanded:
    """Asked never before the fact was formed, and true never before the version that it retires."""
    said_at = max(at, row["valid_from"])
    return FactCommanded(
        command_id=f"{by}/{row['_id']}/{row['version']}",
        scope=Scope.of_key(row["scope_key"], row["agent_id"]),
        action="retire",
        fact_id=row["_id"],
        expected_version=row["version"],
        by=by,
        asked_by=None,
        reason=REASONS[by],
        asked_at=max(said_at, row["formed_at"]),
        said_at=said_at,
    )


def _majority(database: AsyncDatabase[Row], name: str) -> AsyncCollection[Row]:
    return database.get_collection(
        name, read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("majority")
    )
