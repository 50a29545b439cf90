"""Snapshots of scopes, with or without memory from users, and those that this process wrote last."""

import re
import sys
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Set
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from pymongo import ReadPreference
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.access.visible import ALONE, WIDE, WITHOUT_USERS, in_force, private_keys
from eden_memory.directory.participants import BEGINS, OF_SHARD
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.errors import EdenError
from eden_memory.memory.memory_index_store import stored_sharing
from eden_memory.mongo.documents import document_of
from eden_memory.mongo.transactions import SharedReads
from eden_memory.names import Names
from eden_memory.schemas.documents import Consolidated, Fact, Reflection, SessionState, Snapshot
from eden_memory.schemas.ids import encode
from eden_memory.schemas.scopes import Scope, SharingMode

MOST_BYTES = 32_000_000
SNAPSHOT_BYTES, ENTRY_BYTES = 4_000, 1_300
"""Memory of a snapshot, and of each fact and reflection in it besides its text, roughly."""
OLDEST_SHARE = 1 / 8


class SnapshotCache:
    """Snapshots by scope key, up to `most_bytes` by an estimate."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._snapshots: dict[str, tuple[Snapshot, int]] = {}
        self._bytes, self._most_bytes = 0, most_bytes
        self._dice = Random(0)  # noqa: S311 - nothing secret

    def among(self, keys: Iterable[str]) -> dict[str, Snapshot]:
        """Return the cached snapshots of some scopes, whether or not they are still current."""
        return {key: self._snapshots[key][0] for key in keys if key in self._snapshots}

    def add(self, snapshot: Snapshot) -> None:
        """Add a snapshot that is committed.

        Where there is no room for a scope that is new here, it goes again, and at times the oldest in its place: a
        rebuild takes scopes in turns, so that the oldest is the one whose turn comes next, but one that is never
        written again must go at last. For a scope that was here already, the oldest go.
        """
        before = self._snapshots.pop(snapshot.id, None)
        size = _bytes_of(snapshot)
        self._snapshots[snapshot.id] = snapshot, size
        self._bytes += size - (before[1] if before else 0)
        while self._bytes > self._most_bytes:
            oldest = before is not None or self._dice.random() < OLDEST_SHARE
            gone = next(iter(self._snapshots)) if oldest else next(reversed(self._snapshots))
            self._bytes -= self._snapshots.pop(gone)[1]


def _bytes_of(snapshot: Snapshot) -> int:
    entries = (*snapshot.buffer, *snapshot.recent_facts, *snapshot.lasting_facts)
    texts = sum(sys.getsizeof(entry.content) for entry in entries) + sys.getsizeof(snapshot.blob)
    return SNAPSHOT_BYTES + ENTRY_BYTES * len(entries) + texts


Row = dict[str, Any]
GIVEN_TO_ALL = re.compile(rf"^{re.escape(encode(BEGINS))}((?!%3A).)+(%3A{re.escape(OF_SHARD)}.+)?$")
"""Sessions of texts that were added for no user (eden_memory.directory.participants.given_to_all)."""


class MongoSnapshots:
    """Reads the collection `snapshots`; look-ups of the same moment share a query."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        name = names[Snapshot.COLLECTION]
        self._snapshots = database.get_collection(name, read_concern=ReadConcern("majority"))
        self._reads = SharedReads(self._read)
        self._hidden = MongoHidden(database, names)

    async def snapshots(self, scope_keys: Iterable[str]) -> dict[str, Snapshot]:
        """Return the snapshots that exist, in one query."""
        return await self._reads.get(scope_keys)

    async def without_users(self, scope_keys: Iterable[str], private: Collection[str]) -> dict[str, Snapshot]:
        """Return the same, the `private` ones without memory that users' messages led to."""
        return await self._hidden.taken_out(await self.snapshots(scope_keys), private)

    async def _read(self, keys: list[str]) -> dict[str, Snapshot]:
        found = self._snapshots.find({"_id": {"$in": keys}})
        return {row["_id"]: document_of(Snapshot, row) async for row in found}


def of_users(keys: Iterable[str]) -> Row:
    """Return a query for memory of these scopes that rests on messages hidden by private sharing."""
    groups, others = list[str](), list[str]()
    for key in keys:
        (groups if key.startswith("group:") else others).append(key)
    return {"$or": [_resting(groups, {"$in": list(ALONE)}), _resting(others, {"$ne": WITHOUT_USERS})]}


def _resting(keys: list[str], participants: Row) -> Row:
    source: Row = {"participants": participants, "session_id": {"$not": GIVEN_TO_ALL}}
    judged: Row = {"origin": {"$ne": "propagated"}}
    return {"scope_key": {"$in": keys}, "sources": {"$elemMatch": source}, **judged}


def _absorbed(keys: list[str]) -> Row:
    """Return a query for what :func:`of_users` finds, or what has one of these ids, in blobs."""
    return {"absorbed": True, "$or": [of_users(keys), {"_id": {"$in": keys}}]}


def without(keys: Iterable[str]) -> Row:
    """Return a query for everything but what :func:`of_users` finds, or what has one of these ids; empty for none."""
    private = list(keys)
    return {"$nor": [of_users(private), {"_id": {"$in": private}}]} if private else {}


@dataclass(frozen=True, slots=True)
class HiddenItem:
    """A hidden fact, reflection or blob."""

    kind: Literal["fact", "reflection", "blob"]
    id: str
    scope: Scope
    content: str


class MongoHidden:
    """Finds hidden memory of one namespace; `chosen`: the mode that this process is set to.

    `learning`: the agents whose own document says that they learn from their users; :meth:`items` asks it.
    """

    def __init__(
        self,
        database: AsyncDatabase[Row],
        names: Names,
        chosen: SharingMode | None = None,
        learning: Collection[str] = (),
    ) -> None:
        self._database, self._names = database, names
        self._chosen: SharingMode | None = chosen
        self._learning = learning

    async def sharing(self) -> SharingMode:
        """Return the mode that readers apply, as it is stored now.

        Contexts keep what they read while they hear of changes, for up to 60 s: a switch may reach them that late.
        """
        return in_force(await stored_sharing(self._database, self._names), self._chosen)

    async def taken_out(self, snapshots: Mapping[str, Snapshot], keys: Iterable[str]) -> dict[str, Snapshot]:
        """Return the snapshots, without memory of these ids, and those of these scopes without what users said.

        A blob that has absorbed any of it is left out; the facts of its scope stay.
        """
        hidden = frozenset(keys)
        if not hidden:
            return dict(snapshots)
        private = [key for key in hidden if key in snapshots and _says_something(snapshots[key])]
        shots = [snapshots[key] for key in private]
        recent = [recent_fact.fact_id for shot in shots for recent_fact in shot.recent_facts]
        waiting = [reflection.reflection_id for shot in shots for reflection in shot.buffer]
        ids = hidden - snapshots.keys()
        with_blob = [*ids, *(shot.scope_key for shot in shots if shot.blob is not None)]
        facts, reflections, blobs = await self._private(private, recent, waiting, with_blob)
        return {
            key: _without(shot, hidden | facts, hidden | reflections, blobs)
            for key, shot in snapshots.items()
        }

    async def blobs(self, keys: Iterable[str]) -> set[str]:
        """Return the scopes whose blob has absorbed a hidden reflection, or one of these ids."""
        if not (asked := list(keys)):
            return set()
        return set(await self._of(Reflection.COLLECTION).distinct("scope_key", _absorbed(asked)))

    async def deleted_just_now(self, *, forgets: bool = True) -> dict[str, str]:
        """Return the messages that were deleted and may be written again, or that are being erased.

        With each, the version up to which memory of it is hidden. `forgets`: whether memory forgets what the
        application deletes; what an edit changes is always forgotten.
        """
        pending: Row = {"deletions.message_id": {"$gt": ""}, "deletions": {"$exists": True}}
        found: dict[str, str] = {}
        async for row in self._of(SessionState.COLLECTION).find(pending, {"deletions": 1}):
            for deletion in row["deletions"]:
                if forgets or deletion.get("edited"):
                    name, version = deletion["message_id"], deletion["version"]
                    found[name] = max(version, found.get(name, version))
        return found

    async def resting_on(self, messages: Mapping[str, str], keys: Collection[str]) -> frozenset[str]:
        """Return the ids of memory of these scopes that rests on any of the messages, up to its version."""
        if not messages:
            return frozenset()
        resting: Row = {"message_ids": {"$in": list(messages)}, "scope_key": {"$in": list(keys)}}
        fields = {"sources.message_id": 1, "sources.version": 1}
        found = set[str]()
        for collection in (Fact.COLLECTION, Reflection.COLLECTION):
            async for row in self._of(collection).find(resting, fields):
                sources = ((source["message_id"], source["version"]) for source in row["sources"])
                if any(version <= messages.get(name, "") for name, version in sources):
                    found.add(row["_id"])
        return frozenset(found)

    async def scopes_of_session(self, session_id: str) -> set[str]:
        """Return the scopes of memory that rests on a session's messages."""
        resting: Row = {"session_ids": session_id}
        facts = await self._of(Fact.COLLECTION).distinct("scope_key", resting)
        return {*facts, *await self._of(Reflection.COLLECTION).distinct("scope_key", resting)}

    async def items(self) -> AsyncGenerator[HiddenItem]:
        """Yield all that is hidden at this moment: facts that are not retired, reflections, blobs."""
        scopes = {scope.key: scope for scope in await self._private_scopes()}
        active: Row = {"active": True, **of_users(scopes)}
        async for row in self._listed(Fact.COLLECTION, active):
            yield HiddenItem("fact", row["_id"], scopes[row["scope_key"]], row["content"])
        async for row in self._listed(Reflection.COLLECTION, of_users(scopes)):
            yield HiddenItem("reflection", row["_id"], scopes[row["scope_key"]], row["content"])
        blobs = list(await self.blobs(scopes))
        async for row in self._listed(Consolidated.COLLECTION, {"_id": {"$in": blobs}}):
            yield HiddenItem("blob", f"{row['_id']}@{row['version']}", scopes[row["_id"]], row["content"])

    def _listed(self, collection: str, query: Row) -> Any:
        return self._of(collection).find(query, {"scope_key": 1, "content": 1, "version": 1}).sort("_id")

    async def _private_scopes(self) -> list[Scope]:
        streams, sharing = MongoStreams(self._database, self._names), await self.sharing()
        found: list[Scope] = []
        for scope in await wide_scopes(self._of(Snapshot.COLLECTION)):
            learns = scope.agent_id in self._learning
            if private_keys([scope], await streams.of(scope.agent_id), sharing, learns=learns):
                found.append(scope)
        return found

    async def _private(
        self, keys: list[str], facts: list[str], reflections: list[str], with_blob: list[str]
    ) -> tuple[set[str], set[str], set[str]]:
        """Return which of these facts and reflections are hidden, and of which scopes the blob: in one command."""
        private = of_users(keys)
        parts: list[tuple[str, list[Row]]] = []
        for kind, collection, ids in (
            ("fact", Fact.COLLECTION, facts),
            ("reflection", Reflection.COLLECTION, reflections),
        ):
            found = [{"$match": {"_id": {"$in": ids}, **private}}, {"$project": {kind: "$_id"}}]
            parts += [(collection, found)] if ids else []
        if with_blob:
            scopes = [{"$group": {"_id": "$scope_key"}}, {"$project": {"blob": "$_id"}}]
            parts.append((Reflection.COLLECTION, [{"$match": _absorbed(with_blob)}, *scopes]))
        if not parts:
            return set(), set(), set()
        (first, steps), *others = parts
        unions = [{"$unionWith": {"coll": self._names[name], "pipeline": more}} for name, more in others]
        rows = await (await self._of(first).aggregate([*steps, *unions])).to_list()
        facts_found, reflections_found, blobs = (
            {row[kind] for row in rows if kind in row} for kind in ("fact", "reflection", "blob")
        )
        return facts_found, reflections_found, blobs

    def _of(self, collection: str) -> Any:
        return self._database.get_collection(
            self._names[collection],
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )


async def wide_scopes(snapshots: AsyncCollection[Row]) -> list[Scope]:
    """Return the scopes of this collection that more than one user may see, by key."""
    rows = snapshots.find({"scope": {"$in": sorted(WIDE)}}, {"agent_id": 1}).sort("_id")
    return [Scope.of_key(row["_id"], row["agent_id"]) async for row in rows]


async def refuse_unhiding(database: AsyncDatabase[Row], names: Names, chosen: SharingMode | None) -> None:
    """Raise EdenError where agents are to learn again, and memory is hidden that they would then show at once."""
    if chosen in (None, "private") or await stored_sharing(database, names) != "private":
        return
    async for _ in MongoHidden(database, names, "private").items():
        raise EdenError(
            f"memory of an earlier time is hidden, and EDEN_MEMORY_SHARING={chosen} would show it again",
            "Look at it with `eden sharing list`, and end it with `eden sharing retire` while a system runs that is "
            "set to private; then set it again.",
        )


def _says_something(shot: Snapshot) -> bool:
    return bool(shot.recent_facts or shot.buffer or shot.blob)


def _without(shot: Snapshot, facts: Set[str], reflections: Set[str], blobs: Set[str]) -> Snapshot:
    if not (facts or reflections or blobs):
        return shot
    return shot.model_copy(
        update={
            "recent_facts": tuple(fact for fact in shot.recent_facts if fact.fact_id not in facts),
            "lasting_facts": tuple(fact for fact in shot.lasting_facts if fact.fact_id not in facts),
            "buffer": tuple(
                reflection for reflection in shot.buffer if reflection.reflection_id not in reflections
            ),
            "blob": None if shot.scope_key in blobs else shot.blob,
        }
    )
