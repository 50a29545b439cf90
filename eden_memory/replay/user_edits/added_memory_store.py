"""The reflections that people added to a memory, and the sentences that they pinned in its blobs."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.mongo.documents import document_of
from eden_memory.names import Names
from eden_memory.replay.user_edits.added_memory import AddedMemory
from eden_memory.replay.user_edits.private_marks import PrivateMark
from eden_memory.replay.user_edits.user_edits import PEOPLE
from eden_memory.schemas.documents import Consolidated, Fact, Reflection
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
ADDED: Row = {"origin": {"$in": ["added", "imported"]}, "retired_at": None}
PROPAGATED = ["user", "group"]
"""Kinds of scopes whose reflections may be propagated."""
BY_PEOPLE = {"$in": sorted(PEOPLE)}
REWORDED: Row = {"$or": [{"command.by": BY_PEOPLE}, {"history.command.by": BY_PEOPLE}]}
REWRITTEN: Row = {"$or": [{"command.action": "edit_blob"}, {"history.command.action": "edit_blob"}]}


class MongoAddedMemory:
    """The reflections and blobs of one namespace that people had a hand in."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        majority = ReadConcern("majority")
        self._reflections = database.get_collection(names[Reflection.COLLECTION], read_concern=majority)
        self._facts = database.get_collection(names[Fact.COLLECTION], read_concern=majority)
        self._blobs = database.get_collection(names[Consolidated.COLLECTION], read_concern=majority)

    async def added(self) -> AsyncGenerator[AddedMemory]:
        """Yield added reflections that stand, and pinned sentences; none of sessions, as no audience is stored."""
        async for row in self._reflections.find(ADDED).sort("_id"):
            reflection = document_of(Reflection, row)
            if reflection.scope != "session":
                yield AddedMemory.of_reflection(reflection)
        async for row in self._blobs.find({"pins.0": {"$exists": True}}).sort("_id"):
            blob = document_of(Consolidated, row)
            for pin in blob.pins if blob.scope != "session" else ():
                yield AddedMemory.of_pin(blob, pin)

    async def held(self, added: Sequence[AddedMemory]) -> set[str]:
        """Return the ids of the commands whose reflection or sentence this memory has, or has had."""
        ids = [name for item in added for name in item.reflection_ids]
        rows = await self._reflections.find({"_id": {"$in": ids}}, {"_id": 1}).to_list()
        there = {row["_id"] for row in rows}
        keys = [item.scope.key for item in added]
        blobs = await self._blobs.find({"_id": {"$in": keys}}, {"pins": 1}).to_list()
        pins = {(row["_id"], pin) for row in blobs for pin in row.get("pins", ())}
        return {
            item.command_id
            for item in added
            if there & {*item.reflection_ids} or (item.scope.key, item.text) in pins
        }

    async def private(self) -> AsyncGenerator[PrivateMark]:
        """Yield what people marked as private, retired or not; formation marks its own again."""
        async for row in self._facts.find({"private": True}).sort("_id"):
            yield PrivateMark.of(document_of(Fact, row))
        async for row in self._reflections.find({"private": True, **REWORDED}).sort("_id"):
            yield PrivateMark.of(document_of(Reflection, row))

    async def unmarked(self, mark: PrivateMark) -> list[Fact | Reflection]:
        """Return what rests on the messages of private memory, may be marked, and is not.

        Reflections of all scopes that are propagated; of a private fact also the facts of its scope.
        """
        resting: Row = {"message_ids": {"$in": list(mark.marked.message_ids)}, "private": {"$ne": True}}
        standing: Row = {**resting, "retired_at": None}
        reflections = self._reflections.find({**standing, "scope": {"$in": PROPAGATED}}).sort("_id")
        found: list[Fact | Reflection] = [document_of(Reflection, row) async for row in reflections]
        if isinstance(mark.marked, Fact):
            facts = self._facts.find({**standing, "scope_key": mark.marked.scope_key}).sort("_id")
            found += [document_of(Fact, row) async for row in facts]
        return found

    async def rewritten(self) -> AsyncGenerator[Scope]:
        """Yield the scope of each formed reflection that people reworded or retired, and of each blob."""
        async for row in self._reflections.find({**REWORDED, "origin": {"$nin": ["added", "imported"]}}):
            said = {version["content"] for version in (row, *row.get("history", ()))}
            if len(said) > 1 or row.get("retired_at") is not None:
                yield Scope.of_key(row["scope_key"], row["agent_id"])
        async for row in self._blobs.find(REWRITTEN):
            yield Scope.of_key(row["scope_key"], row["agent_id"])
