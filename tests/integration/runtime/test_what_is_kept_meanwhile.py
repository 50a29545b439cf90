"""What a handler has begun to store is stored before its decision is published, and before it is tried again."""

import asyncio
from collections.abc import Sequence

import pytest

from eden_memory.domain.keeping import KEEPING
from eden_memory.domain.outcome import StoredRecord
from eden_memory.domain.stage import Delivery, Outgoing, Retry
from eden_memory.runtime.stages.worker import Worker
from tests.integration.runtime.harness import Bench, answered, questions, running, stage, until

pytestmark = pytest.mark.servers


class Counting:
    """Counts what is published."""

    def __init__(self, kit: Bench) -> None:
        self._kit, self.published = kit, 0

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        self.published += len(records)
        await self._kit.publisher.publish(records)


async def test_a_decision_is_published_once_what_it_paid_for_is_stored(kit: Bench) -> None:
    let, publisher = asyncio.Event(), Counting(kit)

    async def goes_on(deliveries: Sequence[Delivery]) -> list[Outgoing]:
        keeping = KEEPING.get()
        assert keeping is not None
        keeping.begin(let.wait())
        return [answered(one) for one in deliveries]

    await kit.put(questions(1, 1))
    worker = Worker(stage(goes_on), kit.around(publisher=publisher))
    async with running(worker):
        await until(lambda: _outcomes(kit), "the outcome is stored")
        assert worker.lanes.running == 1
        assert publisher.published == 0
        let.set()
        assert len(await kit.answers(1)) == 1


async def test_a_unit_is_tried_again_once_what_it_paid_for_is_stored(kit: Bench) -> None:
    let = asyncio.Event()
    seen: list[bool] = []

    async def fails_first(deliveries: Sequence[Delivery]) -> list[Outgoing] | Retry:
        keeping = KEEPING.get()
        assert keeping is not None
        seen.append(let.is_set())
        if len(seen) > 1:
            return [answered(one) for one in deliveries]
        keeping.begin(_later(let))
        return Retry("again", after=0.0)

    await kit.put(questions(1, 1))
    async with running(Worker(stage(fails_first), kit.around())):
        assert len(await kit.answers(1)) == 1
    assert seen == [False, True]


async def _later(event: asyncio.Event) -> None:
    await asyncio.sleep(0.3)
    event.set()


async def _outcomes(kit: Bench) -> bool:
    return await kit.database.memory_outcomes.count_documents({}) == 1
