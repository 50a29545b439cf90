"""Scopes in MongoDB as export and import see them: what they hold, whose they are, which numbers are used up."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice
from typing import Any

from pymongo import ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.formation.propagation_rules import judged
from eden_memory.memory.memory_batch import Memory
from eden_memory.mongo.shared_reads import shared_writes
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact, Reflection, Snapshot, StoredBlob
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.stages.outcome import Reread, StageOutcome
from eden_memory.stages.outcome_store import MongoLedger

Database = AsyncDatabase[dict[str, Any]]
Owned = set[tuple[type[Memory], str]]
STAGE = "import"
"""In the ledger; no stage has this name."""
AT_ONCE = 500


async def forgotten_blobs(database: Database, names: Names) -> list[tuple[str, int]]:
    """Return scope key and number of every blob version that was forgotten, in order."""
    blobs = database[names[StoredBlob.COLLECTION]].find({"gone": True}, {"scope_key": 1, "version": 1})
    return sorted([(row["scope_key"], row["version"]) async for row in blobs])


async def owned_elsewhere(
    database: Database, names: Names, owners: Mapping[tuple[type[Memory], str], str]
) -> Owned:
    """Return those of the facts and reflections that belong to another scope here than the given one."""
    found: Owned = set()
    for kind, document in ((FactChanged, Fact), (ReflectionFormed, Reflection)):
        ids = [name for asked, name in owners if asked is kind]
        rows = database[names[document.COLLECTION]].find({"_id": {"$in": ids}}, {"scope_key": 1})
        found |= {(kind, row["_id"]) async for row in rows if row["scope_key"] != owners[kind, row["_id"]]}
    return found


class ScopeClaims:
    """The scopes that an export file may fill, each claimed in the ledger before its first record is published.

    A claim takes the numbers of the file's blob versions, as a decision does: consolidation waits until the writer
    has them all, and the claim fails if consolidation has used one of the numbers. Claims are kept, so that a
    repeated import of the file recognises its scopes.
    """

    def __init__(self, database: Database, names: Names, export_id: str) -> None:
        self._ledger, self._export = MongoLedger(database, names), export_id
        majority = ReadConcern("majority")
        self._writes = shared_writes(database.get_collection(names["outcomes"], read_concern=majority))
        self._snapshots, self._blobs = (
            database.get_collection(
                names[kind.COLLECTION],
                read_preference=ReadPreference.PRIMARY,
                read_concern=ReadConcern("majority"),
            )
            for kind in (Snapshot, StoredBlob)
        )

    async def held(self, keys: Collection[str]) -> set[str]:
        """Return the scopes that hold memory, or once did, that is not from this file."""
        mine = await self._ledger.decided(STAGE, [self._member(key) for key in keys])
        others = [key for key in keys if self._member(key) not in mine]
        known: list[str] = await self._snapshots.distinct("_id", {"_id": {"$in": others}})
        return {*known, *await self._blobs.distinct("scope_key", {"scope_key": {"$in": others}})}

    async def claim(self, highest: Mapping[str, int]) -> set[str]:
        """Claim scopes, each with its highest blob version (0: none); return those that the file may fill."""
        left, mine = iter(highest), set[str]()
        while some := list(islice(left, AT_ONCE)):
            free = set(some) - await self.held(some)
            claims = await asyncio.gather(*(self._claimed(key, highest[key]) for key in free))
            mine |= {key for key, claimed in zip(free, claims, strict=True) if claimed}
        return mine

    async def _claimed(self, key: str, highest: int) -> bool:
        writes = (f"blob:{key}@{number}" for number in range(1, highest + 1))
        try:
            await self._ledger.store(self._outcome(key, writes))
        except Reread:
            return False
        return True

    async def mark_judged(self, reflection_ids: Sequence[str]) -> None:
        """Note that propagation has judged reflections; Reread where it is judging one of them just now."""
        for start in range(0, len(reflection_ids), AT_ONCE):
            writes = [judged(name) for name in reflection_ids[start : start + AT_ONCE]]
            known = await self._writes.get(writes)
            if new := [write for write in writes if write not in known]:
                name = blake2b("\x00".join(new).encode(), digest_size=16).hexdigest()
                await self._ledger.store(self._outcome(f"judged/{name}", new))

    async def published(self, number: int) -> bool:
        """Return whether everything up to a line of the file was published before."""
        return bool(await self._ledger.decided(STAGE, [self._member(str(number))]))

    async def note_published(self, number: int) -> None:
        """Note that everything up to a line of the file is published."""
        await self._ledger.store(self._outcome(str(number)))

    def _member(self, name: str) -> str:
        return f"{self._export}/{name}"

    def _outcome(self, name: str, writes: Iterable[str] = ()) -> StageOutcome:
        return StageOutcome(
            key=f"{STAGE}/{self._member(name)}",
            stage=STAGE,
            members=(self._member(name),),
            writes=tuple(writes),
            records=(),
            topic=ScopeConsolidated.NAME,
            partition=0,
            offset=0,
            decided_at=datetime.now(UTC),
        )
