"""A delivery that its handler refuses is a dead letter; the rest of the batch is decided, and nothing pauses."""

from collections.abc import Sequence

import pytest

from eden_memory.stages.stage import Decision, Delivery
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    Bench,
    answered,
    questions,
    running,
    stage,
    until,
)

pytestmark = pytest.mark.servers


async def refuse_odd(deliveries: Sequence[Delivery]) -> Decision:
    """Answer every second question."""
    refused = {one.id: f"{one.id} is odd" for one in deliveries if int(one.id[-1]) % 2}
    return Decision([answered(one) for one in deliveries if one.id not in refused], refused=refused)


@pytest.mark.parametrize("decides", [True, False])
async def test_refused_deliveries_are_dead_letters_and_the_others_are_decided(
    kit: Bench, decides: bool
) -> None:
    await kit.put(questions(4, 10))
    worker = Worker(stage(refuse_odd, batch=50, decides=decides), kit.around())
    async with running(worker):
        answers = await kit.answers(20)
        dead = await kit.dead(20)
        await until(lambda: _committed(kit, 40), "all is committed")
        assert not worker.health.pauses
    assert len(answers) == len(dead) == 20
    for letter in dead:
        assert f"answering:{letter.reason}" == f"{letter.member} is odd"


async def _committed(kit: Bench, count: int) -> bool:
    return await kit.committed() == count
