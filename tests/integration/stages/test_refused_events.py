"""Events that the broker will never take: a dead letter beside their topic, and the stage goes on."""

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest

from eden_memory.stages import dead_letters
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Worker
from tests.awaiting import gives
from tests.integration.kafka_limits import limit
from tests.integration.stages.harness import (
    Answered,
    Asked,
    Bench,
    Unanswered,
    answered,
    asked,
    consuming,
    questions,
    running,
    stage,
    until,
)

pytestmark = pytest.mark.servers
LONG = os.urandom(60_000).hex()
"""Compressed it has 60,000 bytes."""


async def talkative(deliveries: Sequence[Delivery]) -> list[Emitted]:
    """The second answer of session s0 is too long for its topic."""
    return [answered(one, LONG if one.key == "s0-1" else "yes") for one in deliveries]


async def test_an_event_that_is_too_large_is_a_dead_letter_and_the_others_go_on(kit: Bench) -> None:
    limit(kit.settings, kit.topic(Answered), 20_000)
    await kit.put(questions(4, 5))
    async with running(Worker(stage(talkative, together=5), kit.around())):
        await kit.answers(19)
        (letter,) = await kit.dead(1)
        await until(lambda: gives(kit.committed(), 20), "everything is committed")
    assert (letter.key, LONG.encode() in (letter.value or b"")) == (b"s0-1", True)
    assert letter.reason.startswith("MessageSizeTooLargeError: ")
    assert (letter.topic, letter.partition, letter.stage) == (kit.topic(Answered), None, "answering")
    assert LONG not in letter.reason + letter.trace
    assert letter.cut is None


async def test_a_stored_event_that_is_too_large_is_met_again_after_a_restart(kit: Bench) -> None:
    await kit.put(questions(2, 2))
    async with running(Worker(stage(talkative), kit.around())):
        await kit.answers(4)
    limit(kit.settings, kit.topic(Answered), 20_000)
    calls: list[str] = []

    async def counted(deliveries: Sequence[Delivery]) -> list[Emitted]:
        calls.extend(one.key for one in deliveries)
        return await talkative(deliveries)

    async with running(Worker(stage(counted), kit.under("again"))):
        await kit.read(kit.topic(Answered), 7)
        (letter,) = await kit.dead(1)
        await kit.put([asked("s0", 2)])
        await kit.answers(5)
    assert letter.key == b"s0-1"
    assert calls == ["s0-2"], "what is decided is not asked anew"


async def test_a_refused_event_has_its_stand_in(kit: Bench) -> None:
    limit(kit.settings, kit.topic(Answered), 20_000)

    def stand_in(one: Delivery, reason: str) -> list[Emitted]:
        del reason
        assert isinstance(one.event, Asked)
        return [
            answered(one, "could not be said"),
            Unanswered(session=one.event.session, number=one.event.number),
        ]

    await kit.put(questions(1, 3))
    async with running(Worker(stage(talkative, on_dead=stand_in), kit.around())):
        found = await kit.answers(3)
    assert [one.key for one in found if b"could not be said" in (one.value or b"")] == [b"s0-1"]
    assert all(b"Unanswered" not in (dict(one.headers)["ce_type"] or b"") for one in found), (
        "it was published itself"
    )


async def test_a_record_that_is_too_large_for_a_letter_is_cut(
    kit: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "LONGEST_VALUE", 40_000)
    broken = replace(asked("s0", 0), value=os.urandom(100_000))
    await kit.put([broken, asked("s0", 1)])
    async with running(Worker(stage(), kit.around())):
        await kit.answers(1)
        (letter,) = await kit.dead(1)
    assert broken.value is not None
    assert (letter.value, letter.cut) == (broken.value[:40_000], 100_000)


async def test_records_too_large_together_are_sent_one_by_one(kit: Bench) -> None:
    topic = kit.topic(Answered)
    limit(kit.settings, topic, 100_000)
    records = [replace(asked("s", number), topic=topic, value=os.urandom(30_000)) for number in range(12)]
    await kit.publisher.publish(records)
    async with consuming(kit.client, topic):
        found = await kit.read(topic, 12)
    assert [one.key for one in found] == [one.key for one in records]
