"""Calls of a reform that come while others are counted are counted together, each once, also where counting fails."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from eden_memory.replay.reform.feeding import InterceptingPublisher
from eden_memory.schemas.events import FormationRequested, ModelCalled
from eden_memory.schemas.events.base import Event
from eden_memory.stages.codec import record_of
from eden_memory.stages.outcome import StoredRecord
from tests.calls import called

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPICS: dict[type[Event], str] = {ModelCalled: "usage", FormationRequested: "formations"}


class Counting:
    """Counts when it is let; `fails`: how often it does not."""

    def __init__(self, fails: int = 0) -> None:
        self.let, self.fails = asyncio.Event(), fails
        self.counted: list[list[str]] = []

    async def count(self, calls: Sequence[ModelCalled]) -> Sequence[ModelCalled]:
        await self.let.wait()
        if self.fails:
            self.fails -= 1
            raise ConnectionError("no server")
        known = {name for names in self.counted for name in names}
        self.counted.append([one.call_id for one in calls])
        return [one for one in calls if one.call_id not in known]


class Published:
    """Takes everything."""

    def __init__(self) -> None:
        self.records = 0

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        self.records += len(records)


def record(call_id: str) -> StoredRecord:
    call = called(call_id, namespace="trial", cost_usd=Decimal(1))
    return record_of(call, TOPICS.__getitem__, identity=call_id, source="test", time=NOON, traceparent=None)


async def test_calls_that_wait_share_a_count() -> None:
    usage, published = Counting(), Published()
    keeping = InterceptingPublisher(published, usage, TOPICS.__getitem__)
    jobs = [asyncio.create_task(keeping.publish([record(name)])) for name in "abc"]
    await asyncio.sleep(0)
    assert published.records == 0, "counted before anybody reads of it"
    usage.let.set()
    await asyncio.gather(*jobs)
    assert usage.counted == [["a"], ["b", "c"]]
    assert (keeping.spent, keeping.paid, published.records) == (Decimal(3), 3, 3)


async def test_what_could_not_be_counted_is_counted_by_the_next() -> None:
    usage, published = Counting(fails=1), Published()
    keeping = InterceptingPublisher(published, usage, TOPICS.__getitem__)
    first = asyncio.create_task(keeping.publish([record("a")]))
    await asyncio.sleep(0)
    second = asyncio.create_task(keeping.publish([record("b")]))
    usage.let.set()
    with pytest.raises(ConnectionError):
        await first
    await second
    await keeping.publish([record("a")])
    assert keeping.paid == 2
    assert published.records == 2
