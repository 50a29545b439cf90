"""What forgetting looks for in MongoDB: memory that names a source, messages, blob versions, texts that wait."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import ReadPreference, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.domain.forgetting import Blobs, Resting, Told
from eden_memory.domain.forgotten import Mark
from schemas.provenance import SourceMessage
from schemas.scopes import Scope

Row = dict[str, Any]
MEMORY_FIELDS = ("scope_key", "agent_id", "sources", "formed_at", "version", "absorbed_into")


class MongoForgettingStore:
    """`prefix` stands before the collections' names."""

    def __init__(self, database: AsyncDatabase[Row], prefix: str) -> None:
        self._marks = _majority(database, prefix + "forgotten")
        self._facts = _majority(database, prefix + "facts")
        self._reflections = _majority(database, prefix + "reflections")
        self._snapshots = _majority(database, prefix + "snapshots")
        self._messages = _majority(database, prefix + "messages")
        self._windows = _majority(database, prefix + "windows")

    async def mark(self, marks: Iterable[Mark], event_id: str, at: datetime) -> None:
        """Store marks; a wider version or time takes the place of a narrower one, nothing else changes."""
        writes = [_mark(one, event_id, at) for one in marks]
        if writes:
            await self._marks.bulk_write(writes, ordered=False)

    async def resting_on(self, mark: Mark) -> Sequence[Resting]:
        """Facts and reflections that name what is forgotten as a source, or are it."""
        found: list[Resting] = []
        if mark.kind != "reflection" and (query := _named(mark, "fact")):
            found += [_fact(row) async for row in self._facts.find(query, _fields())]
        if mark.kind != "fact" and (query := _named(mark, "reflection")):
            found += [_reflection(row) async for row in self._reflections.find(query, _fields())]
        return found

    async def messages_of(self, mark: Mark) -> Sequence[Told]:
        """The stored messages that are meant; a deletion that was seen has its tombstone already."""
        field = {"message": "_id", "session": "session_id", "user": "user_id"}.get(mark.kind)
        if field is None or mark.reach == "up_to_version":
            return ()
        query: Row = {field: mark.target, "session_id": {"$ne": None}}
        if mark.until is not None:
            query["time"] = {"$lte": mark.until}
        rows = self._messages.find(query, {"session_id": 1, "version": 1})
        return [Told(row["_id"], row["session_id"], row["version"]) async for row in rows]

    async def blob(self, name: str) -> Blobs:
        """The blob version `KEY@N`, if the scope is known."""
        blobs = Blobs()
        key, _, version = name.rpartition("@")
        row = await self._snapshots.find_one({"_id": key}, {"agent_id": 1})
        if row is not None and version.isdecimal() and int(version) > 0:
            blobs.holds(Scope.of_key(key, row["agent_id"]), int(version))
        return blobs

    async def versions_from(self, blobs: Blobs) -> Sequence[tuple[Scope, int]]:
        """For each scope its blob versions from the lowest named one to the highest ever given."""
        rows = self._snapshots.find({"_id": {"$in": list(blobs.lowest)}}, {"highest_blob_version": 1})
        highest = {row["_id"]: int(row.get("highest_blob_version", 0)) async for row in rows}
        return [
            (blobs.scopes[key], version)
            for key, lowest in blobs.lowest.items()
            for version in range(lowest, max(highest.get(key, 0), lowest) + 1)
        ]

    async def erase_texts(self, message_ids: Iterable[str]) -> None:
        """Erase the texts of messages that wait or stand in closed windows."""
        named = list(message_ids)
        if not named:
            return
        await self._messages.update_many({"_id": {"$in": named}}, {"$set": {"text": None}})
        await self._windows.update_many(
            {"messages.message_id": {"$in": named}},
            {"$set": {"messages.$[one].text": None}},
            array_filters=[{"one.message_id": {"$in": named}}],
        )


def _majority(database: AsyncDatabase[Row], name: str) -> AsyncCollection[Row]:
    return database.get_collection(
        name,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=WriteConcern("majority", j=True),
    )


def _mark(mark: Mark, event_id: str, at: datetime) -> UpdateOne:
    """Reaches only grow: the highest version and the latest time ever asked for hold."""
    row: Row = {"kind": mark.kind, "target": mark.target, "reach": mark.reach}
    grown: Row = {}
    if mark.version is not None:
        grown["version"] = mark.version
    if mark.until is not None:
        grown["until"] = mark.until
    change: Row = {"$setOnInsert": {**row, "event_id": event_id, "forgotten_at": at}}
    if grown:
        change["$max"] = grown
    return UpdateOne({"_id": f"{mark.kind}:{mark.target}/{mark.reach}"}, change, upsert=True)


def _named(mark: Mark, kind: str) -> Row | None:
    """The query for what names it; None where nothing of this kind can."""
    match mark.kind:
        case "message":
            return {"message_ids": mark.target}
        case "session":
            return {"session_ids": mark.target}
        case "user":
            return {"$or": [{"sources.user_id": mark.target}, {"user_id": mark.target}]}
        case "fact" | "reflection":
            return {"_id": mark.target} if mark.kind == kind else None
        case "blob":
            return None


def _fields() -> dict[str, int]:
    return dict.fromkeys(MEMORY_FIELDS, 1)


def _fact(row: Mapping[str, Any]) -> Resting:
    return Resting(
        "fact", row["_id"], _scope(row), _sources(row), row["formed_at"], versions=int(row["version"])
    )


def _reflection(row: Mapping[str, Any]) -> Resting:
    return Resting(
        "reflection",
        row["_id"],
        _scope(row),
        _sources(row),
        row["formed_at"],
        absorbed_into=row.get("absorbed_into"),
    )


def _scope(row: Mapping[str, Any]) -> Scope:
    return Scope.of_key(row["scope_key"], row["agent_id"])


def _sources(row: Mapping[str, Any]) -> tuple[SourceMessage, ...]:
    return tuple(SourceMessage.model_validate(one) for one in row.get("sources", ()))
