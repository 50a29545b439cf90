"""Decisions about fewer records than were given, decisions without events, and the model calls behind them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.handler_run import UsageLog, note
from eden_memory.stages.stage import Decision, Delivery, Retry
from eden_memory.stages.worker import Worker
from tests.calls import called
from tests.integration.stages.harness import (
    NOON,
    Bench,
    answered,
    in_order,
    questions,
    running,
    stage,
    until,
)

pytestmark = pytest.mark.servers


def paid(number: int) -> ModelCalled:
    at = NOON + timedelta(seconds=number)
    return called(f"c{number}", stage="answering", cost_usd=Decimal("0.001"), started_at=at)


async def test_what_a_decision_does_not_cover_goes_back_to_its_lane(kit: Bench) -> None:
    taken: list[int] = []

    async def first_two(deliveries: Sequence[Delivery]) -> Decision:
        taken.append(len(deliveries))
        return Decision([answered(one) for one in deliveries[:2]], covers=2)

    await kit.put(questions(1, 9))
    async with running(Worker(stage(first_two, together=5), kit.around())):
        answers = await kit.answers(9)
    assert len(answers) == 9
    assert in_order(answers)
    assert max(taken) > 2
    members = [one["members"] async for one in kit.database.memory_outcomes.find()]
    assert sorted(len(one) for one in members) == [1, 2, 2, 2, 2]


@pytest.mark.parametrize(("keeps", "stored"), [(True, 3), (False, 0)])
async def test_a_decision_without_events_is_stored_where_the_stage_keeps_it(
    kit: Bench, keeps: bool, stored: int
) -> None:
    async def nothing(deliveries: Sequence[Delivery]) -> Decision:
        del deliveries
        return Decision(())

    await kit.put(questions(3, 1))
    async with running(Worker(stage(nothing, keeps_empty=keeps), kit.around())):

        async def all_committed() -> bool:
            return await kit.committed() == 3

        await until(all_committed, "all committed")
    assert await kit.database.memory_outcomes.count_documents({}) == stored


async def test_model_calls_are_published_with_the_decision_and_those_of_failed_attempts_by_themselves(
    kit: Bench,
) -> None:
    attempts = 0
    usage = UsageLog(kit.publisher, kit.topic, "answering")

    async def asks(deliveries: Sequence[Delivery]) -> Decision | Retry:
        nonlocal attempts
        attempts += 1
        note(paid(attempts))
        return Retry("not now", after=0.01) if attempts == 1 else Decision([answered(deliveries[0])])

    await kit.put(questions(1, 1))
    async with running(Worker(stage(asks), replace(kit.around(), usage=usage))):
        records = await kit.read(kit.topic(ModelCalled), 3)
    calls = {record.key: Envelope.of_headers(record.headers) for record in records}
    assert {b"c1", b"c2", b"s0-0"} == set(calls)
    assert (calls[b"c1"].id, calls[b"c2"].id) == ("call/c1", "call/c2")
    assert calls[b"c2"].time == NOON + timedelta(seconds=2)
    kept = await kit.database.memory_outcomes.find_one({})
    assert {record["k"] for record in kept["records"]} == {b"c2", b"s0-0"}
