"""Records and errors that are hard to write down: each is a dead letter, and the stage goes on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from eden_memory.errors import EdenError
from eden_memory.kafka.record import Record
from eden_memory.schemas.envelope import NAME_NOT_UTF8, VALUE_OF_NOT_UTF8
from eden_memory.stages.dead_letter_reading import DeadLetterFilter, dead_letters
from eden_memory.stages.dead_letters import original, read_at
from eden_memory.stages.outcome import StageOutcome, StoredRecord
from eden_memory.stages.stage import Dead, Delivery, Result
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    NOON,
    Asked,
    Bench,
    answered,
    asked,
    running,
    stage,
)
from tests.poisoned import BAD, PLACE, batch

pytestmark = pytest.mark.servers


async def _dead(kit: Bench, count: int) -> list[Record]:
    return await kit.read(kit.topic(Asked) + ".dead", count)


async def _put_as_others_do(kit: Bench, record: StoredRecord, headers: list[Any]) -> None:
    """By a client that leaves a header's value out, as Kafka allows."""
    producer: Any = AIOKafkaProducer(**kit.client)
    await producer.start()
    try:
        await producer.send_and_wait(
            kit.topic(Asked), record.value, key=record.key, headers=headers, partition=0
        )
    finally:
        await producer.stop()


async def _put_batch(kit: Bench, raw: bytes) -> None:
    """A whole batch as its bytes."""
    producer: Any = AIOKafkaProducer(**kit.client)
    await producer.start()
    try:
        written: Any = producer.create_batch()
        written.append(key=b"", value=b"", timestamp=None)
        written._build()
        written._buffer = bytearray(raw)
        await (await producer.send_batch(written, kit.topic(Asked), partition=0))
    finally:
        await producer.stop()


@pytest.mark.parametrize("at_once", [{}, {"decides": False, "batch": 10}], ids=["lanes", "batch"])
async def test_headers_without_values_are_kept_in_the_dead_letter(
    kit: Bench, at_once: dict[str, Any]
) -> None:
    poisoned = asked("s", 0)
    await _put_as_others_do(kit, poisoned, [("x", None), ("ce_orderingkey", None)])
    await kit.put([asked("t", 1)])
    async with running(Worker(stage(**at_once), kit.around())):
        (letter,) = await _dead(kit, 1)
        await kit.answers(1)
    assert letter.value == poisoned.value
    assert letter.headers[:2] == (("x", None), ("ce_orderingkey", None))
    (listed,) = [one async for one in dead_letters(kit.client, [letter.topic], DeadLetterFilter())]
    assert "ce_type is missing" in listed.reason
    assert (await read_at(kit.client, TopicPartition(letter.topic, 0), letter.offset)) == letter


@pytest.mark.parametrize("at_once", [{}, {"decides": False, "batch": 10}], ids=["lanes", "batch"])
async def test_a_headers_name_that_is_no_text_is_kept_in_the_dead_letter(
    kit: Bench, at_once: dict[str, Any]
) -> None:
    good, poisoned = asked("s", 0), asked("t", 1)
    named = (*poisoned.headers, (PLACE, b"\xfe"))
    both = (good, good.headers), (poisoned, named)
    await _put_batch(kit, batch([(one.key or b"", one.value or b"", headers) for one, headers in both]))
    await kit.put([asked("u", 2)])
    async with running(Worker(stage(**at_once), kit.around())):
        (letter,) = await _dead(kit, 1)
        await kit.answers(2)
    assert letter.value == poisoned.value
    assert letter.headers[len(poisoned.headers) :][:2] == ((NAME_NOT_UTF8, BAD), (VALUE_OF_NOT_UTF8, b"\xfe"))
    (listed,) = [one async for one in dead_letters(kit.client, [letter.topic], DeadLetterFilter())]
    assert "is not UTF-8: b'bad\\xffname'" in listed.reason


async def test_a_letter_without_some_headers_values_is_published_again_as_it_was(kit: Bench) -> None:
    poisoned = replace(asked("s", 0), topic=kit.topic(Asked) + ".dead", headers=(("x", None), ("y", b"")))
    outcome = StageOutcome("answering:k", "answering", ("k",), (), (poisoned,), "in", 0, 0, NOON, dead="why")
    await kit.ledger.store(outcome)
    (stored,) = set((await kit.ledger.find("answering", ["k"])).values())
    assert stored.records == (poisoned,)
    await kit.publisher.publish(stored.records)
    (letter,) = await _dead(kit, 1)
    assert letter.headers == poisoned.headers


@pytest.mark.parametrize(
    "reason", ["half a pair: \ud83d", "long: " + "x" * 17_000_000], ids=["surrogate", "long"]
)
async def test_reasons_that_cannot_be_written_as_they_are_do_no_harm(kit: Bench, reason: str) -> None:
    async def dies(deliveries: Sequence[Delivery]) -> Result:
        (one,) = deliveries
        if one.id == "s-1":
            return Dead(reason)
        if one.id == "s-2":
            raise EdenError(reason)
        return [answered(one)]

    await kit.put([asked("s", number) for number in range(4)])
    async with running(Worker(stage(dies, dead_share=1.0), kit.around())):
        await kit.answers(2)
        letters = await _dead(kit, 2)
    assert {original(one).key for one in letters} == {b"s-1", b"s-2"}
    for one in letters:
        said = dict(one.headers)["__connect.errors.exception.message"]
        assert said is not None
        assert reason[:5].encode() in said
