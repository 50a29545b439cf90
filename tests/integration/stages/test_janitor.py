"""The janitor on real servers, with a small `keep`."""

from datetime import timedelta

import pytest

from eden_memory.housekeeping.consumption import Consumption
from eden_memory.housekeeping.consumption_store import ConsumptionMarks
from eden_memory.housekeeping.janitor import Janitor
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    NOON,
    Answered,
    Asked,
    Bench,
    consuming,
    questions,
    running,
    stage,
    until,
)
from tests.names import NAMES

pytestmark = pytest.mark.servers
KEEP = timedelta(seconds=60)


async def test_what_everyone_has_consumed_goes_and_the_keys_stay(kit: Bench) -> None:
    now = NOON
    topic, writer = kit.topic(Asked), kit.settings.kafka.group_prefix + "writer"
    declared = Consumption({topic: [kit.group]}, {"answering": (kit.group, [topic])}, (writer, []), KEEP)
    janitor = Janitor(
        kit.client,
        kit.admin,
        declared,
        ConsumptionMarks(kit.database, NAMES),
        kit.ledger,
        clock=lambda: now,
    )
    await kit.put(questions(5, 4))
    async with running(Worker(stage(), kit.around())):
        await kit.answers(20)
        await until(lambda: _committed(kit, 20), "all committed")
    assert not (await janitor.round()).records
    assert await _first_offsets(kit, topic) == 0
    now += KEEP
    await kit.put(questions(5, 4))
    await janitor.round()
    assert await _first_offsets(kit, topic) == 20
    outcomes = [one async for one in kit.database.memory_outcomes.find()]
    assert len(outcomes) == 20
    assert not any("records" in one for one in outcomes)
    assert all(one["members"] for one in outcomes)
    async with running(Worker(stage(), kit.around())):
        await until(lambda: _committed(kit, 40), "the repeats are consumed")
    assert len(await kit.read(kit.topic(Answered), 20)) == 20


async def _committed(kit: Bench, count: int) -> bool:
    return await kit.committed() == count


async def _first_offsets(kit: Bench, topic: str) -> int:
    async with consuming(kit.client, topic) as consumer:
        return sum((await consumer.beginning_offsets(list(consumer.assignment()))).values())
