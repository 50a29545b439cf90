"""A stage whose offsets MongoDB notes: it reads again what a restored MongoDB does not know of."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore

from eden_memory.errors import EdenError
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Asked, Bench, answered, asked, questions, running, stage, until

pytestmark = pytest.mark.servers


class Counting:
    """Answers, and counts how often it was asked what."""

    def __init__(self) -> None:
        self.handled = Counter[str]()

    async def __call__(self, deliveries: Sequence[Delivery]) -> list[Emitted]:
        self.handled.update(one.key for one in deliveries)
        return [answered(one) for one in deliveries]


async def test_a_restored_mongodb_has_everything_read_again(kit: Bench) -> None:
    handler = Counting()
    await kit.put(questions(3, 2))
    async with running(Worker(stage(handler, noted=True), kit.around())):
        await until(lambda: all_read(kit, 6), "all is read")
    copies = {
        name: await kit.database[name].find().to_list() for name in ("memory_groups", "memory_outcomes")
    }
    await kit.put([asked(f"s{session}", 2) for session in range(3)])
    async with running(Worker(stage(handler, noted=True), kit.around())):
        await until(lambda: all_read(kit, 9), "all is read")
    assert set(handler.handled.values()) == {1}
    for name, rows in copies.items():
        await kit.database[name].delete_many({})
        await kit.database[name].insert_many(rows)
    async with running(Worker(stage(handler, noted=True), kit.around())):
        await until(lambda: handled(handler, "s0-2", 2), "what MongoDB does not know is decided again")
        await until(lambda: all_read(kit, 9), "all is read")
    assert handler.handled["s0-0"] == 1, "what MongoDB knows is not"


async def test_a_mongodb_that_is_exchanged_while_a_stage_runs_ends_it(kit: Bench) -> None:
    await kit.put(questions(1, 2))
    worker = asyncio.create_task(Worker(stage(noted=True), kit.around()).run())
    await until(lambda: all_read(kit, 2), "all is read")
    await kit.notes.forget_reached(kit.group)
    await kit.put([asked("s0", 2)])
    with pytest.raises(EdenError, match="a backup was restored meanwhile"):
        await asyncio.wait_for(worker, 30)
    assert await kit.committed() == 2, "Kafka knows of no commit that MongoDB has not noted"


async def test_notes_about_a_topic_do_not_count_for_the_next_of_its_name(kit: Bench) -> None:
    topic, admin = kit.topic(Asked), TopicAdmin(kit.admin)
    before = (await asyncio.to_thread(admin.identities, [topic]))[topic]
    await kit.notes.heed_topic(kit.group, topic, before)
    await kit.notes.note_reached(kit.group, {(topic, 0): 7}, {})
    await kit.notes.heed_topic(kit.group, topic, before)
    assert await kit.notes.reached(kit.group) == {(topic, 0): 7}
    await asyncio.to_thread(made_anew, admin, kit.admin, topic)
    await kit.notes.heed_topic(kit.group, topic, (await asyncio.to_thread(admin.identities, [topic]))[topic])
    assert await kit.notes.reached(kit.group) == {}


def made_anew(admin: TopicAdmin, config: dict[str, Any], topic: str) -> None:
    admin.delete([topic])
    creating: Any = AdminClient(config)
    (made,) = creating.create_topics([NewTopic(topic, num_partitions=1)]).values()
    made.result(30)


async def all_read(kit: Bench, count: int) -> bool:
    return await kit.committed() == count and sum((await kit.notes.reached(kit.group)).values()) == count


async def handled(handler: Counting, key: str, times: int) -> bool:
    return handler.handled[key] == times
