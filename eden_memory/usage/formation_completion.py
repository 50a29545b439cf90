"""Reads a formation's outcomes from the ledger: it is complete when all that followed from its window is decided."""

from collections.abc import Mapping, Sequence

from eden_memory.kafka.record import Headers
from eden_memory.schemas.envelope import parse_type
from eden_memory.schemas.events import FactsExtracted, FactsProposed
from eden_memory.stages.outcome import Ledger, StageOutcome

FACTS, REFLECTIONS, DEDUP = "fact-extraction", "reflection-extraction", "fact-dedup"
READ_BY = {FactsExtracted.NAME: REFLECTIONS, FactsProposed.NAME: DEDUP}


async def outcomes_of(ledger: Ledger, formation_ids: Sequence[str]) -> dict[str, list[StageOutcome] | None]:
    """All outcomes of each formation; None while one of them is missing, no entry before the first."""
    if not formation_ids:
        return {}
    members = {name: f"formation/{name}" for name in formation_ids}
    first = await ledger.find(FACTS, list(members.values()))
    follow = {name: _follow(first[member]) for name, member in members.items() if member in first}
    found: dict[str, Mapping[str, StageOutcome]] = {}
    for stage in (REFLECTIONS, DEDUP):
        wanted = [event_id for pairs in follow.values() for where, event_id in pairs if where == stage]
        found[stage] = await ledger.find(stage, wanted) if wanted else {}
    result: dict[str, list[StageOutcome] | None] = {}
    for name, pairs in follow.items():
        there = all(event_id in found[stage] for stage, event_id in pairs)
        later = [found[stage][event_id] for stage, event_id in pairs] if there else []
        result[name] = [first[members[name]], *later] if there else None
    return result


async def complete(ledger: Ledger, formation_ids: Sequence[str]) -> set[str]:
    """Those of which nothing is left to be decided (consolidations apart)."""
    return {name for name, found in (await outcomes_of(ledger, formation_ids)).items() if found is not None}


def named(headers: Headers) -> tuple[str, str]:
    """Name and id of the event in a record of ours."""
    found = {name: value or b"" for name, value in headers}
    return parse_type(found["ce_type"].decode())[0], found["ce_id"].decode()


def _follow(outcome: StageOutcome) -> list[tuple[str, str]]:
    """(stage, event id) of what reads the events of a fact extraction."""
    events = [named(record.headers) for record in outcome.records]
    return [(READ_BY[name], event_id) for name, event_id in events if name in READ_BY]
