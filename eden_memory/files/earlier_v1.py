"""The previous system's collections `memory_user`, `memory_agent` and `memory_sessions`.

A user's text stays that user's blob; directives become reflections. Each active shard becomes a stream with its blob,
its facts become facts of the agent, its suggestions reflections of the shard. Episodes become reflections of their
session. What a blob has absorbed stays absorbed.
"""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, PyMongoError

from eden_memory.directory.participants import Directory
from eden_memory.errors import EdenError, Invalid
from eden_memory.files.earlier_records import EarlierMemory, blob_is_readable
from eden_memory.files.import_items import (
    Entry,
    ImportedAs,
    ImportedItem,
    SkippedItem,
    Unimportable,
    imported_or_skipped,
    stream_of,
)
from eden_memory.mongo.ids import typed
from eden_memory.mongo.lenient_decoding import LENIENT
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]

SESSIONS, USERS, AGENTS = "memory_sessions", "memory_user", "memory_agent"


@asynccontextmanager
async def earlier_database(address: str) -> AsyncGenerator[AsyncDatabase[Row]]:
    """Open `mongodb://HOST/DATABASE`."""
    client: AsyncMongoClient[Row] = AsyncMongoClient(address, tz_aware=True, serverSelectionTimeoutMS=10_000)
    try:
        async with client:
            yield client.get_default_database(codec_options=LENIENT)
    except ConfigurationError:
        raise Invalid("the address names no database", "mongodb://HOST/DATABASE") from None
    except PyMongoError as error:
        raise EdenError(f"the previous system's database does not answer: {type(error).__name__}") from None


async def v1(path: str, to: ImportedAs, directory: Directory) -> AsyncIterator[EarlierMemory | Entry]:
    """Yield the memories of a database."""
    del directory  # the documents name the users of sessions
    async with earlier_database(path) as database:
        async for entry in V1Memories(database, to).read():
            yield entry


class V1Memories:
    """Reads one database."""

    def __init__(self, database: AsyncDatabase[Row], to: ImportedAs) -> None:
        self._database, self._to = database, to
        self._taken = {"directive": 0, "suggestion": 0, "fact": 0}

    async def read(self) -> AsyncIterator[EarlierMemory | Entry]:
        """Yield everything."""
        async for row in self._database[USERS].find(sort=[("_id", 1)]):
            async for entry in self._of_user(row):
                yield entry
        active = self._database[AGENTS].find({"is_active": {"$ne": False}}, {"agent_id": 1})
        shards = Counter([str(row.get("agent_id")) async for row in active])
        async for row in self._database[AGENTS].find(sort=[("_id", 1)]):
            async for entry in self._of_shard(row, only=shards[str(row.get("agent_id"))] == 1):
                yield entry
        async for entry in self._episodes():
            yield entry
        async for skipped in self._rest():
            yield skipped

    async def _of_user(self, row: Row) -> AsyncIterator[EarlierMemory | Entry]:
        where = f"{USERS} {row['_id']}"
        try:
            scope = self._to.mapping.scope(row.get("agent_id"), row.get("user_id"))
        except Unimportable as error:
            yield SkippedItem(where, error.reason, error.bad)
            return
        waiting = listed(row, "unabsorbed_memory_ids", "unabsorbed_directive_ids")
        async for entry in self._memories({"_id": {"$in": waiting}}, "directive", scope):
            yield entry
        if blob_is_readable(self._to, row.get("content"), _time(row)):
            absorbed = {
                "agent_id": row.get("agent_id"),
                "related_users": row.get("user_id"),
                "_id": {"$nin": waiting},
            }
            async for entry in self._memories(absorbed, "directive", scope, absorbed=True):
                yield entry
        if row.get("content"):
            yield self._blob(where, row, scope)

    async def _of_shard(self, row: Row, *, only: bool) -> AsyncIterator[EarlierMemory | Entry]:
        """Yield a shard; `only`: the agent has no other, so that suggestions which name none are its own."""
        where = f"{AGENTS} {row['_id']}"
        if row.get("is_active") is False:
            yield SkippedItem(where, "the shard is not active")
            return
        try:
            agent = self._to.mapping.agent_of(row.get("agent_id"))
            scope = Scope.of_shard(agent, row["shard_name"])
            stream = stream_of(row, scope).model_copy(update={"sharing": "team", "fifo_limit": _limit(row)})
            yield ImportedItem(where, "shard", stream, scope)
        except Exception:  # noqa: BLE001 - whatever it is, this shard raised it
            yield SkippedItem(where, "its agent or name cannot be used", bad=True)
            return
        facts = {"_id": {"$in": listed(row, "facts", "relevant_facts")}}
        async for entry in self._memories(facts, "fact", Scope.of_agent(agent)):
            yield entry
        waiting = listed(row, "unabsorbed_memory_ids")
        async for entry in self._memories({"_id": {"$in": waiting}}, "suggestion", scope):
            yield entry
        if blob_is_readable(self._to, row.get("content"), _time(row)):
            shards = [row["_id"], *([None] if only else [])]
            absorbed = {
                "agent_id": row.get("agent_id"),
                "shard_id": {"$in": shards},
                "_id": {"$nin": waiting},
            }
            async for entry in self._memories(absorbed, "suggestion", scope, absorbed=True):
                yield entry
        if row.get("content"):
            yield self._blob(where, row, scope)

    def _blob(self, where: str, row: Row, scope: Scope) -> EarlierMemory:
        return EarlierMemory(where, "blob", row["_id"], row["content"], scope, _time(row))

    async def _memories(
        self, query: Row, kind: str, scope: Scope, *, absorbed: bool = False
    ) -> AsyncIterator[EarlierMemory]:
        """Yield the memories of a kind, as memories of the scope, oldest first."""
        async for row in self._database[SESSIONS].find({**query, "memory_type": kind}, sort=[("_id", 1)]):
            self._taken[kind] += 1
            yield self._memory(row, scope, absorbed=absorbed)

    def _memory(self, row: Row, scope: Scope, *, absorbed: bool = False) -> EarlierMemory:
        return EarlierMemory(
            f"{SESSIONS} {row['_id']}",
            "fact" if row["memory_type"] == "fact" else "reflection",
            row["_id"],
            row.get("content"),
            scope,
            row.get("createdAt") or row["_id"],
            session=row.get("source_session_id"),
            messages=listed(row, "source_message_ids"),
            absorbed=absorbed,
        )

    async def _episodes(self) -> AsyncIterator[EarlierMemory | Entry]:
        """Yield the episodes, session by session: the users of all of a session's episodes may see each."""
        together: list[Row] = []
        order = [("source_session_id", 1), ("createdAt", 1), ("_id", 1)]
        async for row in self._database[SESSIONS].find(
            {"memory_type": "episode"}, sort=order, allow_disk_use=True
        ):
            if together and together[0].get("source_session_id") != row.get("source_session_id"):
                for entry in self._of_session(together):
                    yield entry
                together = []
            together.append(row)
        for entry in self._of_session(together):
            yield entry

    def _of_session(self, rows: Sequence[Row]) -> list[EarlierMemory | SkippedItem]:
        return [
            imported_or_skipped(f"{SESSIONS} {row['_id']}", partial(self._episode, row, rows)) for row in rows
        ]

    def _episode(self, row: Row, rows: Sequence[Row]) -> EarlierMemory:
        """Return a reflection of the session; Unimportable if it names none."""
        if row.get("source_session_id") is None:
            raise Unimportable("it names no session", bad=True)
        users = chain.from_iterable(listed(other, "related_users") for other in rows)
        audience = tuple(sorted({self._to.mapping.user_of(user) for user in users}))
        session = typed(row["source_session_id"], "session")
        scope = Scope.of_session(self._to.mapping.agent_of(row.get("agent_id")), session, audience)
        return self._memory(row, scope)

    async def _rest(self) -> AsyncIterator[SkippedItem]:
        """Yield how many memories are left out, and why."""
        left_out = {
            "directive": "no text of its user has absorbed it, and none waits for it",
            "suggestion": "it names no active shard",
            "fact": "no active shard names it",
        }
        for kind, reason in left_out.items():
            count = await self._database[SESSIONS].count_documents({"memory_type": kind}) - self._taken[kind]
            if count > 0:
                yield SkippedItem(f"{SESSIONS}, {kind}s", reason, count=count)
        others = {"memory_type": {"$exists": True, "$nin": ["episode", *left_out]}}
        if count := await self._database[SESSIONS].count_documents(others):
            yield SkippedItem(f"{SESSIONS}, other types", "its type has no counterpart here", count=count)


def _time(row: Mapping[str, Any]) -> Any:
    return row.get("last_updated_at") or row.get("updatedAt") or row["_id"]


def _limit(row: Mapping[str, Any]) -> int | None:
    limit = row.get("max_facts_per_shard")
    return limit if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0 else None


def listed(row: Row, *names: str) -> list[Any]:
    """Return the contents of these lists of a document; a field that is no list has none."""
    return [item for name in names if isinstance(found := row.get(name), list) for item in found]  # pyright: ignore
