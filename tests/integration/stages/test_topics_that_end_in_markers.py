"""Whoever reads a topic to its end gets there, although the last offsets of each partition are a fence's markers."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from eden_memory.kafka.fencing import fence
from eden_memory.kafka.groups import GroupAdmin, LagReader, lags
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topic_reading import TopicOffsets, reading
from eden_memory.observability.lineage_store import scope_records
from eden_memory.observability.tapping import tapping
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.source.backfill import Known, MessagesTopic, holds_any_record
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Answered, Asked, Bench, questions, running, stage

pytestmark = pytest.mark.servers
RECORDS, MARKERS = 3, 2
SESSIONS = ("s0",)


async def batches(kit: Bench, topic: str) -> int:
    async with reading(kit.client, [topic]) as reader:
        return sum([len(batch) async for batch in reader.batches()])


async def tapped(kit: Bench, topic: str) -> int:
    async with tapping(kit.client, topic, "start", until_end=True) as records:
        return len([record async for record in records])


READERS = pytest.mark.parametrize("read", [batches, tapped])
Read = Callable[[Bench, str], Awaitable[int]]


async def fenced(kit: Bench, topic: str) -> None:
    """Each partition ends in markers; those that held nothing hold nothing else."""
    for _ in range(MARKERS):
        await fence(kit.client, f"{topic}.writer", [topic])


@READERS
async def test_a_reader_reads_every_record_and_ends(kit: Bench, read: Read) -> None:
    topic = kit.topic(Asked)
    await kit.put(questions(len(SESSIONS), RECORDS))
    await fenced(kit, topic)
    async with asyncio.timeout(60):
        assert await read(kit, topic) == RECORDS


@READERS
async def test_a_reader_of_markers_alone_ends(kit: Bench, read: Read) -> None:
    topic = kit.topic(Asked)
    await kit.put(questions(len(SESSIONS), RECORDS))
    async with TopicOffsets(kit.client, [topic]) as offsets:
        records = {(tp.topic, tp.partition): end for tp, end in (await offsets.ends()).items() if end}
    await fenced(kit, topic)
    await asyncio.to_thread(TopicAdmin(kit.admin).remove_records, records)
    async with asyncio.timeout(60):
        assert await read(kit, topic) == 0


async def test_what_a_merge_asks_of_the_topic_ends(kit: Bench) -> None:
    full, empty = (MessagesTopic(kit.client, kit.topic(event)) for event in (Asked, Answered))
    await kit.put(questions(len(SESSIONS), RECORDS))
    for topic in (full, empty):
        await fenced(kit, topic.name)
    known = Known()
    try:
        async with asyncio.timeout(60):
            assert await holds_any_record(full)
            assert not await holds_any_record(empty)
            await known.read(full)
    finally:
        known.close()


async def test_the_records_of_a_scope_that_has_none_are_read_to_the_end(kit: Bench) -> None:
    await kit.put(questions(len(SESSIONS), RECORDS))
    await fenced(kit, kit.topic(Asked))
    async with asyncio.timeout(60):
        assert await scope_records(kit.client, [kit.topic(Asked)], ["a", "b", "c", "d", "e"], {}) == []


async def test_a_stage_gets_past_markers_and_everyone_who_waits_for_it_sees_that(kit: Bench) -> None:
    topic = kit.topic(Asked)
    groups = {kit.group: [topic]}
    await kit.put(questions(len(SESSIONS), RECORDS))
    async with (
        GroupProgress(kit.client, groups) as progress,
        asyncio.timeout(90),
        running(Worker(stage(), kit.around())),
    ):
        await progress.until_passed()
        await fenced(kit, topic)
        await progress.until_passed()
        await progress.until_quiet()
        behind, passed = await progress.standing()
        assert (behind, passed) == (0, sum((await progress.ends()).values()))
        assert passed > RECORDS
        async with GroupAdmin(kit.client) as admin:
            assert await lags(progress, admin, groups) == {kit.group: 0}


async def test_markers_behind_a_stage_that_has_stopped_are_no_unread_record(kit: Bench) -> None:
    topic = kit.topic(Asked)
    await kit.put(questions(len(SESSIONS), RECORDS))
    async with (
        GroupProgress(kit.client, {kit.group: [topic]}) as progress,
        asyncio.timeout(90),
    ):
        async with running(Worker(stage(), kit.around())):
            await progress.until_passed()
        await fenced(kit, topic)
        reader = LagReader(kit.client, [topic], {kit.group: [topic]})
        await reader.start()
        try:
            found = (await reader.read()).groups
            assert sum(group_lag.lag for group_lag in found) > 0
            assert {group_lag.seconds for group_lag in found} == {0.0}
            async with running(Worker(stage(), kit.around())):
                await progress.until_passed()
            assert {group_lag.lag for group_lag in (await reader.read()).groups} == {0}
        finally:
            await reader.close()
