"""Find out which formations are settled: all that followed from them is decided and written, or given up."""

from collections import OrderedDict
from collections.abc import Collection, Iterable
from math import inf
from typing import Any, Literal

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.forgotten import ForgottenMarks
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact, Reflection
from eden_memory.schemas.events import ReflectionFormed
from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.usage.formation_completion import named, outcomes_of

REMEMBERED = 10_000
FACT = "fact:"
"""Begins the name of a fact's version among the writes of a decision."""


class SettledFormations:
    """Reads the ledger and the memory of one namespace; remembers what is settled, since that never changes."""

    def __init__(
        self, database: AsyncDatabase[dict[str, Any]], names: Names, forgotten: ForgottenMarks
    ) -> None:
        self._ledger, self._forgotten = MongoLedger(database, names), forgotten
        self._facts = database[names[Fact.COLLECTION]]
        self._reflections = database[names[Reflection.COLLECTION]]
        self._settled = OrderedDict[str, None]()

    async def among(self, formation_ids: Iterable[str]) -> set[str]:
        """Return those that are settled."""
        wanted = set(formation_ids)
        if unknown := [name for name in wanted if name not in self._settled]:
            self._remember(await self._look_up(unknown))
        return wanted & self._settled.keys()

    async def _look_up(self, formation_ids: list[str]) -> list[str]:
        outcomes = await outcomes_of(self._ledger, formation_ids)
        decided = {name: found for name, found in outcomes.items() if found is not None}
        facts = {name: decided_facts(found) for name, found in decided.items()}
        reflections = {name: formed_reflections(found) for name, found in decided.items()}
        stored = await self._facts_stored({fact_id for of in facts.values() for fact_id in of})
        written = await self._reflections_stored({name for of in reflections.values() for name in of})
        return [
            name
            for name in decided
            if reflections[name] <= written
            and all(stored.get(fact_id, 0) >= version for fact_id, version in facts[name].items())
        ]

    async def _facts_stored(self, fact_ids: Collection[str]) -> dict[str, float]:
        """Return the version of each stored fact; infinite where it is forgotten, so that it will not be stored."""
        rows = await self._facts.find({"_id": {"$in": list(fact_ids)}}, {"version": 1}).to_list()
        stored: dict[str, float] = {row["_id"]: row["version"] for row in rows}
        return stored | dict.fromkeys(await self._gone("fact", set(fact_ids) - stored.keys()), inf)

    async def _reflections_stored(self, reflection_ids: Collection[str]) -> set[str]:
        """Return the reflections that are stored, or forgotten."""
        rows = await self._reflections.find({"_id": {"$in": list(reflection_ids)}}, {"_id": 1}).to_list()
        stored = {row["_id"] for row in rows}
        return stored | await self._gone("reflection", set(reflection_ids) - stored)

    async def _gone(self, kind: Literal["fact", "reflection"], names: Collection[str]) -> set[str]:
        if not names:
            return set()
        marks = await self._forgotten.among([(kind, name) for name in names])
        return {name for name in names if marks.entity_gone(kind, name, 1)}

    def _remember(self, formation_ids: Iterable[str]) -> None:
        self._settled.update(dict.fromkeys(formation_ids))
        while len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)


def decided_facts(outcomes: Iterable[StageOutcome]) -> dict[str, int]:
    """Return the highest version of each fact that was decided (`fact:ID@5` among the writes)."""
    writes = (write for outcome in outcomes for write in outcome.writes if write.startswith(FACT))
    found: dict[str, int] = {}
    for fact_id, _, version in (write.removeprefix(FACT).rpartition("@") for write in writes):
        found[fact_id] = max(int(version), found.get(fact_id, 0))
    return found


def formed_reflections(outcomes: Iterable[StageOutcome]) -> set[str]:
    """Return the ids of the reflections among the records."""
    records = (record for outcome in outcomes for record in outcome.records if record.value is not None)
    return {
        (record.key or b"").decode()
        for record in records
        if named(record.headers)[0] == ReflectionFormed.NAME
    }
