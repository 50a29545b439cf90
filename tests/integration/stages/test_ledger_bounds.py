"""Answers and outcomes beyond their bounds go; what may be asked for again stays."""

from datetime import timedelta
from typing import Any

import pytest

from eden_memory.housekeeping.consumption_store import LedgerBounds
from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.windows.trigger_store import WindowTextRetention, readers_of
from tests.integration.stages.harness import NOON, Bench
from tests.names import NAMES

pytestmark = pytest.mark.servers
TOPIC = "t.memory.candidates"


def bounds(kit: Bench, answer_days: float = 90, **limits: Any) -> LedgerBounds:
    return LedgerBounds(kit.database, NAMES, timedelta(days=answer_days), **limits)


def outcome(name: str, days: int, *writes: str, offset: int = 3, **fields: Any) -> dict[str, Any]:
    row = {
        "_id": name,
        "stage": "fact-dedup",
        "members": [f"fact-dedup:{name}"],
        "topic": TOPIC,
        "partition": 0,
    }
    more = {"writes": list(writes)} if writes else {}
    return {**row, "offset": offset, "at": NOON - timedelta(days=days), "kinds": [], **more, **fields}


async def test_answers_go_by_age_and_size_but_never_within_the_promised_days(kit: Bench) -> None:
    answers = kit.database[NAMES["answers"]]
    await MongoAnswers(kit.database, NAMES).prepare()
    rows = [
        {"_id": f"{days:064x}", "answered_at": NOON - timedelta(days=days), "text": "x" * 10_000}
        for days in (1, 5, 20, 40, 80, 100)
    ]
    await answers.insert_many(rows)

    async def left() -> list[int]:
        return sorted([int(row["_id"], 16) async for row in answers.find()])

    assert (await bounds(kit).round(NOON, {}))["answers"] == 1
    assert await left() == [1, 5, 20, 40, 80]
    await bounds(kit, answer_bytes=31_000).round(NOON, {})
    assert await left() == [1, 5, 20], "the oldest went until the others fitted"
    await bounds(kit, answer_bytes=1_000, answer_days=0.5).round(NOON, {})
    assert await left() == [1, 5]


async def test_an_outcome_goes_once_its_input_is_deleted_and_memory_holds_it(kit: Bench) -> None:
    await MongoLedger(kit.database, NAMES).prepare()
    await kit.database[NAMES["facts"]].insert_one({"_id": "f1", "version": 2})
    await kit.database[NAMES["snapshots"]].insert_one({"_id": "user:a:b", "applied": 7})
    outcomes = kit.database[NAMES["outcomes"]]
    gone = [
        outcome("applied", 40, "fact:f1@2", "user:a:b#7"),
        outcome("nothing", 40),
    ]
    stays = [
        outcome("young", 20),
        outcome("not deleted", 40, offset=9),
        outcome("dropped version", 40, "fact:f1@3", "user:a:b#6"),
        outcome("not applied", 40, "user:a:b#8"),
        outcome("forgotten fact", 40, "fact:f2@1"),
        outcome("judged", 40, "propagation:r1"),
        outcome("dead", 40, dead="why"),
        outcome("unread", 40, records=[]),
        outcome("another topic", 40, topic="t.memory.formations"),
    ]
    await outcomes.insert_many([*gone, *stays])
    removed = await bounds(kit).round(NOON, {(TOPIC, 0): 5})
    assert removed["outcomes"] == len(gone)
    assert {row["_id"] async for row in outcomes.find()} == {row["_id"] for row in stays}


async def test_a_window_with_a_dead_letter_loses_its_text_although_outcomes_go_early(kit: Bench) -> None:
    windows, window = kit.database[NAMES["windows"]], "w:1"
    await windows.insert_one(
        {"_id": window, "requested": {}, "erased_at": None, "erase_after": None, "messages": [{"text": "x"}]}
    )
    facts, reflections = readers_of(window)
    for member, dead in ((facts, "why"), (reflections, None)):
        stage, _, name = member.partition(":")
        row = outcome(name, 0, stage=stage, members=[member]) | ({} if dead is None else {"dead": dead})
        await kit.database[NAMES["outcomes"]].insert_one(row)
    texts = WindowTextRetention(kit.database, NAMES, kit.letters.is_settled)
    for days in range(0, 40, 3):
        now = NOON + timedelta(days=days)
        await bounds(kit, outcomes_stay=timedelta(days=8)).round(now, {(TOPIC, 0): 5})
        await texts.round(now)
    left = await windows.find_one({"_id": window})
    assert left is not None
    assert left["messages"][0]["text"] is None
