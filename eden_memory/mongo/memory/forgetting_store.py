"""What forgetting looks for in MongoDB: memory that names a source, messages, blob versions, texts that wait."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import ReadPreference, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.domain.forgetting.forgetting import Blobs, BlobVersion, Resting, Told
from eden_memory.domain.forgetting.forgotten import Mark
from eden_memory.domain.names import Names
from schemas.envelope import Envelope
from schemas.events import ScopeConsolidated, decode
from schemas.provenance import SourceMessage
from schemas.scopes import Scope

Row = dict[str, Any]
AT_ONCE = 1_000
"""Messages whose texts one update erases: each is looked for in every window that holds one of them."""
MEMORY_FIELDS = ("scope_key", "agent_id", "sources", "formed_at", "version")


class MongoForgettingStore:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._marks = _majority(database, names["forgotten"])
        self._facts = _majority(database, names["facts"])
        self._reflections = _majority(database, names["reflections"])
        self._snapshots = _majority(database, names["snapshots"])
        self._blobs = _majority(database, names["blobs"])
        self._outcomes = _majority(database, names["outcomes"])
        self._messages = _majority(database, names["messages"])
        self._windows = _majority(database, names["windows"])

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
        query: Row = {"$and": [{field: mark.target}, {"session_id": {"$ne": None}}]}
        if mark.until is not None:
            query["time"] = {"$lte": mark.until}
        rows = self._messages.find(query, {"session_id": 1, "version": 1})
        return [Told(row["_id"], row["session_id"], row["version"]) async for row in rows]

    async def blob(self, name: str) -> Blobs:
        """The blob version `KEY@N`, if it was ever given: none is taken before its time."""
        blobs = Blobs()
        if (parsed := BlobVersion.parse(name)) is None:
            return blobs
        key, version = parsed
        if (known := (await self._scopes([key])).get(key)) is None:
            return blobs
        scope, highest = known
        if version <= highest or await self._decided_as(name) is not None:
            blobs.holds(scope, version)
        return blobs

    async def absorbing(self, reflections: Mapping[str, Iterable[str]]) -> Blobs:
        """For each scope the lowest blob version, stored or only decided, that lists any of these reflections.

        The snapshots are read first: what is stored after that was decided before, and is found among the decided.
        """
        wanted = {key: set(names) for key, names in reflections.items()}
        blobs = Blobs()
        for key, (scope, highest) in (await self._scopes(wanted)).items():
            async for event in self._decided(key, highest):
                if wanted[key] & set(event.absorbed):
                    blobs.holds(scope, event.version)
            query: Row = {"scope_key": key, "absorbed": {"$in": list(wanted[key])}, "gone": False}
            async for row in self._blobs.find(query, {"version": 1}):
                blobs.holds(scope, int(row["version"]))
        return blobs

    async def versions_from(self, blobs: Blobs) -> Sequence[BlobVersion]:
        """For each scope its blob versions from the lowest named one on, with those decided from one of them."""
        found: list[BlobVersion] = []
        for key, (scope, highest) in (await self._scopes(blobs.lowest)).items():
            lowest = last = blobs.lowest[key]
            async for event in self._decided(key, highest):
                if event.version == lowest or event.based_on >= lowest:
                    last = event.version
            found += [BlobVersion(scope, one) for one in range(lowest, max(highest, last) + 1)]
        return found

    async def marked_by_others(self, names: Iterable[str], event_id: str) -> set[str]:
        """Those of the blob versions that another Forgotten record has marked."""
        query: Row = {"kind": "blob", "target": {"$in": list(names)}, "event_id": {"$ne": event_id}}
        return {row["target"] async for row in self._marks.find(query, {"target": 1})}

    async def _scopes(self, keys: Iterable[str]) -> dict[str, tuple[Scope, int]]:
        """The scopes with the highest blob version ever stored."""
        fields = {"agent_id": 1, "highest_blob_version": 1}
        rows = self._snapshots.find({"_id": {"$in": list(keys)}}, fields)
        return {
            row["_id"]: (
                Scope.of_key(row["_id"], row["agent_id"]),
                int(row.get("highest_blob_version", 0)),
            )
            async for row in rows
        }

    async def _decided(self, key: str, highest: int) -> AsyncGenerator[ScopeConsolidated]:
        """The blob versions decided above the highest stored one."""
        version = highest
        while (event := await self._decided_as(f"{key}@{(version := version + 1)}")) is not None:
            yield event

    async def _decided_as(self, name: str) -> ScopeConsolidated | None:
        row = await self._outcomes.find_one({"writes": f"blob:{name}"}, {"records": 1})
        for record in (row or {}).get("records", ()):
            envelope = Envelope.of_headers((header, bytes(value)) for header, value in record["h"])
            if envelope.name == ScopeConsolidated.NAME and record["v"] is not None:
                event = decode(envelope.name, envelope.version, bytes(record["v"]))
                return event if isinstance(event, ScopeConsolidated) else None
        return None

    async def erase_texts(self, message_ids: Iterable[str]) -> None:
        """Erase the texts of messages that wait or stand in closed windows."""
        left = list(message_ids)
        while left:
            named, left = left[:AT_ONCE], left[AT_ONCE:]
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
    )


def _scope(row: Mapping[str, Any]) -> Scope:
    return Scope.of_key(row["scope_key"], row["agent_id"])


def _sources(row: Mapping[str, Any]) -> tuple[SourceMessage, ...]:
    return tuple(SourceMessage.model_validate(one) for one in row.get("sources", ()))
