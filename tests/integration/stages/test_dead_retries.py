"""Dead letters tried again while partitions move, brokers are slow, and people repeat themselves."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from aiokafka import TopicPartition

from eden_memory.kafka.record import Record
from eden_memory.stages import dead_letters
from eden_memory.stages.dead_letter_reading import dead_letter_of
from eden_memory.stages.dead_letters import read_at
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.stage import Dead, Delivery, Result
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Asked, Bench, answered, asked, running, stage, until

pytestmark = pytest.mark.servers


async def dies(deliveries: Sequence[Delivery]) -> Result:
    """Nothing can be done with it."""
    del deliveries
    return Dead("broken")


async def _dead_letter(kit: Bench) -> Record:
    """The one dead letter of a question that no stage could answer."""
    await kit.put([asked("s", 0)])
    async with running(Worker(stage(dies), kit.around())):
        (letter,) = await kit.read(kit.topic(Asked) + ".dead", 1)
    return letter


async def _ask(kit: Bench, letter: Record) -> str:
    request = dead_letter_of(letter).retry()
    assert request is not None
    assert await kit.controls.ask_dead_retry(request)
    return request.id


async def test_a_retry_whose_stage_is_stopped_while_it_is_decided_is_published_by_the_next(
    kit: Bench,
) -> None:
    letter = await _dead_letter(kit)
    began, gate, calls = asyncio.Event(), asyncio.Event(), 0

    async def mended(deliveries: Sequence[Delivery]) -> Result:
        nonlocal calls
        calls += 1
        began.set()
        await gate.wait()
        return [answered(deliveries[0], "at last")]

    stopped = Worker(stage(mended), kit.around())

    async def open_() -> None:
        await until(lambda: not stopped.membership.homes, "it has let go of its partitions")
        gate.set()

    async with running(stopped, deadline=60.0):
        retry = await _ask(kit, letter)
        await asyncio.wait_for(began.wait(), 60)
        opening = asyncio.create_task(open_())
    await opening
    assert (await kit.controls.dead_states())[retry] == "asked", "nothing is published yet"
    async with running(Worker(stage(mended), kit.around())):
        (answer,) = await kit.answers(1)
        await until(lambda: _published(kit, retry), "said so")
    assert b"at last" in (answer.value or b"")
    assert calls == 1, "decided once"


async def test_what_still_cannot_be_read_leaves_a_letter_of_its_own(kit: Bench) -> None:
    await kit.put([replace(asked("s", 0), value=b"{}")])
    worker = Worker(stage(dies), kit.around())
    async with running(worker):
        (letter,) = await kit.read(kit.topic(Asked) + ".dead", 1)
        retry = await _ask(kit, letter)
        await until(lambda: _state(kit, retry, "dead again"), "said so")
        first, second = await kit.read(kit.topic(Asked) + ".dead", 2)
    assert first.value == second.value == b"{}"
    assert dead_letter_of(first).at < dead_letter_of(second).at, "not the first one published again"


async def test_a_group_that_begins_anew_leaves_no_letter_again_that_was_settled(kit: Bench) -> None:
    questions = [asked("dropped", 0), asked("mended", 1), asked("open", 2)]
    unreadable = replace(asked("unreadable", 3), value=b"{}")
    await kit.put([*questions, unreadable])
    dead = kit.topic(Asked) + ".dead"
    async with running(Worker(stage(dies), kit.around())):
        letters = {letter.key: letter for letter in map(dead_letter_of, await kit.read(dead, 4))}

    async def mended(deliveries: Sequence[Delivery]) -> Result:
        return [answered(deliveries[0])]

    for key in (b"dropped-0", b"unreadable-3"):
        await kit.ledger.settled("answering", letters[key].known_as, dead)
    async with running(Worker(stage(mended), kit.around())):
        retry = await _ask(kit, letters[b"mended-1"].record)
        await until(lambda: _published(kit, retry), "said so")
    async with running(Worker(stage(mended), kit.under("anew"))) as workers:
        again = (await kit.read(dead, 5))[4:]
        await kit.put([asked("dropped", 4), asked("mended", 5), asked("unreadable", 6)])
        await kit.answers(4)
        assert not any(one.done() for one in workers)
    assert [dead_letter_of(letter).key for letter in again] == [b"open-2"], "of what is not settled"
    assert len(await kit.read(dead, 5)) == 5


async def _state(kit: Bench, retry: str, state: str) -> bool:
    return (await kit.controls.dead_states())[retry] == state


async def _published(kit: Bench, retry: str) -> bool:
    return await _state(kit, retry, "published")


async def test_a_broker_that_does_not_answer_in_time_is_not_a_letter_that_is_gone(
    kit: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    letter = await _dead_letter(kit)
    tp = TopicPartition(letter.topic, letter.partition)
    found = await read_at(kit.client, tp, letter.offset)
    assert found is not None
    assert found.value == letter.value
    assert await read_at(kit.client, tp, letter.offset + 10) is None
    monkeypatch.setattr(dead_letters, "READ_SECONDS", 0.0)
    with pytest.raises(TimeoutError):
        await read_at(kit.client, tp, letter.offset)


async def test_a_letter_that_cannot_be_read_ends_no_stage_and_hides_no_other(kit: Bench) -> None:
    letter = await _dead_letter(kit)
    good = dead_letter_of(letter).retry()
    assert good is not None
    await kit.publisher.publish([StoredRecord(letter.topic, b"k", b"k", b"{}", ())])
    wrong = replace(good, id="another", dead_offset=letter.offset + 1)
    for asked_for in (wrong, good):
        assert await kit.controls.ask_dead_retry(asked_for)

    async def mended(deliveries: Sequence[Delivery]) -> Result:
        return [answered(deliveries[0])]

    async with running(Worker(stage(mended), kit.around())):
        await until(lambda: _published(kit, good.id), "the other one is published")
        await until(lambda: _state(kit, wrong.id, "gone"), "noted that it is gone")
