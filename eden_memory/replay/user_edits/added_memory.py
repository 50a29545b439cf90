"""Other memory that people gave: reflections, pinned sentences and private marks, as commands to another memory."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.formation.memory_commands import added_reflection_id
from eden_memory.mongo.documents import document_of
from eden_memory.names import Names
from eden_memory.replay.user_edits.user_edits import COMMAND, PEOPLE
from eden_memory.schemas.documents import Consolidated, Fact, Reflection
from eden_memory.schemas.events import FactCommanded, MemoryCommanded
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
Marked = Fact | Reflection
ADDED: Row = {"origin": {"$in": ["added", "imported"]}, "retired_at": None}
PROPAGATED = ["user", "group"]
"""Kinds of scopes whose reflections may be propagated."""
BY_PEOPLE = {"$in": sorted(PEOPLE)}
REWORDED: Row = {"$or": [{"command.by": BY_PEOPLE}, {"history.command.by": BY_PEOPLE}]}
REWRITTEN: Row = {"$or": [{"command.action": "edit_blob"}, {"history.command.action": "edit_blob"}]}


@dataclass(frozen=True, slots=True)
class AddedMemory:
    """The command that gives a reflection, as it reads now, or a pinned sentence to another memory."""

    command: MemoryCommanded
    reflection_ids: tuple[str, ...] = ()
    """Of a reflection: its own, the one that the command leads to, and the one that it was made from itself."""

    @classmethod
    def of_reflection(cls, reflection: Reflection) -> "AddedMemory":
        """Return a reflection that people added."""
        command_id, asked = f"{COMMAND}{reflection.id}", reflection.command
        versions = (reflection, *reflection.history)
        first = next((version.command for version in versions if version.version == 1), None)
        given = first.command_id.removeprefix(COMMAND) if first is not None else ""
        command = MemoryCommanded(
            command_id=command_id,
            scope=Scope.of_key(reflection.scope_key, reflection.agent_id),
            action="add_reflection",
            text=reflection.content,
            private=reflection.private,
            sources=reflection.sources,
            by="application" if asked is None else asked.by,
            asked_by=None if asked is None else asked.asked_by,
            reason=None if asked is None else asked.reason,
            asked_at=reflection.formed_at,
            said_at=reflection.said_at,
        )
        return cls(command, (reflection.id, added_reflection_id(command_id), given))

    @classmethod
    def of_pin(cls, blob: Consolidated, sentence: str) -> "AddedMemory":
        """Return a sentence that a blob keeps."""
        name = blake2b(f"{blob.scope_key}\x00{sentence}".encode(), digest_size=16).hexdigest()
        asked = blob.command
        command = MemoryCommanded(
            command_id=f"{COMMAND}pin/{name}",
            scope=Scope.of_key(blob.scope_key, blob.agent_id),
            action="pin",
            text=sentence,
            by="application" if asked is None else asked.by,
            asked_by=None if asked is None else asked.asked_by,
            reason=None if asked is None else asked.reason,
            asked_at=blob.last_consolidated_at,
        )
        return cls(command)


class AddedMemoryStore:
    """The reflections and blobs of one namespace that people had a hand in, and its private memory."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        majority = ReadConcern("majority")
        self._reflections, self._facts, self._blobs = (
            database.get_collection(names[kind.COLLECTION], read_concern=majority)
            for kind in (Reflection, Fact, Consolidated)
        )

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
        keys = [item.command.scope.key for item in added]
        blobs = await self._blobs.find({"_id": {"$in": keys}}, {"pins": 1}).to_list()
        pins = {(row["_id"], pin) for row in blobs for pin in row.get("pins", ())}
        return {
            item.command.command_id
            for item in added
            if there & {*item.reflection_ids} or (item.command.scope.key, item.command.text) in pins
        }

    async def private(self) -> AsyncGenerator[Marked]:
        """Yield what people marked as private, retired or not; formation marks its own again."""
        async for row in self._facts.find({"private": True}).sort("_id"):
            yield document_of(Fact, row)
        async for row in self._reflections.find({"private": True, **REWORDED}).sort("_id"):
            yield document_of(Reflection, row)

    async def unmarked(self, marked: Marked) -> list[Marked]:
        """Return what rests on the messages of private memory, may be marked, and is not.

        Reflections of all scopes that are propagated; of a private fact also the facts of its scope.
        """
        standing: Row = {
            "message_ids": {"$in": list(marked.message_ids)},
            "private": {"$ne": True},
            "retired_at": None,
        }
        reflections = self._reflections.find({**standing, "scope": {"$in": PROPAGATED}}).sort("_id")
        found: list[Marked] = [document_of(Reflection, row) async for row in reflections]
        if isinstance(marked, Fact):
            facts = self._facts.find({**standing, "scope_key": marked.scope_key}).sort("_id")
            found += [document_of(Fact, row) async for row in facts]
        return found

    async def rests_on(self, marked: Marked) -> bool:
        """Tell whether anything rests on the messages of private memory."""
        query = {"message_ids": {"$in": list(marked.message_ids)}}
        collections = self._facts, self._reflections
        return any([await of.find_one(query, {"_id": 1}) is not None for of in collections])

    async def rewritten(self) -> AsyncGenerator[Scope]:
        """Yield the scope of each formed reflection that people reworded or retired, and of each blob."""
        async for row in self._reflections.find({**REWORDED, "origin": {"$nin": ["added", "imported"]}}):
            said = {version["content"] for version in (row, *row.get("history", ()))}
            if len(said) > 1 or row.get("retired_at") is not None:
                yield Scope.of_key(row["scope_key"], row["agent_id"])
        async for row in self._blobs.find(REWRITTEN):
            yield Scope.of_key(row["scope_key"], row["agent_id"])


def stands_by_itself(marked: Marked) -> bool:
    """Tell whether private memory is in force, and no addition of people: those are added with their mark."""
    if marked.retired_at is not None or not marked.message_ids:
        return False
    if isinstance(marked, Reflection):
        return marked.origin not in ("added", "imported")
    commands = (version.command for version in (marked, *marked.history))
    return not any(command is not None and command.action == "add" for command in commands)


def mark_commands(marked: Marked, unmarked: Iterable[Marked]) -> list[FactCommanded | MemoryCommanded]:
    """Return the commands that mark these, too: the same ones, however often they are made."""
    asked = marked.command
    common: Row = {
        "private": True,
        "by": asked.by if asked is not None and asked.by in PEOPLE else "application",
        "asked_by": None if asked is None else asked.asked_by,
        "asked_at": (None if asked is None else asked.asked_at) or marked.formed_at,
    }
    commands: list[FactCommanded | MemoryCommanded] = []
    for found in unmarked:
        name, scope = (
            f"{COMMAND}private/{marked.id}/{found.id}",
            Scope.of_key(found.scope_key, found.agent_id),
        )
        if isinstance(found, Fact):
            commands.append(
                FactCommanded(command_id=name, scope=scope, action="mark", fact_id=found.id, **common)
            )
        else:
            commands.append(
                MemoryCommanded(
                    command_id=name, scope=scope, action="edit_reflection", reflection_id=found.id, **common
                )
            )
    return commands
