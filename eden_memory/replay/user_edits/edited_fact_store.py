"""The facts that people had a hand in, from what `facts` keeps of their history (the last 20 versions)."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.formation.near_fact_store import MongoFactSearch
from eden_memory.mongo.documents import document_of
from eden_memory.names import Names
from eden_memory.replay.user_edits.user_edits import PEOPLE, UserEdit, user_edit
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
AT_ONCE = 500
THEIRS: Row = {
    "$or": [{name: {"$in": sorted(PEOPLE)}} for name in ("command.by", "history.command.by")],
}
COMMANDS = {"command.command_id": 1, "history.command.command_id": 1}


class MongoEditedFacts:
    """The facts of one namespace that people had a hand in."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._facts = database.get_collection(names[Fact.COLLECTION], read_concern=ReadConcern("majority"))

    async def scopes(self) -> Sequence[Scope]:
        """Where there are any, by key."""
        grouped = [
            {"$match": THEIRS},
            {"$group": {"_id": "$scope_key", "agent_id": {"$first": "$agent_id"}}},
            {"$sort": {"_id": 1}},
        ]
        return [
            Scope.of_key(row["_id"], row["agent_id"]) async for row in await self._facts.aggregate(grouped)
        ]

    async def of(self, scope: Scope) -> AsyncGenerator[UserEdit]:
        """Yield people's edits in one scope, by fact id."""
        rows = self._facts.find({"scope_key": scope.key, **THEIRS}, batch_size=AT_ONCE).sort("_id")
        async for row in rows:
            fact = document_of(Fact, row)
            change = user_edit(fact, scope, await self._merged_into(fact))
            if change is not None:
                yield change

    async def commanded(self, scope_key: str) -> Mapping[str, str]:
        """The facts that people's commands changed, by command id."""
        named: dict[str, str] = {}
        async for row in self._facts.find({"scope_key": scope_key, **THEIRS}, COMMANDS, batch_size=AT_ONCE):
            for command in (
                row.get("command"),
                *(version.get("command") for version in row.get("history", ())),
            ):
                if command:
                    named[command["command_id"]] = row["_id"]
        return named

    async def _merged_into(self, fact: Fact) -> Fact | None:
        if fact.retired_because != "duplicate" or fact.replaced_by is None:
            return None
        row = await self._facts.find_one({"_id": fact.replaced_by})
        return None if row is None else document_of(Fact, row)


@dataclass(frozen=True, slots=True)
class EditedMemory:
    """One of two memories: what people did there, and its facts by text and meaning."""

    own: MongoEditedFacts
    facts: MongoFactSearch


def edited_memory(database: AsyncDatabase[Row], names: Names, model: str) -> EditedMemory:
    """One memory, as people's changes are looked for in it; `model` is the shadow's embedder's."""
    return EditedMemory(MongoEditedFacts(database, names), MongoFactSearch(database, names, model))
