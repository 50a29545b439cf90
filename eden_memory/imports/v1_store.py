"""Memories of the previous system: `memory_user`, `memory_agent` and `memory_sessions`, which are only read.

A user's blob stays a blob; directives that it has not absorbed become reflections. Each active shard becomes a stream
with its blob, its facts become facts of the agent, and suggestions that it has not absorbed become its reflections.
Episodes become reflections of their session.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import ConfigurationError, PyMongoError

from eden_memory.errors import EdenError, Invalid
from eden_memory.imports.import_items import (
    Entry,
    ImportedAs,
    ImportedItem,
    SkippedItem,
    Unimportable,
    imported_or_skipped,
    stream_of,
)
from eden_memory.mongo.application_ids import typed
from eden_memory.mongo.lenient_decoding import LENIENT
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
SESSIONS, USERS, AGENTS = "memory_sessions", "memory_user", "memory_agent"
PER_QUERY = 1_000
IN_A_BLOB = "its blob has absorbed it"


async def v1(path: str, to: ImportedAs) -> AsyncIterator[Entry]:
    """Yield the memories of a database: `mongodb://HOST/DATABASE`."""
    client: AsyncMongoClient[Row] = AsyncMongoClient(path, tz_aware=True, serverSelectionTimeoutMS=10_000)
    try:
        async with client:
            database = client.get_default_database(codec_options=LENIENT)
            async for entry in V1Memories(database, to).read():
                yield entry
    except ConfigurationError:
        raise Invalid("the address names no database", "mongodb://HOST/DATABASE") from None
    except PyMongoError as error:
        raise EdenError(f"the previous system's database does not answer: {type(error).__name__}") from None


class V1Memories:
    """Reads one database."""

    def __init__(self, database: AsyncDatabase[Row], to: ImportedAs) -> None:
        self._database, self._to = database, to
        self._taken = {"directive": 0, "suggestion": 0, "fact": 0}

    async def read(self) -> AsyncIterator[Entry]:
        """Yield everything."""
        async for row in self._database[USERS].find(sort=[("_id", 1)]):
            async for entry in self._of_user(row):
                yield entry
        async for row in self._database[AGENTS].find(sort=[("_id", 1)]):
            async for entry in self._of_shard(row):
                yield entry
        async for entry in self._episodes():
            yield entry
        async for skipped in self._rest():
            yield skipped

    async def _of_user(self, row: Row) -> AsyncIterator[Entry]:
        where = f"{USERS} {row['_id']}"
        try:
            scope = self._to.mapping.scope(row.get("agent_id"), row.get("user_id"))
        except Unimportable as error:
            yield SkippedItem(where, error.reason, error.bad)
            return
        if row.get("content"):
            yield self._blob(where, row, scope)
        waiting = _listed(row, "unabsorbed_memory_ids", "unabsorbed_directive_ids")
        async for entry in self._memories(waiting, "directive", scope):
            yield entry

    async def _of_shard(self, row: Row) -> AsyncIterator[Entry]:
        where = f"{AGENTS} {row['_id']}"
        if row.get("is_active") is False:
            yield SkippedItem(where, "the shard is not active")
            return
        try:
            agent = self._to.mapping.agent_of(row.get("agent_id"))
            scope = Scope.of_shard(agent, row["shard_name"])
            yield ImportedItem(where, "shard", stream_of(row, scope), scope)
        except Exception:  # noqa: BLE001 - whatever it is, this shard raised it
            yield SkippedItem(where, "its agent or name cannot be used", bad=True)
            return
        if row.get("content"):
            yield self._blob(where, row, scope)
        facts = _listed(row, "facts", "relevant_facts")
        async for entry in self._memories(facts, "fact", Scope.of_agent(agent)):
            yield entry
        async for entry in self._memories(_listed(row, "unabsorbed_memory_ids"), "suggestion", scope):
            yield entry

    def _blob(self, where: str, row: Row, scope: Scope) -> Entry:
        at = row.get("last_updated_at") or row.get("updatedAt") or row["_id"]
        return imported_or_skipped(
            where, partial(self._to.blob, where, row["_id"], row["content"], scope, at)
        )

    async def _memories(self, ids: Sequence[Any], kind: str, scope: Scope) -> AsyncIterator[Entry]:
        """Yield the memories of a kind among these, as memories of the scope, oldest first."""
        for start in range(0, len(ids), PER_QUERY):
            query = {"_id": {"$in": list(ids[start : start + PER_QUERY])}, "memory_type": kind}
            async for row in self._database[SESSIONS].find(query, sort=[("_id", 1)]):
                self._taken[kind] += 1
                yield self._memory(row, scope)

    def _memory(self, row: Row, scope: Scope) -> Entry:
        where, at = f"{SESSIONS} {row['_id']}", row.get("createdAt") or row["_id"]
        make = self._to.fact if row["memory_type"] == "fact" else self._to.reflection
        found = partial(make, where, row["_id"], row.get("content"), scope, at)
        own = scope.kind in ("user", "session")  # what the agent knows was given to all
        if own and row["memory_type"] != "fact" and row.get("source_session_id") is not None:
            found = partial(found, session=row["source_session_id"])
        return imported_or_skipped(where, found)

    async def _episodes(self) -> AsyncIterator[Entry]:
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

    def _of_session(self, rows: Sequence[Row]) -> list[Entry]:
        return [
            imported_or_skipped(f"{SESSIONS} {row['_id']}", partial(self._episode, row, rows)) for row in rows
        ]

    def _episode(self, row: Row, rows: Sequence[Row]) -> ImportedItem:
        """Return a reflection of the session; Unimportable if it names none."""
        if row.get("source_session_id") is None:
            raise Unimportable("it names no session", bad=True)
        users = chain.from_iterable(_listed(other, "related_users") for other in rows)
        audience = tuple(sorted({self._to.mapping.user_of(user) for user in users}))
        session = typed(row["source_session_id"], "session")
        scope = Scope.of_session(self._to.mapping.agent_of(row.get("agent_id")), session, audience)
        found = self._memory(row, scope)
        if isinstance(found, SkippedItem):
            raise Unimportable(found.reason, bad=found.bad)
        return found

    async def _rest(self) -> AsyncIterator[SkippedItem]:
        """Yield how many memories are left out, and why."""
        left_out = {
            "directive": IN_A_BLOB,
            "suggestion": IN_A_BLOB,
            "fact": "no active shard names it",
        }
        for kind, reason in left_out.items():
            count = await self._database[SESSIONS].count_documents({"memory_type": kind}) - self._taken[kind]
            if count > 0:
                yield SkippedItem(f"{SESSIONS}, {kind}s", reason, count=count)
        others = {"memory_type": {"$exists": True, "$nin": ["episode", *left_out]}}
        if count := await self._database[SESSIONS].count_documents(others):
            yield SkippedItem(f"{SESSIONS}, other types", "its type has no counterpart here", count=count)


def _listed(row: Row, *names: str) -> list[Any]:
    """Return what stands in these lists of a document; what is no list has nothing."""
    return [item for name in names if isinstance(listed := row.get(name), list) for item in listed]  # pyright: ignore
