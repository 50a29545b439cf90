"""The janitor on real servers, with a small `keep`."""

import asyncio
from datetime import datetime, timedelta

import pytest

from eden_memory.housekeeping.consumption_store import Consumption, ConsumptionMarks
from eden_memory.housekeeping.janitor import Janitor
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.mongo.leases import MongoLease
from eden_memory.stages.leased import Leased
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    NOON,
    PARTITIONS,
    Answered,
    Asked,
    Bench,
    consuming,
    make_topics,
    questions,
    running,
    stage,
    until,
)
from tests.names import NAMES

pytestmark = pytest.mark.servers
KEEP = timedelta(seconds=60)


class Rounds:
    """A janitor whose clock the test sets, for a topic that one stage reads."""

    def __init__(self, kit: Bench) -> None:
        self.now = NOON
        topic, writer = kit.topic(Asked), kit.settings.kafka.group_prefix + "writer"
        declared = Consumption({topic: [kit.group]}, {"answering": (kit.group, [topic])}, (writer, []), KEEP)
        marks = ConsumptionMarks(kit.database, NAMES)
        self.janitor = Janitor(kit.client, kit.admin, declared, marks, kit.ledger, clock=self._clock)

    def _clock(self) -> datetime:
        return self.now


@pytest.fixture
async def rounds(kit: Bench) -> Rounds:
    return Rounds(kit)


async def test_what_everyone_has_consumed_goes_and_the_keys_stay(kit: Bench, rounds: Rounds) -> None:
    topic = kit.topic(Asked)
    await answered(kit, 5, 20)
    assert not (await rounds.janitor.round()).records
    assert await first_offsets(kit, topic) == 0
    rounds.now += KEEP
    await kit.put(questions(5, 4))
    await rounds.janitor.round()
    assert await first_offsets(kit, topic) == 20
    outcomes = [one async for one in kit.database.memory_outcomes.find()]
    assert len(outcomes) == 20
    assert not any("records" in one for one in outcomes)
    assert all(one["members"] for one in outcomes)
    async with running(Worker(stage(), kit.around())):
        await until(lambda: committed(kit, 40), "the repeats are consumed")
    assert len(await kit.read(kit.topic(Answered), 20)) == 20


@pytest.mark.parametrize("sessions", [60, 2], ids=["more than before", "fewer than before"])
async def test_nothing_unread_goes_from_a_topic_that_was_deleted_and_created_anew(
    kit: Bench, rounds: Rounds, sessions: int
) -> None:
    topic = kit.topic(Asked)
    await answered(kit, 40, 160)
    await rounds.janitor.round()
    await created_anew(kit, topic)
    await kit.notes.forget(kit.group)  # as `eden groups restart` does
    await kit.put(questions(sessions, 4))
    rounds.now += KEEP
    assert not (await rounds.janitor.round()).records
    assert len(await kit.read(topic, sessions * 4)) == sessions * 4


async def test_outcomes_of_a_topic_created_anew_stay_until_notes_of_it_are_old(
    kit: Bench, rounds: Rounds
) -> None:
    await answered(kit, 40, 160)
    await rounds.janitor.round()
    await created_anew(kit, kit.topic(Asked))
    await kit.notes.forget(kit.group)
    await kit.database.memory_outcomes.delete_many({})  # of the former topic
    await answered(kit, 60, 240)
    for _ in range(2):
        rounds.now += KEEP / 2
        await rounds.janitor.round()
        assert await kit.database.memory_outcomes.count_documents({"records": {"$exists": True}}) == 240
    rounds.now += KEEP
    assert sum((await rounds.janitor.round()).records.values()) == 240
    assert await kit.database.memory_outcomes.count_documents({"records": {"$exists": True}}) == 0


async def test_a_broker_that_refuses_to_delete_is_asked_again_and_nothing_else_waits(
    kit: Bench, rounds: Rounds
) -> None:
    topic, admin = kit.topic(Asked), TopicAdmin(kit.admin)
    await answered(kit, 5, 20)
    await rounds.janitor.round()
    rounds.now += KEEP
    await asyncio.to_thread(
        admin.configure, {topic: {"cleanup.policy": "compact"}}
    )  # then it deletes nothing
    begun = 0

    async def one_round() -> None:
        nonlocal begun
        begun += 1
        await rounds.janitor.round()

    lease = MongoLease(kit.database["memory_leases"], "janitor", 10.0)
    part = Leased("janitor", lease, one_round, every=3_600, pause=0.05)
    task = asyncio.create_task(part.run())
    try:
        await until(lambda: begun > 3 or task.done(), "more rounds after the first that failed")
        assert not task.done(), task.result()
        assert await kit.database.memory_outcomes.count_documents({"records": {"$exists": True}}) == 0
        assert await first_offsets(kit, topic) == 0
        await asyncio.to_thread(admin.configure, {topic: {"cleanup.policy": "compact,delete"}})
        await until(lambda: gone(kit, topic, 20), "the records are deleted")
    finally:
        part.stop()
        await task


async def answered(kit: Bench, sessions: int, count: int) -> None:
    """So many questions, answered and committed."""
    await kit.put(questions(sessions, 4))
    async with running(Worker(stage(), kit.around())):
        await until(lambda: committed(kit, count), "all committed")


async def created_anew(kit: Bench, *topics: str) -> None:
    prefix: str = kit.settings.kafka.topic_prefix
    await asyncio.to_thread(TopicAdmin(kit.admin).delete, list(topics))
    await make_topics(kit.client, prefix, {name.removeprefix(prefix): PARTITIONS for name in topics})


async def committed(kit: Bench, count: int) -> bool:
    async with GroupAdmin(kit.client) as admin:
        return sum((await admin.committed(kit.group)).values()) == count


async def gone(kit: Bench, topic: str, count: int) -> bool:
    return await first_offsets(kit, topic) == count


async def first_offsets(kit: Bench, topic: str) -> int:
    async with consuming(kit.client, topic) as consumer:
        return sum((await consumer.beginning_offsets(list(consumer.assignment()))).values())
