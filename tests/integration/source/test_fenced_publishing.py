"""What the tailer's publisher shuts out, and how it sends a few records."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from eden_memory.kafka.record import Outgoing
from eden_memory.kafka.topics import load_topics
from eden_memory.source.leader import FencedPublisher, PublishFailed
from tests.integration.source.harness import PARTITIONS, Kit

pytestmark = pytest.mark.servers


def record(partition: int, text: str) -> Outgoing:
    key = f"{text}-{partition}".encode()
    return Outgoing("chat.messages", key, text.encode(), [], key, partition)


def records(text: str) -> list[Outgoing]:
    """One for each partition."""
    return [record(partition, text) for partition in range(PARTITIONS)]


@asynccontextmanager
async def publisher(chat: Kit) -> AsyncGenerator[FencedPublisher]:
    made = FencedPublisher(chat.client, "tailer", load_topics(chat.settings.kafka))
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def values(chat: Kit, last: str) -> list[str]:
    """All that a reader of committed records gets, up to a record in each partition."""
    async with chat.topic(isolation="read_committed") as topic:
        wanted = {f"{last}-{partition}" for partition in range(PARTITIONS)}
        await topic.until(lambda: wanted <= {one.key for one in topic.everything}, "the last records")
        return sorted(one.key for one in topic.everything)


@pytest.mark.parametrize("partition", range(PARTITIONS))
async def test_an_old_publisher_is_shut_out_of_partitions_that_nobody_has_written(
    chat: Kit, partition: int
) -> None:
    async with publisher(chat) as old, publisher(chat) as new:
        await old.send([record(partition, "old")])
        with pytest.raises(PublishFailed):
            await old.confirmed()
        await new.send(records("new"))
        assert await new.confirmed()
    assert await values(chat, "new") == [f"new-{number}" for number in range(PARTITIONS)]


async def test_what_an_old_publisher_sent_before_stands_before_all_of_the_new_one(chat: Kit) -> None:
    async with publisher(chat) as old:
        await old.send(records("old"))
        await old.confirmed()
        async with publisher(chat) as new:
            await new.send(records("new"))
            await new.confirmed()
            await old.send(records("late"))
            with pytest.raises(PublishFailed):
                await old.confirmed()
    assert not [key for key in await values(chat, "new") if key.startswith("late")]


async def test_two_tasks_that_publish_at_once_send_everything_once(chat: Kit) -> None:
    async with publisher(chat) as both:
        for number in range(20):
            await both.add(records(f"a{number}"))
            await asyncio.gather(both.ship(), both.send(records(f"b{number}")), both.ship())
        await both.confirmed()
    sent = {f"{name}{number}-{place}" for name in "ab" for number in range(20) for place in range(PARTITIONS)}
    assert await values(chat, "b19") == sorted(sent)


class Held:
    """Holds the first start of a publisher, before or after its fence's transaction ends, until told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: bool) -> None:
        self._abort, self._after = AIOKafkaProducer.abort_transaction, after
        self.there, self.on = asyncio.Event(), asyncio.Event()
        held = self

        async def abort(producer: Any) -> None:
            await held.abort(producer)

        monkeypatch.setattr(AIOKafkaProducer, "abort_transaction", abort)

    async def abort(self, producer: Any) -> None:
        if self._after or self.there.is_set():
            await self._abort(producer)
        if not self.there.is_set():
            self.there.set()
            await self.on.wait()
            if not self._after:
                await self._abort(producer)


async def test_an_old_publisher_that_finishes_its_start_late_shuts_nobody_out(
    chat: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch, after=True)
    old = FencedPublisher(chat.client, "tailer", load_topics(chat.settings.kafka))
    starting = asyncio.create_task(old.start())
    await held.there.wait()
    async with publisher(chat) as new:
        held.on.set()
        await starting
        await new.send(records("new"))
        assert await new.confirmed()
    await old.stop()
    assert await values(chat, "new") == [f"new-{number}" for number in range(PARTITIONS)]


@pytest.mark.parametrize("lost", [True, False])
async def test_a_start_whose_transaction_never_ended_or_ends_late_holds_nobody_up(
    chat: Kit, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    held = Held(monkeypatch, after=False)
    old = FencedPublisher(chat.client, "tailer", load_topics(chat.settings.kafka))
    starting = asyncio.create_task(old.start())
    await held.there.wait()
    if lost:
        starting.cancel()
    async with publisher(chat) as new:
        held.on.set()
        refused = (await asyncio.gather(starting, return_exceptions=True))[0]
        assert isinstance(refused, asyncio.CancelledError if lost else PublishFailed)
        await new.send(records("new"))
        assert await new.confirmed()
    await old.stop()
    assert await values(chat, "new") == [f"new-{number}" for number in range(PARTITIONS)]


async def test_a_publisher_with_nothing_new_has_nothing_to_make_final(chat: Kit) -> None:
    async with publisher(chat) as only:
        assert not await only.confirmed()
        await only.send(records("text"))
        assert await only.confirmed()
        assert not await only.confirmed()
