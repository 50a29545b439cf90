"""MongoDB away for a while: nothing is lost, nothing is dead-lettered, nothing decided is asked again."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from pymongo.errors import AutoReconnect

from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    Bench,
    answered,
    asked,
    in_order,
    questions,
    running,
    stage,
    until,
)

pytestmark = pytest.mark.servers


class _Flaky:
    """A ledger whose server goes away after storing, before it can say so."""

    def __init__(self, kit: Bench) -> None:
        self._ledger = kit.ledger
        self._calls = 0

    async def find(self, stage: str, members: Sequence[str]) -> Mapping[str, StageOutcome]:
        self._fail_sometimes()
        return await self._ledger.find(stage, members)

    async def store(self, outcome: StageOutcome) -> StageOutcome:
        stored = await self._ledger.store(outcome)
        self._fail_sometimes()
        return stored

    def _fail_sometimes(self) -> None:
        self._calls += 1
        if self._calls % 3 == 0:
            raise AutoReconnect("connection closed")


async def test_a_ledger_that_fails_now_and_then_costs_no_second_call(kit: Bench) -> None:
    calls: Counter[str] = Counter()

    async def counted(deliveries: Sequence[Delivery]) -> list[Emitted]:
        calls.update(one.id for one in deliveries)
        return [answered(one) for one in deliveries]

    await kit.put(questions(10, 5))
    async with running(Worker(stage(counted), kit.around(ledger=_Flaky(kit)))):
        answers = await kit.answers(50)
    assert in_order(answers)
    assert set(calls.values()) == {1}


async def test_a_handler_without_its_database_is_never_given_up(kit: Bench) -> None:
    away, calls = True, 0

    async def needs_mongo(deliveries: Sequence[Delivery]) -> list[Emitted]:
        nonlocal calls
        calls += 1
        if away:
            raise AutoReconnect("not primary")
        return [answered(one) for one in deliveries]

    await kit.put([asked("s", 0)])
    async with running(Worker(stage(needs_mongo, decides=False, batch=10), kit.around())):
        await until(lambda: calls > 8, "tried more often than there are attempts")
        away = False
        await kit.answers(1)
    await asyncio.sleep(0)
    assert await kit.committed() == 1
