"""Confirmed, in order, and a refused record refuses nobody else."""

import asyncio
from dataclasses import replace

import pytest
from aiokafka.errors import MessageSizeTooLargeError

from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.publishing import partition_for
from tests.integration.stages.harness import Asked, Bench, asked, in_order

pytestmark = pytest.mark.servers


async def test_many_tasks_at_once_stay_in_order_per_key(kit: Bench) -> None:
    topic = kit.topic(Asked)
    records = [
        replace(asked(f"s{session}", number), topic=topic) for number in range(50) for session in range(8)
    ]
    await asyncio.gather(*(kit.publisher.publish([one]) for one in records))
    found = await kit.read(topic, 400)
    assert len(found) == 400
    assert in_order(found)
    assert all(one.partition == partition_for(one.ordering_key, 6) for one in found)


async def test_a_record_that_is_too_large_is_refused_alone(kit: Bench) -> None:
    topic = kit.topic(Asked)
    huge = StoredRecord(topic, b"s", b"k", b"x" * 6_000_000, ())
    good = [replace(asked("s", number), topic=topic) for number in range(3)]
    results = await asyncio.gather(
        *(kit.publisher.publish([one]) for one in (good[0], huge, *good[1:])), return_exceptions=True
    )
    assert [type(one) for one in results] == [type(None), MessageSizeTooLargeError, type(None), type(None)]
    assert [one.key for one in await kit.read(topic, 3)] == [b"s-0", b"s-1", b"s-2"]


async def test_a_producer_that_failed_is_replaced_and_order_is_kept(kit: Bench) -> None:
    topic = kit.topic(Asked)
    await kit.publisher.publish([replace(asked("s", 0), topic=topic)])
    first = await kit.publisher.producer()
    kit.publisher.discard(first)
    await kit.publisher.publish([replace(asked("s", 1), topic=topic)])
    assert await kit.publisher.producer() is not first
    assert in_order(await kit.read(topic, 2))
