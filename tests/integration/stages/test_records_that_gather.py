"""Stages that have time let records gather: in their lane, or at the broker."""

from collections.abc import Sequence

import pytest

from eden_memory.stages.stage import Delivery, Emitted, Gather
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Bench, answer, asked, in_order, running, stage, until

pytestmark = pytest.mark.servers


class Threes:
    """Answers three questions at once, and waits for the third without end."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def __call__(self, deliveries: Sequence[Delivery]) -> Sequence[Emitted] | Gather:
        self.sizes.append(len(deliveries))
        return Gather(3_600.0) if len(deliveries) < 3 else await answer(deliveries)

    async def asked_about(self, count: int) -> bool:
        return count in self.sizes


async def test_records_that_gather_are_decided_together_once_there_are_enough(kit: Bench) -> None:
    threes = Threes()
    async with running(Worker(stage(threes, batch=100), kit.around())):
        for number in range(3):
            await kit.put([asked("s", number)])
        answers = await kit.answers(3)
    assert threes.sizes[-1] == 3
    assert in_order(answers)
    assert len(answers) == 3
    assert await kit.committed() == 3


async def test_records_that_gather_when_a_worker_stops_are_delivered_again(kit: Bench) -> None:
    threes = Threes()
    async with running(Worker(stage(threes, batch=100), kit.around())):
        await kit.put([asked("s", 0)])
        await until(lambda: threes.asked_about(1), "the first question is left in its lane")
    assert await kit.committed() == 0
    await kit.put([asked("s", 1), asked("s", 2)])
    async with running(Worker(stage(threes, batch=100), kit.around())):
        answers = await kit.answers(3)
    assert len(answers) == 3


async def test_what_comes_while_a_stage_rests_is_fetched_together(kit: Bench) -> None:
    taken: list[int] = []

    async def counts(deliveries: Sequence[Delivery]) -> Sequence[Emitted]:
        taken.append(len(deliveries))
        return await answer(deliveries)

    async with running(Worker(stage(counts, batch=100, rest=5.0), kit.around())):
        await kit.put([asked("s", 0)])
        await until(lambda: taken == [1], "the first question is taken")
        for number in (1, 2):
            await kit.put([asked("s", number)])
        await kit.answers(3)
    assert taken == [1, 2]
