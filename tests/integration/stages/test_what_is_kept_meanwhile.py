"""What a handler has begun to store is stored before its decision is published, and before it is tried again."""

import asyncio
from collections.abc import Sequence

import pytest

from eden_memory.stages.handler_run import RUN
from eden_memory.stages.stage import Delivery, Emitted, Retry
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Bench, answered, questions, running, stage

pytestmark = pytest.mark.servers


async def test_nothing_is_decided_before_what_it_paid_for_is_stored(kit: Bench) -> None:
    let, handled = asyncio.Event(), asyncio.Event()

    async def goes_on(deliveries: Sequence[Delivery]) -> list[Emitted]:
        handler_run = RUN.get()
        assert handler_run is not None
        handler_run.begin(let.wait(), True)
        handled.set()
        return [answered(one) for one in deliveries]

    await kit.put(questions(1, 1))
    worker = Worker(stage(goes_on), kit.around())
    async with running(worker):
        await handled.wait()
        await asyncio.sleep(0.2)
        assert worker.lanes.running == 1
        assert await kit.database.memory_outcomes.count_documents({}) == 0
        let.set()
        assert len(await kit.answers(1)) == 1


async def test_what_another_has_kept_first_is_what_is_decided_from(kit: Bench) -> None:
    kept = "theirs"

    async def ours(deliveries: Sequence[Delivery]) -> list[Emitted]:
        handler_run = RUN.get()
        assert handler_run is not None
        tried.append(kept if tried else "ours")
        if len(tried) == 1:
            handler_run.begin(_told(kept), "ours")
        return [answered(one, tried[-1]) for one in deliveries]

    tried: list[str] = []
    await kit.put(questions(1, 1))
    async with running(Worker(stage(ours), kit.around())):
        (record,) = await kit.answers(1)
    assert tried == ["ours", "theirs"]
    assert b"theirs" in (record.value or b"")


async def test_a_unit_is_tried_again_once_what_it_paid_for_is_stored(kit: Bench) -> None:
    let = asyncio.Event()
    seen: list[bool] = []

    async def fails_first(deliveries: Sequence[Delivery]) -> list[Emitted] | Retry:
        handler_run = RUN.get()
        assert handler_run is not None
        seen.append(let.is_set())
        if len(seen) > 1:
            return [answered(one) for one in deliveries]
        handler_run.begin(_later(let), None)
        return Retry("again", after=0.0)

    await kit.put(questions(1, 1))
    async with running(Worker(stage(fails_first), kit.around())):
        assert len(await kit.answers(1)) == 1
    assert seen == [False, True]


async def _later(event: asyncio.Event) -> None:
    await asyncio.sleep(0.3)
    event.set()


async def _told(kept: str) -> str:
    return kept
