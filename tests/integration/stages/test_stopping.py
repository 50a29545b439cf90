"""Told to stop while Kafka is frozen or gone: a stage and its publisher end in time, and nothing is lost by it."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest
from prometheus_client import REGISTRY

from eden_memory.kafka.broken_clients import CLOSE_SECONDS
from eden_memory.local.local_kafka import LocalKafka
from eden_memory.settings import Settings
from eden_memory.stages import publishing
from eden_memory.stages.controls import Pause
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    Bench,
    answered,
    bench,
    in_order,
    questions,
    running,
    stage,
    until,
)
from tests.room import room

pytestmark = pytest.mark.servers
DEADLINE = 3.0
REST = publishing.STOP_SECONDS + CLOSE_SECONDS
"""What was waiting to be sent is let go after the first, connections are closed within the second."""


@pytest.fixture(scope="module")
def own_kafka(jars_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[LocalKafka]:
    server = LocalKafka(tmp_path_factory.mktemp("stopping"), jars_folder=jars_folder)
    server.start()
    yield server
    server.kill()


Change = Callable[[LocalKafka], object]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leaves", "returns"),
    [
        (LocalKafka.freeze, LocalKafka.thaw),
        (LocalKafka.kill, LocalKafka.start),
    ],
    ids=["frozen", "gone"],
)
async def test_a_stage_ends_in_time_without_kafka_and_what_it_had_decided_is_published_later(
    settings: Settings, own_kafka: LocalKafka, leaves: Change, returns: Change
) -> None:
    kafka = settings.kafka.model_copy(update={"bootstrap": own_kafka.endpoint})
    async with bench(settings.model_copy(update={"kafka": kafka})) as kit:
        gate, calls = asyncio.Event(), Counter[str]()

        async def decide(deliveries: Sequence[Delivery]) -> list[Emitted]:
            calls.update(one.id for one in deliveries)
            await gate.wait()
            return [answered(one, uuid4().hex) for one in deliveries]

        await kit.put(questions(10, 2))
        worker = Worker(stage(decide), kit.around())
        async with running(worker, deadline=DEADLINE) as (at_work,):
            await until(lambda: len(calls) == 10, "a question of each session under way")
            leaves(own_kafka)
            try:
                gate.set()
                await until(lambda: decided(kit, 10), "decided, and not to be published")
                began = time.monotonic()
                worker.stop()
                await at_work
                await kit.publisher.stop()
                took = time.monotonic() - began
            finally:
                returns(own_kafka)
        assert took < (DEADLINE + REST) * room()
        await kit.publisher.start()
        async with running(Worker(stage(decide), kit.around())):
            assert in_order(await kit.answers(20, seconds=60))
        assert set(calls.values()) == {1}, "nothing decided is asked again"


async def test_a_stage_that_has_ended_shows_nothing_under_way(kit: Bench) -> None:
    """Its process may go on without it: a memory beside the live one is dropped, or another becomes live."""
    await kit.put(questions(4, 3))

    async def hangs(_: Sequence[Delivery]) -> list[Emitted]:
        await asyncio.Event().wait()
        return []

    worker = Worker(stage(hangs), kit.around())
    shown = {"stage": worker.name}
    async with running(worker, deadline=0.1):
        await until(lambda: worker.lanes.running == 4, "questions under way")
        worker.health.put(Pause(worker.name, "hand", "by the test", datetime.now(UTC)))
        await until(lambda: value("eden_stage_running", **shown) == 4, "and shown")
        assert value("eden_stage_paused", kind="hand", **shown) == 1
    for name in ("running", "pending_records", "oldest_unfinished_seconds", "partitions"):
        assert value(f"eden_stage_{name}", **shown) == 0, name
    assert value("eden_stage_waiting_records", reason="order", **shown) == 0
    assert value("eden_stage_paused", kind="hand", **shown) == 0


def value(metric: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(metric, labels)


async def decided(kit: Bench, number: int) -> bool:
    return await kit.database["memory_outcomes"].count_documents({}) >= number
