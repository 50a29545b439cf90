"""A stage against real MongoDB and Kafka: everything once, in order, from wherever it left off."""

from collections.abc import AsyncIterator

import pytest

from eden_memory.runtime.worker import Worker
from eden_memory.settings import Settings
from tests.integration.runtime.harness import Bench, bench, in_order, questions, running, stage, until

pytestmark = pytest.mark.servers


@pytest.fixture
async def kit(settings: Settings) -> AsyncIterator[Bench]:
    async with bench(settings) as kit:
        yield kit


async def test_every_record_is_answered_once_and_in_order(kit: Bench) -> None:
    await kit.put(questions(20, 10))
    async with running(Worker(stage(), kit.around())):
        answers = await kit.answers(200)
        await until(lambda: _all_committed(kit, 200), "all committed")
    assert len(answers) == 200
    assert in_order(answers)


async def _all_committed(kit: Bench, count: int) -> bool:
    return await kit.committed() == count
