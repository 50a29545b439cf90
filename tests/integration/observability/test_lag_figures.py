"""Lag in records and in seconds against a real broker: what is committed, what is not, and what only looks unread."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.conn import AIOKafkaConnection

from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.groups import GroupLag, LagReader, LagReading
from eden_memory.settings import Settings

pytestmark = pytest.mark.servers


class Broker:
    """One topic of two partitions, groups that commit by hand."""

    def __init__(self, client: dict[str, Any], topic: str, declared: str) -> None:
        self.client, self.topic, self.declared = client, topic, declared

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    async def send(self, partition: int, count: int, *, transaction: bool = False) -> list[float]:
        """Records; the broker's times, in seconds."""
        more: dict[str, Any] = {"transactional_id": f"{self.topic}-tx"} if transaction else {}
        producer: Any = AIOKafkaProducer(**self.client, **more)
        await producer.start()
        try:
            if transaction:
                async with producer.transaction():
                    return [await self._one(producer, partition) for _ in range(count)]
            return [await self._one(producer, partition) for _ in range(count)]
        finally:
            await producer.stop()

    async def _one(self, producer: Any, partition: int) -> float:
        sent = await producer.send_and_wait(self.topic, b"x", partition=partition)
        assert sent.timestamp is not None
        return sent.timestamp / 1_000

    async def commit(self, group: str, partition: int, offset: int) -> None:
        consumer: Any = AIOKafkaConsumer(**self.client, group_id=group, enable_auto_commit=False)
        consumer.assign([self.partition(partition)])
        await consumer.start()
        try:
            await consumer.commit({self.partition(partition): offset})
        finally:
            await consumer.stop()

    @asynccontextmanager
    async def reader(self, *others: "Broker") -> AsyncGenerator[LagReader]:
        declared = {of.declared: [of.topic] for of in (self, *others)}
        reader = LagReader(self.client, [of.topic for of in (self, *others)], declared)
        await reader.start()
        try:
            yield reader
        finally:
            await reader.close()


@pytest.fixture
async def broker(settings: Settings) -> Broker:
    assert settings.kafka.bootstrap is not None
    client = client_kwargs(settings.kafka, settings.kafka.bootstrap)
    return await made(
        client, settings.kafka.topic_prefix + "things", settings.kafka.group_prefix + "declared"
    )


async def made(client: dict[str, Any], topic: str, declared: str) -> Broker:
    admin: Any = AIOKafkaAdminClient(**client)
    await admin.start()
    await admin.create_topics(
        [NewTopic(topic, 2, 1, topic_configs={"message.timestamp.type": "LogAppendTime"})]
    )
    await admin.close()
    return Broker(client, topic, declared)


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests by name, as they are sent."""
    counts: Counter[str] = Counter()
    send: Any = AIOKafkaConnection.send  # pyright: ignore

    def counted(connection: Any, request: Any, *rest: Any, **more: Any) -> Any:
        counts[type(request).__name__.partition("_")[0]] += 1
        return send(connection, request, *rest, **more)

    monkeypatch.setattr(AIOKafkaConnection, "send", counted)
    return counts


def of(reading: LagReading, group: str) -> dict[int, GroupLag]:
    return {one.tp.partition: one for one in reading.groups if one.group == group}


async def test_lag_is_the_records_behind_and_the_age_of_the_first_of_them(broker: Broker) -> None:
    times = await broker.send(0, 5)
    await broker.send(1, 2)
    mine = broker.declared
    await broker.commit(mine, 0, 2)
    await broker.commit(mine, 1, 2)
    async with broker.reader() as reader:
        reading = await reader.read()
    rows = of(reading, mine)
    assert (rows[0].lag, rows[0].committed, rows[1].lag, rows[1].seconds) == (3, 2, 0, 0.0)
    assert rows[0].seconds == pytest.approx(reading.at - times[2], abs=0.01)  # pyright: ignore[reportUnknownMemberType]
    assert reading.ends == {broker.partition(0): 5, broker.partition(1): 2}


async def test_groups_are_asked_only_while_something_moves(broker: Broker, requests: Counter[str]) -> None:
    await broker.send(0, 3)
    await broker.commit(broker.declared, 0, 3)
    async with broker.reader() as reader:
        first = await reader.read()
        asked = requests["OffsetFetchRequest"], requests["DescribeGroupsRequest"]
        second = await reader.read()
        assert (requests["OffsetFetchRequest"], requests["DescribeGroupsRequest"]) == asked
        assert second.at > first.at
        await broker.send(0, 2)
        assert of(await reader.read(), broker.declared)[0].lag == 2
        await broker.commit(broker.declared, 0, 4)
        assert of(await reader.read(), broker.declared)[0].lag == 1


async def test_a_group_is_not_asked_because_another_ones_topic_moves(
    broker: Broker, requests: Counter[str]
) -> None:
    other = await made(broker.client, f"{broker.topic}-other", f"{broker.declared}-other")
    for each in (broker, other):
        await each.send(0, 1)
        await each.commit(each.declared, 0, 1)
    async with broker.reader(other) as reader:
        await reader.read()
        await other.send(0, 2)
        requests.clear()
        reading = await reader.read()
    assert (requests["OffsetFetchRequest"], requests["DescribeGroupsRequest"]) == (1, 0), (
        "members by the next look"
    )
    assert (of(reading, broker.declared)[0].lag, of(reading, other.declared)[0].lag) == (0, 2)
    assert reading.members == {broker.declared: 0, other.declared: 0}


async def test_a_declared_group_that_never_committed_is_behind_from_the_start(broker: Broker) -> None:
    times = await broker.send(0, 4)
    async with broker.reader() as reader:
        reading = await reader.read()
    row = of(reading, broker.declared)[0]
    assert (row.lag, row.committed) == (4, None)
    assert row.seconds == pytest.approx(reading.at - times[0], abs=0.01)  # pyright: ignore[reportUnknownMemberType]


async def test_groups_nobody_declared_appear_and_two_at_different_places_are_told_apart(
    broker: Broker,
) -> None:
    times = await broker.send(0, 6)
    first, second = f"{broker.declared}-a", f"{broker.declared}-b"
    await broker.commit(first, 0, 1)
    await broker.commit(second, 0, 5)
    async with broker.reader() as reader:
        reading = await reader.read()
    for group, offset in ((first, 1), (second, 5)):
        row = of(reading, group)[0]
        assert row.lag == 6 - offset
        assert row.seconds == pytest.approx(reading.at - times[offset], abs=0.01)  # pyright: ignore[reportUnknownMemberType]


async def test_a_group_of_another_namespace_shows_by_itself_with_its_members(broker: Broker) -> None:
    await broker.send(0, 3)
    shadow = f"{broker.declared}.trial"
    consumer: Any = AIOKafkaConsumer(
        broker.topic, **broker.client, group_id=shadow, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    try:
        await consumer.getone()
        await consumer.commit()
        async with broker.reader() as reader:
            reading = await reader.read()
    finally:
        await consumer.stop()
    assert of(reading, shadow)[0].lag == 2
    assert reading.members == {broker.declared: 0, shadow: 1}


async def test_a_transactions_marker_is_no_unread_record(broker: Broker) -> None:
    await broker.send(0, 3, transaction=True)
    await broker.commit(broker.declared, 0, 3)
    async with broker.reader() as reader:
        row = of(await reader.read(), broker.declared)[0]
        assert (row.lag, row.seconds) == (1, 0.0)
        again = of(await reader.read(), broker.declared)[0]
    assert again.seconds == 0.0


async def test_seconds_grow_while_nothing_is_committed_and_a_standing_figure_costs_no_fetch(
    broker: Broker,
) -> None:
    await broker.send(0, 1)
    async with broker.reader() as reader:
        before = of(await reader.read(), broker.declared)[0].seconds
        await asyncio.sleep(0.05)
        begun = time.time()
        reading = await reader.read()
        after = of(reading, broker.declared)[0].seconds
    assert before is not None
    assert after is not None
    assert after > before
    assert reading.at >= begun
