"""Edits of a text after its formation: the earlier text is forgotten, and the new one forms once it is still."""

from datetime import timedelta

import pytest

from eden_memory.forgotten import Mark
from eden_memory.schemas.events import Forgotten, FormationRequested
from eden_memory.stages.stage import Decision, Delivery, Emit
from eden_memory.windows.session_state import AGAIN_A_DAY
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
    NOON,
    KnownMarks,
    Sessions,
    asked,
    formations,
    gone,
    message,
    names,
    run,
    trigger,
    version,
    watermark,
)

S = "s.s"
SAID = "My PIN is 4471. I like tea."
WRITTEN = [
    message("s.m1", S, 1, 0, "What do you like?"),
    message("s.m2", S, 2, 0.1, SAID),
    message("s.m3", S, 3, 0.2, "Noted."),
    asked(S, 4, 0.3),
]


def edit(number: int, minutes: float, text: str = "I like tea.", name: str = "s.m2") -> Delivery:
    return message(name, S, number, minutes, text, edited=True)


def windows(published: list[Emit]) -> list[FormationRequested]:
    """The requests, repeats of a later process left out."""
    return list({one.formation_id: one for one in formations(published)}.values())


def about_edits(published: list[Emit]) -> list[FormationRequested]:
    return [one for one in windows(published) if one.closed_because == "edited"]


def forgotten(published: list[Emit]) -> list[tuple[str, str | None]]:
    """Each message that an edit forgot, with the version up to which, repeats left out."""
    told = [one.event for one in published if isinstance(one.event, Forgotten)]
    assert all((one.reach, one.because) == ("up_to_version", "edited") for one in told)
    return list(dict.fromkeys((one.id, one.version) for one in told))


async def test_the_earlier_text_is_forgotten_at_once_and_the_new_one_forms_alone_with_what_stood_before_it() -> (
    None
):
    store = MemoryStore(Limits())
    (first,) = formations(await run(trigger(store), WRITTEN))
    published = await run(trigger(store), [edit(10, 5), watermark(11, 5.9)])
    assert forgotten(published) == [("s.m2", version(2))]
    assert [one.text for one in store.stored_windows[first.formation_id].messages] == [
        "What do you like?",
        None,
        "Noted.",
    ]
    assert not about_edits(published)
    (again,) = about_edits(await run(trigger(store), [watermark(12, 6)]))
    assert (names(again), again.closed_because, again.messages[0].version) == (
        ["s.m2"],
        "edited",
        version(10),
    )
    assert [one.message_id for one in again.before] == ["s.m1"]
    stored = store.stored_messages["s.m2"]
    assert (stored.formation_id, stored.text) == (again.formation_id, None)


async def test_edits_within_a_minute_form_once_and_each_later_one_again() -> None:
    store = MemoryStore(Limits())
    stage = trigger(store)
    await run(stage, WRITTEN)
    published = await run(stage, [edit(10, 5, "I like"), edit(11, 5.8), watermark(12, 6.5)])
    assert not about_edits(published)
    published += await run(stage, [watermark(13, 6.8)])
    assert [one.messages[0].version for one in about_edits(published)] == [version(11)]
    published += await run(stage, [edit(20, 9, "I like coffee."), watermark(21, 10)])
    assert [one.messages[0].version for one in about_edits(published)] == [version(11), version(20)]
    assert forgotten(published) == [("s.m2", version(2)), ("s.m2", version(11))]


@pytest.mark.parametrize(
    "record",
    [
        message("s.m2", S, 10, 5, "I like tea."),
        message("s.m2", S, 10, 5, SAID, edited=True),
        message("s.m2", S, 10, 5, "I like tea.", origin="merge", edited=True),
        message("s.m2", S, 10, 5, "I like tea.", origin="reread", edited=True),
    ],
    ids=["another field", "a replacement with the same text", "a merge", "a corrected mapping"],
)
async def test_what_is_no_edit_of_the_text_changes_nothing(record: Delivery) -> None:
    store = MemoryStore(Limits())
    stage = trigger(store)
    await run(stage, WRITTEN)
    assert not await run(stage, [record, watermark(11, 30)])
    assert SAID in [one.text for window in store.stored_windows.values() for one in window.messages]
    assert forgotten(await run(stage, [edit(12, 31, "No tea.")])) == [("s.m2", version(10))]


async def test_after_a_crash_before_anything_was_published_the_same_is_said_again() -> None:
    store = MemoryStore(Limits())
    await run(trigger(store), WRITTEN)
    batch = [edit(10, 5), watermark(11, 6)]
    decided, again = await trigger(store)(batch), await run(trigger(store), batch)
    assert isinstance(decided, Decision)
    first = [one for one in decided.events if isinstance(one, Emit)]
    assert [one.event.json_bytes() for one in first] == [one.event.json_bytes() for one in again]
    assert forgotten(again)
    assert len(about_edits(again)) == 1


async def test_a_message_forms_again_five_times_a_day_and_its_last_text_after_that() -> None:
    store = MemoryStore(Limits())
    stage = trigger(store)
    published = await run(stage, WRITTEN)
    for number in range(1, AGAIN_A_DAY + 3):
        at = number * 10
        published += await run(
            stage, [edit(10 * number, at, f"Tea {number}."), watermark(10 * number + 1, at + 1)]
        )
    assert len(about_edits(published)) == AGAIN_A_DAY
    stage = trigger(store)  # what waits for the next day is found again
    published = await run(stage, [watermark(500, 11 + 24 * 60 - 1)])
    assert not about_edits(published)
    (last,) = about_edits(await run(stage, [watermark(501, 11 + 24 * 60)]))
    assert last.messages[0].version == version(10 * (AGAIN_A_DAY + 2))
    assert last.closed_at == NOON + timedelta(minutes=11, days=1)


async def test_the_earlier_text_hides_from_the_edit_on_until_it_is_marked() -> None:
    store, marks = MemoryStore(Limits()), KnownMarks()
    stage = trigger(store, forgotten=marks, grace=timedelta(minutes=1))
    batch = [edit(10, 5)]
    published = await run(stage, WRITTEN, batch, batch, [watermark(11, 6)], [watermark(12, 6.5)])
    hidden = [(one.message_id, one.version) for one in store.stored_sessions[S].deletions]
    assert hidden == forgotten(published) == [("s.m2", version(2))]
    marks.marks.append(Mark("message", "s.m2", "up_to_version", version(2)))
    published += await run(stage, [watermark(13, 7)])
    assert store.stored_sessions[S].deletions == []
    assert forgotten(published) == [("s.m2", version(2))]


async def test_where_edited_texts_are_only_forgotten_nothing_forms_and_nothing_waits() -> None:
    store = MemoryStore(Limits(forms_edited=False))
    published = await run(trigger(store), WRITTEN, [edit(10, 5)], [edit(11, 6, "Tea?"), watermark(12, 90)])
    assert forgotten(published) == [("s.m2", version(2)), ("s.m2", version(10))]
    assert [one.closed_because for one in windows(published)] == ["asked"]
    assert not store.waiting_in(S)


async def test_an_emptied_text_is_forgotten_and_forms_when_it_has_words_again() -> None:
    store = MemoryStore(Limits())
    published = await run(trigger(store), WRITTEN, [edit(10, 5, ""), watermark(11, 90)])
    assert forgotten(published) == [("s.m2", version(2))]
    published += await run(trigger(store), [edit(12, 91), watermark(13, 92)])
    assert [one.closed_because for one in windows(published)] == ["asked", "edited"]


async def test_whoever_is_switched_off_by_now_still_has_the_earlier_text_forgotten() -> None:
    store, sessions = MemoryStore(Limits()), Sessions()
    await run(trigger(store, sessions), WRITTEN)
    sessions.off_users.add("i.1")
    published = await run(trigger(store, sessions), [edit(10, 5), watermark(11, 90)])
    assert forgotten(published) == [("s.m2", version(2))]
    assert not about_edits(published)


async def test_windows_of_the_session_go_on_beside_an_edit_that_waits() -> None:
    store = MemoryStore(Limits())
    published = await run(trigger(store), WRITTEN)
    published += await run(trigger(store), [edit(10, 5)], [message("s.m4", S, 11, 5.1), asked(S, 12, 5.2)])
    assert [names(one) for one in windows(published)][1:] == [["s.m4"]]
    assert store.waiting_in(S) == ["s.m2"]
    published += await run(trigger(store), [watermark(13, 6)], [message("s.m5", S, 14, 7), asked(S, 15, 8)])
    again, after = windows(published)[2:]
    assert (names(again), names(after)) == (["s.m2"], ["s.m5"])
    assert [one.message_id for one in after.before] == ["s.m4"], "an edit is not what was said last"


async def test_an_edit_that_waits_forms_nothing_once_its_message_is_deleted() -> None:
    store = MemoryStore(Limits())
    published = await run(
        trigger(store), WRITTEN, [edit(10, 5)], [gone("s.m2", S, 11, 5.5), watermark(12, 90)]
    )
    assert len(windows(published)) == 1
    assert not store.waiting_in(S)
