"""Read the stored memories of an import and of the previous system, and write requests to `memory_inbox`.

A user's blob stays a blob; directives that it has not absorbed become reflections. Each active shard becomes a stream
with its blob, its facts become facts of the agent, and suggestions that it has not absorbed become its reflections.
Episodes become reflections of their session.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from pydantic import TypeAdapter
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, ConfigurationError, PyMongoError

from eden_memory.directory.stream_store import MongoStreams
from eden_memory.errors import EdenError, Invalid
from eden_memory.files.import_items import (
    Entry,
    ImportedAs,
    ImportedItem,
    Request,
    SkippedItem,
    Unimportable,
    imported_or_skipped,
    stream_of,
)
from eden_memory.forgetting.mark_store import MongoBatchMarks
from eden_memory.forgotten import Marks
from eden_memory.mongo.application_ids import typed
from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.mongo.lenient_decoding import LENIENT
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.processors.pipeline import CONSOLIDATION, FACT_DEDUP
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import InboxFactCommand, Message, Snapshot, Stream
from eden_memory.schemas.scopes import Audience, Scope
from eden_memory.source.source_mapping import event_id_of
from eden_memory.stages.outcome_store import MongoLedger

Row = dict[str, Any]

AUDIENCE: TypeAdapter[Audience] = TypeAdapter(Audience)

AT_ONCE = 1_000
"""Ids of one query, and requests of one write."""


class MongoImports:
    """Reads and writes for one import; ids are typed."""

    def __init__(self, at: Installation) -> None:
        names = at.settings.names
        self._inbox = at.source[names[InboxFactCommand.COLLECTION]]
        self._ledger = MongoLedger(at.database, names)
        self._messages = at.database[names[Message.COLLECTION]]
        self._snapshots = at.database[names[Snapshot.COLLECTION]]
        self._streams = at.database[names[Stream.COLLECTION]]
        self.streams = MongoStreams(at.database, names)
        self._marks = MongoBatchMarks(at.database, names)

    async def taken(self, items: Sequence[ImportedItem]) -> tuple[set[str], set[str]]:
        """Return the names of the items that memory has decided or recorded, and of those that wait in the inbox."""
        found: set[str] = set()
        waiting: set[str] = set()
        for start in range(0, len(items), AT_ONCE):
            part = items[start : start + AT_ONCE]
            commands = [item.name for item in part if item.kind in ("fact", "reflection", "blob")]
            messages = [item.name for item in part if item.kind == "message"]
            found |= await self.decided(commands)
            waiting |= await self.waiting([*commands, *messages])
            found |= {row["_id"] async for row in self._messages.find({"_id": {"$in": messages}}, {"_id": 1})}
            for item in part:
                if isinstance(item.request, Stream) and await self._streams.find_one(_of(item.request)):
                    found.add(item.name)
        return found, waiting

    async def decided(self, names: Sequence[str]) -> set[str]:
        """Return the commands that are decided."""
        by_event = {event_id_of(name): name for name in names}
        found: set[str] = set()
        for stage in (FACT_DEDUP, CONSOLIDATION):
            found |= await self._ledger.decided(stage, list(by_event))
        return {by_event[event] for event in found}

    async def waiting(self, names: Collection[str]) -> set[str]:
        """Return the requests that the tailer has not taken yet."""
        query = {"_id": {"$in": [decode_id(name) for name in names]}}
        return (
            {encode_id(row["_id"]) async for row in self._inbox.find(query, {"_id": 1})} if names else set()
        )

    async def unformed(self, session: str) -> bool:
        """Return whether messages of a session are recorded and wait for their window."""
        query = {"session_id": encode_id(session), "formation_id": None, "text": {"$ne": None}}
        return await self._messages.find_one(query, {"_id": 1}) is not None

    async def blobs(self, scope_keys: Iterable[str]) -> set[str]:
        """Return the scopes that have a blob."""
        query = {"_id": {"$in": list(scope_keys)}, "blob_version": {"$gt": 0}}
        return {row["_id"] async for row in self._snapshots.find(query, {"_id": 1})}

    async def audiences(self, scope_keys: Iterable[str]) -> dict[str, Audience]:
        """Return who may see the memory of these session scopes, of those that have any."""
        query: Row = {"_id": {"$in": list(scope_keys)}, "audience": {"$nin": [None, []]}}
        rows = self._snapshots.find(query, {"audience": 1})
        return {row["_id"]: AUDIENCE.validate_python(row["audience"]) async for row in rows}

    async def marks(self, named: Iterable[tuple[str, str]]) -> Marks:
        """Return the marks of what was forgotten among (kind, id) pairs."""
        return await self._marks.among(named)

    async def put_stream(self, stream: Stream) -> None:
        """Store a stream if its agent and scope have none."""
        await self._streams.update_one(_of(stream), {"$setOnInsert": stream.stored()}, upsert=True)

    async def write(self, requests: Sequence[Request]) -> None:
        """Write requests in order; those that already wait stay as they are."""
        left = list(requests)
        while left:
            part = left[:AT_ONCE]
            try:
                await self._inbox.insert_many([request.model_dump(exclude_none=True) for request in part])
                left = left[AT_ONCE:]
            except BulkWriteError as error:
                only_duplicates(error)
                (failed,) = error.details["writeErrors"]
                left = left[failed["index"] + 1 :]


def _of(stream: Stream) -> Row:
    return {"agent_id": stream.agent_id, "scope": stream.scope, "shard": stream.shard}


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
        own = scope.kind in ("user", "session")  # what the agent knows belonged to all users
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
    """Return the contents of these lists of a document; a field that is no list has none."""
    return [item for name in names if isinstance(listed := row.get(name), list) for item in listed]  # pyright: ignore
