"""A compaction under a lagging reader leaves a message behind its session's end: it is in one window all the same."""

import asyncio

import pytest

from eden_memory.stages.stage import Delivery
from tests.chaos.compaction import FILLER_PAUSE, hurry
from tests.chaos.reader import read_whole
from tests.integration.stages_on_servers import PARTITIONS
from tests.integration.windows.harness import Kit
from tests.unit.windows.records import ended, message, names, watermark

pytestmark = pytest.mark.servers
MESSAGE, END = message("s.m1", "s.s", 1, 0), ended("s.s", 50, 1)
ROUNDS = 120


def everywhere(number: int, minutes: float) -> list[Delivery]:
    return [watermark(number, minutes, partition) for partition in range(PARTITIONS)]


async def left_of_both(kit: Kit) -> list[str]:
    """The keys of the message's and the end's records, in order, once the message's first copy is gone."""
    assert kit.settings.kafka.bootstrap is not None
    bootstrap, topic = kit.settings.kafka.bootstrap, kit.topics.name("chat.messages")
    await asyncio.to_thread(hurry, bootstrap, topic)
    for number in range(ROUNDS):
        await asyncio.sleep(FILLER_PAUSE)  # longer than a segment lasts: the next record begins a new one
        await kit.put(everywhere(10 + number, 0.5))
        records = await read_whole(bootstrap, topic, PARTITIONS, "read_uncommitted")
        keys = [one.key for one in records if one.key in (MESSAGE.key, END.key)]
        if keys.count(MESSAGE.key) == 1:
            return keys
    raise AssertionError("the first copy is still there")


async def test_the_next_watermark_forms_what_a_compaction_put_behind_its_sessions_end(kit: Kit) -> None:
    await kit.put([MESSAGE, END, MESSAGE])
    assert await left_of_both(kit) == [END.key, MESSAGE.key]
    await kit.put([END, *everywhere(60, 2)])
    async with kit.running(), kit.topic("memory.formations") as topic:
        windows = sorted(await topic.until(2), key=lambda one: one.seq)
    assert [(one.closed_because, names(one)) for one in windows] == [("ended", []), ("ended", ["s.m1"])]
    assert not await kit.waiting()
