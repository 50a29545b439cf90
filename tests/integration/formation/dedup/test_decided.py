"""Decisions of a scope by their number, read from the real ledger."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from eden_memory.forgotten import Mark
from eden_memory.formation.decided_store import MongoDecided
from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.codec import Encoder
from eden_memory.stages.outcome import Reread, StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.stage import Decision, Delivery
from tests.integration.formation.dedup.dedup_servers import Database, facts_of, handler, write
from tests.names import NAMES
from tests.unit.formation.dedup.dedup_kit import ANA, NOON, ScriptedModel, command, proposal

pytestmark = pytest.mark.servers
TEN = Scope.of_user("s.agent", "s.ana%231")


async def store(database: Database, deliveries: Sequence[Delivery], decision: Decision) -> list[FactChanged]:
    """As the runtime stores it."""
    encoder = Encoder("fact-dedup", lambda event: event.NAME)
    covered = deliveries[: decision.covers]
    outcome = StageOutcome(
        key=f"fact-dedup:{covered[0].id}",
        stage="fact-dedup",
        members=tuple(one.id for one in covered),
        writes=decision.writes,
        records=encoder.records(decision.events, covered),
        topic="memory.candidates",
        partition=0,
        offset=0,
        decided_at=NOON,
        kinds=("FactChanged",) if decision.events else (),
    )
    await MongoLedger(database, NAMES).store(outcome)
    return facts_of(decision)


async def decide(database: Database, *deliveries: Delivery) -> list[FactChanged]:
    return await store(database, deliveries, await handler(database, ScriptedModel())(deliveries))


async def test_decisions_beyond_the_mark_are_found_in_order_whatever_has_been_read_before(
    database: Database,
) -> None:
    decided = MongoDecided(database, NAMES)
    made: list[FactChanged] = []
    for number in range(1, 26):
        made += await decide(database, proposal(f"p{number}", f"number {number}", f"and {number * 100}"))
        await decide(database, proposal(f"q{number}", f"other {number}", scope=TEN))
        if number % 4 == 0:
            assert list(await decided.beyond(ANA.key, 0)) == made
    assert [one.outcome for one in made[::2]] == list(range(1, 26))
    for applied in (0, 10, 3, 24, 25, 26):
        expected = [one for one in made if one.outcome > applied]
        assert list(await decided.beyond(ANA.key, applied)) == expected
        assert list(await MongoDecided(database, NAMES).beyond(ANA.key, applied)) == expected
    assert len(await decided.beyond(TEN.key, 0)) == 25


async def test_the_mark_is_the_writers(database: Database) -> None:
    decided = MongoDecided(database, NAMES)
    assert await decided.applied(ANA.key) == 0
    for number in range(3):
        await write(database, await decide(database, proposal(f"p{number}", f"number {number}")))
    row = await database["memory_snapshots"].find_one({"_id": ANA.key})
    assert row
    assert await decided.applied(ANA.key) == row["applied"] >= 2


async def test_a_decision_whose_records_were_removed_says_nothing_and_hides_nothing_behind_it(
    database: Database,
) -> None:
    made: list[FactChanged] = []
    for number in range(4):
        made += await decide(database, proposal(f"p{number}", f"number {number}"))
    await database["memory_outcomes"].update_one({"writes": f"{ANA.key}#2"}, {"$unset": {"records": ""}})
    found = await MongoDecided(database, NAMES).beyond(ANA.key, 0)
    assert [one.outcome for one in found] == [1, 3, 4]


async def test_decisions_that_change_nothing_take_no_number(database: Database) -> None:
    await decide(database, proposal("one", ("ana lives in lyon", ["m"])))
    assert await decide(database, proposal("two", ("ana lives in lyon", ["m"]))) == []
    (event,) = await decide(database, proposal("three", "ben has a dog"))
    assert event.outcome == 2


async def test_of_two_who_decide_at_once_one_is_refused_and_reads_anew(database: Database) -> None:
    one, two = [proposal("one", "ana lives in lyon")], [proposal("two", "Ana lives in Lyon.")]
    first, second = handler(database, ScriptedModel()), handler(database, ScriptedModel())
    mine, theirs = await first(one), await second(two)
    await store(database, one, mine)
    with pytest.raises(Reread):
        await store(database, two, theirs)
    (joined,) = await store(database, two, await second(two))
    assert (joined.version, joined.outcome, len(joined.sources)) == (2, 2, 2)


async def test_the_same_decision_of_two_is_stored_once(database: Database) -> None:
    unit = [proposal("one", "ana lives in lyon")]
    mine = await handler(database, ScriptedModel())(unit)
    theirs = await handler(database, ScriptedModel())([unit[0]._replace(attempt=2)])
    await store(database, unit, mine)
    await store(database, unit, theirs)
    assert mine.events == [replace(one, cause=unit[0]) for one in theirs.events]  # pyright: ignore
    assert await database["memory_outcomes"].count_documents({}) == 1


async def test_the_version_of_a_fact_that_was_forgotten_is_never_given_again(database: Database) -> None:
    (first,) = await decide(database, proposal("one", "ana lives in lyon"))
    await write(database, [first])
    for number in (2, 3):
        (joined,) = await decide(database, proposal(f"p{number}", "ana lives in lyon"))
        assert joined.version == number
        await write(database, [joined], Mark("fact", joined.key(), "for_ever"))
        for other in ("a", "b"):  # then the mark is past it
            await write(database, await decide(database, proposal(f"{other}{number}", f"{other} {number}")))
    row = await database["memory_facts"].find_one({"_id": first.fact_id})
    assert row
    assert row["version"] == 1, "the writer has dropped the others, and is past them"
    (joined,) = await decide(database, proposal("four", "ana lives in lyon"))
    assert (joined.fact_id, joined.version) == (first.fact_id, 4)
    await write(database, [joined], Mark("fact", joined.key(), "for_ever"))
    (edited,) = await decide(database, command("edit", "edit", fact_id=first.fact_id, text="ana left lyon"))
    assert (edited.fact_id, edited.version, edited.text) == (first.fact_id, 5, "ana left lyon")
