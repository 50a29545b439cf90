"""Calls as they are published, for people who watch: a topic or a broker that is not there is said at once."""

import gc

import pytest
from aiokafka.errors import KafkaConnectionError

from eden_memory.errors import EdenError
from eden_memory.observability.watching import usage_feed
from eden_memory.stages.codec import record_of
from eden_memory.stages.outcome import StoredRecord
from tests.calls import called
from tests.integration.stages.harness import NOON, Asked, Bench

pytestmark = pytest.mark.servers


async def test_a_topic_that_is_not_there_is_said_with_what_makes_it(kit: Bench) -> None:
    with pytest.raises(EdenError, match="Kafka has no topic nothing-of-the-kind") as raised:
        async with usage_feed(kit.client, "nothing-of-the-kind"):
            pass
    assert "eden topics apply" in (raised.value.hint or "")


@pytest.mark.filterwarnings("error")
async def test_a_broker_that_is_away_leaves_nothing_open() -> None:
    with pytest.raises(KafkaConnectionError):
        async with usage_feed({"bootstrap_servers": "127.0.0.1:1"}, "any"):
            pass
    gc.collect()


async def test_every_call_from_then_on_is_told_once(kit: Bench) -> None:
    topic = kit.topic(Asked)
    told = [_record(topic, name) for name in ("before", "first", "first", "second")]
    await kit.publisher.publish(told[:1])
    async with usage_feed(kit.client, topic) as calls:
        await kit.publisher.publish(told[1:])
        assert [(await anext(calls)).call_id for _ in range(2)] == ["first", "second"]


def _record(topic: str, name: str) -> StoredRecord:
    return record_of(called(name), lambda _: topic, identity=name, source="test", time=NOON, traceparent=None)
