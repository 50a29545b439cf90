"""A session of 20,000 messages is forgotten in slices, each decided once, whoever dies in the middle."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.processors import pipeline
from eden_memory.processors.forgetting import SLICE, ForgettingStage
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Forgotten
from eden_memory.settings import Settings
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.publishing import Publisher
from eden_memory.stages.stage import Decision, Delivery, Result, Stage
from tests.integration.stages_on_servers import OnServers, on_servers, running
from tests.names import NAMES

pytestmark = pytest.mark.servers

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
SESSION, MESSAGES, GONE_AFTER = "s.long", 20_000, 300
LARGEST = 16 * 1024 * 1024


class Dying:
    """Publishes so many records of what it is given, and then hangs, as a process that is killed does."""

    def __init__(self, publisher: Publisher, most: int) -> None:
        self._publisher, self._most = publisher, most
        self.died = asyncio.Event()

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        await self._publisher.publish(records[: self._most])
        self.died.set()
        await asyncio.Event().wait()


class Counted:
    """The real handler, and how often it was asked; nobody erases here, and it does not wait for that."""

    def __init__(self, kit: OnServers) -> None:
        store, forgotten = MongoForgettingStore(kit.database, NAMES), MongoForgetting(kit.database, NAMES)
        self._handler = ForgettingStage(store, forgotten, clock=count(step=1_000).__next__)
        self.asked, self.events, self.most = 0, 0, 0

    async def __call__(self, deliveries: Sequence[Delivery]) -> Result:
        self.asked += 1
        decision = await self._handler(deliveries)
        assert isinstance(decision, Decision)
        self.events += len(decision.events)
        self.most = max(self.most, len(decision.events))
        return decision

    @property
    def stage(self) -> Stage:
        (stage,) = pipeline.stages({pipeline.FORGETTING: self})
        return stage


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[OnServers]:
    async with on_servers(OnServers, settings) as made:
        rows: list[dict[str, Any]] = [
            {"_id": f"s.m{number:05d}", "session_id": SESSION, "version": "6b00000000000001", "time": NOON}
            for number in range(MESSAGES)
        ]
        await made.database[NAMES["messages"]].insert_many([{**row, "text": "Hello."} for row in rows])
        yield made


def the_session() -> Delivery:
    """Somebody asks to forget it."""
    event = Forgotten(
        kind="session", id=SESSION, reach="for_ever", because="asked", asked_by=None, forgotten_at=NOON
    )
    envelope = Envelope(
        "forget", "Forgotten", 1, "test", NOON, event.subject(), ordering_key=event.ordering_key()
    )
    return Delivery(envelope, event, "memory.forgotten", event.key())


@pytest.mark.slow
async def test_a_long_session_is_forgotten_in_slices_also_by_one_who_takes_over(kit: OnServers) -> None:
    handler, alive = Counted(kit), kit.publisher
    dying: Any = Dying(alive, GONE_AFTER)
    kit.publisher = dying
    await kit.put([the_session()])
    async with running([kit.worker_of(handler.stage)], drain=0.1):
        await asyncio.wait_for(dying.died.wait(), 60)
    kit.publisher = alive
    async with running([kit.worker_of(handler.stage)]), kit.topic("chat.messages") as topic:
        await topic.until_true(lambda: len(topic.records) >= GONE_AFTER + MESSAGES, "all, after those before")
    slices = MESSAGES // SLICE
    assert (handler.asked, handler.events) == (slices + 1, MESSAGES + slices), "each slice is decided once"
    assert handler.most == SLICE + 1
    keys = [one.key.decode() for one in topic.records]
    assert keys[GONE_AFTER:] == [f"s.m{number:05d}" for number in range(MESSAGES)]
    assert keys[:GONE_AFTER] == keys[GONE_AFTER : 2 * GONE_AFTER]
    assert {len(found) for found in topic.values().values()} == {1}, "a repeat is the same record"
    texts = await kit.database[NAMES["messages"]].distinct("text")
    assert texts == [None]
    await _decided_in_small_documents(kit, slices + 1)


async def _decided_in_small_documents(kit: OnServers, slices: int) -> None:
    sizes = [{"$project": {"bytes": {"$bsonSize": "$$ROOT"}}}]
    rows = await (await kit.database[NAMES["outcomes"]].aggregate(sizes)).to_list()
    assert len(rows) == slices
    assert max(row["bytes"] for row in rows) < LARGEST // 8
