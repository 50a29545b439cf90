"""Records and errors that are hard to write down: each is a dead letter, and the stage goes on."""

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from eden_memory.errors import EdenError
from eden_memory.schemas.envelope import NAME_NOT_UTF8, VALUE_OF_NOT_UTF8
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.stage import Dead, Delivery, Result
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import (
    Asked,
    Bench,
    answered,
    asked,
    running,
    stage,
)
from tests.poisoned import BAD, PLACE, batch

pytestmark = pytest.mark.servers


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
        (letter,) = await kit.dead(1)
        await kit.answers(1)
    assert letter.value == poisoned.value
    assert letter.headers == (("x", None), ("ce_orderingkey", None))
    assert "ce_type is missing" in letter.reason


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
        (letter,) = await kit.dead(1)
        await kit.answers(2)
    assert letter.value == poisoned.value
    assert letter.headers[len(poisoned.headers) :] == ((NAME_NOT_UTF8, BAD), (VALUE_OF_NOT_UTF8, b"\xfe"))
    assert "is not UTF-8: b'bad\\xffname'" in letter.reason


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
        letters = await kit.dead(2)
    assert {one.key for one in letters} == {b"s-1", b"s-2"}
    for one in letters:
        assert reason[:5] in one.reason
