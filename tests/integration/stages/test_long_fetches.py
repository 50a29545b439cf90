"""An idle consumer's fetch waits at the broker, and keeps nothing else waiting."""

from typing import Any

import pytest
from aiokafka.conn import AIOKafkaConnection
from aiokafka.protocol.fetch import FetchRequest

from eden_memory.kafka import topic_reading
from eden_memory.stages.worker import Bounds, Surroundings, Worker
from tests.integration.stages.harness import SOON, Bench, asked, questions, running, stage, until

pytestmark = pytest.mark.servers
FOR_EVER = int(SOON * 5_000)
"""Milliseconds: whatever stands behind a fetch of that long fails the test."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Milliseconds that each fetch may wait, and how many partitions it asks for; long ones wait for ever."""
    found: list[tuple[int, int]] = []
    send: Any = AIOKafkaConnection.send  # pyright: ignore

    def noted(connection: Any, request: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(request, FetchRequest):
            wait: int = request._max_wait_ms  # pyright: ignore[reportPrivateUsage]
            found.append((wait, sum(len(numbers) for _, numbers in request.topics)))
        return send(connection, request, *rest, **more)

    monkeypatch.setattr(AIOKafkaConnection, "send", noted)
    monkeypatch.setattr(topic_reading, "LONG_MS", FOR_EVER)
    return found


def patient(kit: Bench, **fields: Any) -> Surroundings:
    """With a client that does not give up a fetch before it has waited."""
    return kit.around(kafka={**kit.client, "request_timeout_ms": 2 * FOR_EVER}, **fields)


async def test_partitions_that_move_are_read_although_a_fetch_waits(
    kit: Bench, sent: list[tuple[int, int]]
) -> None:
    await kit.put(questions(12, 1))
    first, second = Worker(stage(), patient(kit)), Worker(stage(), patient(kit))
    async with running(first):
        await kit.answers(12)
        await until(lambda: (FOR_EVER, 6) in sent, "the idle consumer waits for all partitions")
        async with running(second):
            await until(lambda: len(second.membership.homes) == 3, "the second holds its part")
            await kit.put([asked(f"s{session}", 1) for session in range(12)])
            await kit.answers(24)
        await until(lambda: len(first.membership.homes) == 6, "the first holds all again")
        await kit.put([asked(f"s{session}", 2) for session in range(12)])
        await kit.answers(36)


async def test_a_fetch_that_leaves_out_a_partition_waits_short(
    kit: Bench, sent: list[tuple[int, int]]
) -> None:
    await kit.put(questions(1, 40))
    worker = Worker(stage(at_once=1), patient(kit, bounds=Bounds(records=4, poll_records=2)))
    async with running(worker):
        await kit.answers(40)
        await kit.put([asked("s0", 40)])
        await kit.answers(41)
    left_out = {wait for wait, partitions in sent if partitions < 6}
    assert left_out == {topic_reading.SHORT_MS}, "one partition was held back"
    assert FOR_EVER in {wait for wait, _ in sent}
