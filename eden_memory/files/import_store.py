"""Read the stored memories that an import meets, and write its requests to `memory_inbox` and its streams."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from pymongo import UpdateOne
from pymongo.errors import BulkWriteError

from eden_memory.directory.stream_store import MongoStreams
from eden_memory.files.import_items import ImportedItem, Request
from eden_memory.forgetting.mark_store import MongoBatchMarks
from eden_memory.forgotten import Marks
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.processors.pipeline import CONSOLIDATION, FACT_DEDUP
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import Access, Fact, InboxFactCommand, Message, Snapshot, Stream
from eden_memory.schemas.scopes import Audience, ScopeKind
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
        self._access = at.database[names[Access.COLLECTION]]
        self._facts = at.database[names[Fact.COLLECTION]]
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

    async def raise_words(self, agent_id: str, scope: ScopeKind, words: int) -> None:
        """Raise the word limit of an agent's scope; `words` is above its default."""
        name = f"{agent_id}/{scope}"
        stream = Stream(_id=name, agent_id=agent_id, scope=scope)
        await self.put_stream(stream)
        await self._streams.update_one(_of(stream), {"$max": {"word_limit": words}})

    async def count_accesses(self, counts: Mapping[str, tuple[int, datetime]]) -> int:
        """Store how often facts were found elsewhere, of those that are here; return how many are."""
        query = {"_id": {"$in": list(counts)}}
        here = [row["_id"] async for row in self._facts.find(query, {"_id": 1})]
        names = ("access_count", "last_accessed_at")
        writes = [
            UpdateOne({"_id": name}, {"$max": dict(zip(names, counts[name], strict=True))}, upsert=True)
            for name in here
        ]
        if writes:
            await self._access.bulk_write(writes, ordered=False)
        return len(here)

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
