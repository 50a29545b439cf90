"""The plan of an undo reads all facts of a scope, and holds none of their vectors."""

import tracemalloc
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from eden_memory.mongo.documents import row_of
from eden_memory.replay.installation import Installation
from eden_memory.schemas.provenance import SourceMessage, Statement
from eden_memory.settings import Settings
from eden_memory.stages.codec import record_of
from eden_memory.stages.publishing import partition_for
from eden_memory.unpoison.attack_rules import Attack
from eden_memory.unpoison.attack_store import AttackUndo
from tests.integration.python.stored import fact as stored_fact
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import PARTITIONS, System, fast, system
from tests.model_server.serving import serving
from tests.unit.memory.memory_histories import NOON, USER, fact

pytestmark = pytest.mark.servers
FACTS, DIMENSIONS = 1_000, 3_072


async def test_the_plan_takes_less_memory_than_the_vectors_of_its_scope(settings: Settings) -> None:
    said = SourceMessage(message_id="s.evil", version="0" * 16, session_id="s.one", time=NOON)
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as running:
        written = await published(running, said)
        poisoned = stored_fact("f0", USER, "Ana lives in Porto.", sources=(said,), message_ids=("s.evil",))
        await running.memory("facts").insert_one(row_of(poisoned))
        work = AttackUndo(Installation(running.settings, running.database))
        tracemalloc.start()
        try:
            plan = await work.plan(Attack("message", "s.evil"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert [found.fact_id for found in plan.removed] == ["f0"]
    assert peak < written, (peak, written)


async def published(running: System, said: SourceMessage) -> int:
    """The scope's facts are in their topic, the first one of the message; the bytes of all."""
    stated = Statement(number=1, text="Ana lives in Porto.", sources=(said,))
    topic, written = f"{running.settings.kafka.topic_prefix}memory.facts", 0
    producer: Any = AIOKafkaProducer(**running.client)
    await producer.start()
    try:
        for number in range(FACTS):
            event = fact(f"f{number}", vector=[0.5] * DIMENSIONS)
            if number == 0:
                event = event.model_copy(update={"sources": (said,), "statement": stated})
            record = record_of(
                event, lambda _: topic, identity=f"e{number}", source="t", time=NOON, traceparent=None
            )
            partition = partition_for(record.ordering_key, PARTITIONS)
            await producer.send(topic, record.value, record.key, partition, headers=list(record.headers))
            written += len(record.value or b"")
    finally:
        await producer.stop()
    return written
