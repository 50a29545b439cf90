"""Which versions of blobs have been decided, applied or not: the ledger's unique `writes` say it."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from pydantic import ValidationError
from pymongo import ReadPreference
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.directory.participants import Streams
from eden_memory.formation.consolidation_rules import due
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.shared_reads import shared_writes
from eden_memory.names import Names
from eden_memory.schemas.documents import Outcome, Snapshot, Stream
from eden_memory.schemas.scopes import Scope
from eden_memory.scope_limits import STANDARD, FormationLimits, limits_of

log = LibraryLogger()
Document = dict[str, Any]


class MongoBlobsDecided:
    """Reads `outcomes` (eden_memory.formation.consolidation_rules.BlobsDecided)."""

    def __init__(self, database: AsyncDatabase[Document], names: Names) -> None:
        outcomes = database.get_collection(
            names[Outcome.COLLECTION],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )
        self._reads = shared_writes(outcomes)

    async def blob_decided(self, scope_key: str, version: int) -> bool:
        """Whether this version of a scope's blob is decided."""
        return bool(await self._reads.get([f"blob:{scope_key}@{version}"]))


async def scopes_due(
    database: AsyncDatabase[Document], names: Names, streams: Streams, limits: FormationLimits = STANDARD
) -> AsyncGenerator[Snapshot]:
    """Scopes that are to consolidate now and may have no event left that says so; one pass over the snapshots."""
    found = database[names[Snapshot.COLLECTION]].find({"$or": await _candidates(database, names, limits)})
    async for row in found:
        try:
            snapshot = Snapshot.model_validate(row, strict=False, extra="ignore")
            scope = Scope.of_key(snapshot.scope_key, snapshot.agent_id, snapshot.audience)
        except (ValidationError, ValueError):
            log.warning("a snapshot cannot be read", scope=str(row.get("_id")))
            continue
        if due(snapshot, limits_of(scope, await streams.of(scope.agent_id), limits)) is not None:
            yield snapshot


async def _candidates(
    database: AsyncDatabase[Document], names: Names, limits: FormationLimits
) -> list[Mapping[str, Any]]:
    """At or above the lowest threshold that any scope of its kind has; closed, or with a blob taken back."""
    lowest = {kind: one.threshold for kind, one in limits.scopes.items()}
    own = database[names[Stream.COLLECTION]].find(
        {"threshold": {"$type": "number"}}, {"scope": 1, "threshold": 1}
    )
    async for row in own:
        if row.get("scope") in lowest:
            lowest[row["scope"]] = min(lowest[row["scope"]], max(int(row["threshold"]), 1))
    return [
        *({"scope": kind, f"buffer.{least - 1}": {"$exists": True}} for kind, least in lowest.items()),
        {"closed": True, "buffer.0": {"$exists": True}},
        {"$expr": {"$gt": ["$highest_blob_version", "$blob_version"]}, "buffer.0": {"$exists": True}},
    ]
