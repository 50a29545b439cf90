"""Dead letters while processes are killed, partitions move, people repeat themselves, and things are forgotten."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.forgotten import Mark
from eden_memory.schemas.documents import DeadLetter, LetterSource
from eden_memory.stages.dead_letter_store import DEAD_LETTER_INDEXES, KEPT, DeadLetters
from eden_memory.stages.stage import Dead, Delivery, Result
from eden_memory.stages.worker import Worker
from tests.awaiting import gives
from tests.integration.stages.harness import NOON, Bench, answered, asked, running, stage, until

pytestmark = pytest.mark.servers


async def dies(deliveries: Sequence[Delivery]) -> Result:
    """Nothing can be done with it."""
    del deliveries
    return Dead("broken")


async def mended(deliveries: Sequence[Delivery]) -> Result:
    """What can be done once it is mended."""
    return [answered(one) for one in deliveries]


async def _dead_letter(kit: Bench) -> DeadLetter:
    """The one dead letter of a question that no stage could answer."""
    await kit.put([asked("s", 0)])
    async with running(Worker(stage(dies), kit.around())):
        (letter,) = await kit.dead(1)
    return letter


async def _ask(kit: Bench, letter: DeadLetter) -> None:
    assert await kit.letters.ask(letter)
    await kit.controls.tell()


async def _is(kit: Bench, letter: DeadLetter, state: str) -> bool:
    found = await kit.letters.get(letter.id)
    return found is not None and found.state == state


async def test_a_retry_whose_stage_is_stopped_while_it_is_decided_is_published_by_the_next(
    kit: Bench,
) -> None:
    letter = await _dead_letter(kit)
    began, gate, calls = asyncio.Event(), asyncio.Event(), 0

    async def slow(deliveries: Sequence[Delivery]) -> Result:
        nonlocal calls
        calls += 1
        began.set()
        await gate.wait()
        return [answered(deliveries[0], "at last")]

    stopped = Worker(stage(slow), kit.around())

    async def open_() -> None:
        await until(lambda: not stopped.membership.homes, "it has let go of its partitions")
        gate.set()

    async with running(stopped, deadline=60.0):
        await _ask(kit, letter)
        await asyncio.wait_for(began.wait(), 60)
        opening = asyncio.create_task(open_())
    await opening
    assert await _is(kit, letter, "asked"), "nothing is published yet"
    async with running(Worker(stage(slow), kit.around())):
        (answer,) = await kit.answers(1)
        await until(lambda: _is(kit, letter, "published"), "said so")
    assert b"at last" in (answer.value or b"")
    assert calls == 1, "decided once"


class Killed(DeadLetters):
    """A process that dies once its letter is stored: nothing that it would do afterwards happens."""

    stored: asyncio.Event

    async def put(self, letters: Sequence[DeadLetter]) -> None:
        await super().put(letters)
        self.stored.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("decides", [True, False])
async def test_killed_between_its_letter_and_its_offset_a_stage_leaves_one_letter_and_loses_nothing(
    kit: Bench, decides: bool
) -> None:
    await kit.put([asked("s", 0), asked("s", 1)])
    killed = Killed(kit.database, kit.settings.names, MongoForgetting(kit.database, kit.settings.names))
    killed.stored = asyncio.Event()

    async def poisoned(deliveries: Sequence[Delivery]) -> Result:
        return Dead("poison") if deliveries[0].id == "s-0" else [answered(deliveries[0])]

    first = asyncio.create_task(Worker(stage(poisoned, decides=decides), kit.around(letters=killed)).run(0.0))
    await asyncio.wait_for(killed.stored.wait(), 60)
    assert await kit.committed() == 0
    (before,) = await kit.dead(1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    async with running(Worker(stage(poisoned, decides=decides), kit.around())):
        (answer,) = await kit.answers(1)
        await until(lambda: gives(kit.committed(), 2), "everything is committed")
    assert answer.key == b"s-1"
    assert await kit.dead(1) == [before]


async def test_what_still_cannot_be_read_keeps_its_letter(kit: Bench) -> None:
    await kit.put([replace(asked("s", 0), value=b"{}")])
    async with running(Worker(stage(dies), kit.around())):
        (first,) = await kit.dead(1)
        await _ask(kit, first)
        await until(lambda: _is(kit, first, "dead"), "said so")
    (again,) = await kit.dead(1)
    assert (again.id, again.value, again.retries) == (first.id, b"{}", 1)
    assert first.at < again.at


async def test_a_group_that_begins_anew_leaves_no_letter_again_that_was_settled(kit: Bench) -> None:
    await kit.put([asked("dropped", 0), asked("mended", 1), replace(asked("unreadable", 2), value=b"{}")])
    async with running(Worker(stage(dies), kit.around())):
        letters = {letter.key: letter for letter in await kit.dead(3)}
    await kit.letters.settle([letters[key].id for key in (b"dropped-0", b"unreadable-2")], "dropped")
    async with running(Worker(stage(mended), kit.around())):
        await _ask(kit, letters[b"mended-1"])
        await until(lambda: _is(kit, letters[b"mended-1"], "published"), "said so")
    async with running(worker := Worker(stage(mended), kit.under("anew"))):
        await until(lambda: worker.membership.homes and not worker.membership.behind(), "all is read")
    found = await kit.dead(3)
    assert {letter.state for letter in found} == {"dropped", "published"}
    assert not any(letter.value for letter in found)


async def test_a_letter_that_is_gone_ends_no_stage_and_hides_no_other(kit: Bench) -> None:
    await kit.put([asked("s", 0), asked("t", 0)])
    async with running(Worker(stage(dies), kit.around())):
        gone, left = await kit.dead(2)
    for letter in (gone, left):
        assert await kit.letters.ask(letter)
    await kit.letters.erase([gone.id])
    async with running(Worker(stage(mended), kit.around())):
        await until(lambda: _is(kit, left, "published"), "the other one is published")


async def test_a_letter_that_is_forgotten_while_it_is_stored_does_not_stay(kit: Bench) -> None:
    """Forgetting looks for letters before this one is there; its writer looks for marks afterwards."""
    marks = MongoForgetting(kit.database, kit.settings.names)
    letter = replace_named(await _dead_letter(kit), "session:s.s")
    await kit.letters.erase([letter.id])
    mark = Mark("session", "s.s", "created_up_to", until=NOON + timedelta(days=1))
    await marks.mark([mark], "forgetting", NOON)
    assert await kit.letters.naming(mark) == ([], None)
    await kit.letters.put([letter])
    assert await kit.letters.get(letter.id) is None


async def test_forgetting_finds_the_letters_that_are_there(kit: Bench) -> None:
    marks = MongoForgetting(kit.database, kit.settings.names)
    letter = replace_named(await _dead_letter(kit), "session:s.s")
    await kit.letters.erase([letter.id])
    await kit.letters.put([letter])
    mark = Mark("session", "s.s", "created_up_to", until=NOON + timedelta(days=1))
    await marks.mark([mark], "forgetting", NOON)
    assert await kit.letters.naming(mark) == ([letter.id], None)
    assert await kit.letters.naming(mark, letter.id, 1) == ([], None)


def replace_named(letter: DeadLetter, name: str) -> DeadLetter:
    """The letter, as if its text named this."""
    session = name.removeprefix("session:")
    source = LetterSource(message_id="s.m", version="1", session_id=session, time=NOON)
    return letter.model_copy(update={"named": (name,), "sources": (source,)})


async def test_letters_are_removed_30_days_after_they_were_stored_by_the_servers_clock(kit: Bench) -> None:
    await _dead_letter(kit)
    indexes = await kit.database.memory_dead_letters.index_information()
    assert indexes["since_1"]["expireAfterSeconds"] == KEPT.total_seconds() == 30 * 24 * 3_600
    assert len(indexes) == 1 + len(DEAD_LETTER_INDEXES["dead_letters"])
    age = {"$project": {"age": {"$subtract": ["$$NOW", "$since"]}}}
    (row,) = await (await kit.database.memory_dead_letters.aggregate([age])).to_list()
    assert 0 <= row["age"] < 600_000
