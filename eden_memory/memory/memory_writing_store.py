"""Changes of scopes as one transaction: all of them whole, or nothing."""

from collections.abc import Iterable, Sequence

from pymongo import AsyncMongoClient, DeleteMany, InsertOne, ReplaceOne, UpdateMany
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.memory.memory_loading_store import MemoryCollections
from eden_memory.memory.stored_memory import ScopeWrite
from eden_memory.mongo.documents import Row, row_of
from eden_memory.schemas.documents import Document

Operation = InsertOne[Row] | ReplaceOne[Row] | UpdateMany | DeleteMany


class Changed(Exception):  # noqa: N818 - a direction: read anew
    """Another writer has changed a scope since it was read."""


class MemoryWriting:
    """Writes what follows from a batch, if the snapshots still stand as they were read."""

    def __init__(self, client: AsyncMongoClient[Row], collections: MemoryCollections) -> None:
        self._client, self._of = client, collections

    async def write(self, changes: Sequence[ScopeWrite]) -> None:
        """One change of each scope; Changed, or MongoDB's error, where one of them cannot be written."""
        operations = self._operations(changes)
        async with (
            self._client.start_session() as session,
            await session.start_transaction(
                read_concern=ReadConcern("snapshot"), write_concern=WriteConcern("majority", j=True)
            ),
        ):
            await self._put_snapshots(changes, session)
            for collection, some in operations:
                if some:
                    await collection.bulk_write(some, session=session)

    async def _put_snapshots(self, changes: Sequence[ScopeWrite], session: AsyncClientSession) -> None:
        """First, so that of two writers one gives way before it has written anything else."""
        operations = _snapshots(changes)
        if not operations:
            return
        same = sum(isinstance(one, ReplaceOne) for one in operations)
        if (await self._of.snapshots.bulk_write(operations, session=session)).matched_count != same:
            raise Changed

    def _operations(
        self, changes: Sequence[ScopeWrite]
    ) -> list[tuple[AsyncCollection[Row], list[Operation]]]:
        of = self._of
        return [
            (of.facts, _facts(changes)),
            (of.reflections, _reflections(changes)),
            (of.consolidated, _consolidated(changes)),
            (of.blobs, [_put(one) for change in changes for one in change.versions]),
        ]


def _snapshots(changes: Iterable[ScopeWrite]) -> list[Operation]:
    """New ones inserted, others replaced where nobody has changed them since."""
    operations: list[Operation] = []
    for change in changes:
        if (snapshot := change.snapshot) is None:
            continue
        if change.based_on is None:
            operations.append(InsertOne(row_of(snapshot)))
        else:
            same = {"_id": snapshot.id, "revision": change.based_on}
            operations.append(ReplaceOne(same, row_of(snapshot)))
    return sorted(operations, key=lambda one: isinstance(one, InsertOne))


def _facts(changes: Sequence[ScopeWrite]) -> list[Operation]:
    """What goes, and what lets go of its text, before others take it."""
    return [
        *_remove([name for one in changes for name in one.gone_facts]),
        *_release([name for one in changes for name in one.released]),
        *(_put(fact) for one in changes for fact in one.facts),
    ]


def _reflections(changes: Sequence[ScopeWrite]) -> list[Operation]:
    return [
        *_remove([name for one in changes for name in one.gone_reflections]),
        *(_put(reflection) for one in changes for reflection in one.reflections),
    ]


def _consolidated(changes: Sequence[ScopeWrite]) -> list[Operation]:
    gone = [one.snapshot.id for one in changes if one.blob_gone and one.snapshot is not None]
    return [*_remove(gone), *(_put(one.blob) for one in changes if one.blob)]


def _put(document: Document) -> Operation:
    row = row_of(document)
    return ReplaceOne({"_id": row["_id"]}, row, upsert=True)


def _remove(names: Sequence[str]) -> list[Operation]:
    return [DeleteMany({"_id": {"$in": list(names)}})] if names else []


def _release(names: Sequence[str]) -> list[Operation]:
    """Out of the unique index of active texts, before others enter it."""
    return [UpdateMany({"_id": {"$in": list(names)}}, {"$set": {"active": False}})] if names else []
