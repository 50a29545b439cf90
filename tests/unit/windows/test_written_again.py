"""Messages that are deleted and written again under new ids, with a crash at any write of the stage."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from eden_memory.forgotten import Mark, Marks
from eden_memory.schemas.events import Forgotten, MessageRecorded
from eden_memory.stages.stage import Decision, Delivery, Emit, Erase
from eden_memory.windows import trigger_batch
from eden_memory.windows.session_state import AGAIN_A_DAY
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import Crash, MemoryStore
from tests.unit.windows.records import (
    KnownMarks,
    formations,
    gone,
    message,
    names,
    publish,
    run,
    trigger,
    version,
    watermark,
)

LIMITS = Limits(messages=3, tokens=1_000, least=2, stale=timedelta(minutes=30))
GRACE = timedelta(minutes=1)
S = "s.a"
FORMED = [message(f"s.m{number}", S, number, 0.1 * number, f"text {number}") for number in (1, 2, 3)]
DELETED = [gone(f"s.m{number}", S, 3 + number, 1.0) for number in (1, 2, 3)]
AGAIN = [message(f"s.n{number}", S, 7 + number, 1.1, f"text {number}") for number in (1, 2)]
LATER = [watermark(20, 1.5), watermark(21, 2.5), watermark(22, 4.0), watermark(23, 6.0)]
BATCHES = (FORMED, [*DELETED, *AGAIN], *([one] for one in LATER))


def forgotten(published: Sequence[Emit]) -> dict[str, str | None]:
    """The messages that memory is told to forget, and up to which version."""
    events = (one.event for one in published)
    return {event.id: event.version for event in events if isinstance(event, Forgotten)}


def mark(published: Sequence[Emit], marks: KnownMarks) -> None:
    """Mark what was published as the forgetting stage does."""
    for name, up_to in forgotten(published).items():
        marks.marks.append(Mark("message", name, "up_to_version", up_to))


async def killed_at(store: MemoryStore, crash: int, batches: Sequence[Sequence[Delivery]]) -> list[Emit]:
    """Publish batch after batch; at a crash the next process begins with the batch that was not committed."""
    store.writes_left, published, marks = crash, list[Emit](), KnownMarks()
    stage = trigger(store, forgotten=marks, grace=GRACE)
    for batch in batches:
        try:
            published += await run(stage, batch)
        except Crash:
            store.writes_left, stage = None, trigger(store, forgotten=marks, grace=GRACE)
            published += await run(stage, batch)
        mark(published, marks)
    return published


@pytest.mark.parametrize("crash", range(12))
async def test_what_is_written_again_is_in_one_window_and_only_the_rest_is_forgotten(crash: int) -> None:
    store = MemoryStore(LIMITS)
    published = await killed_at(store, crash, BATCHES)
    assert {asked.formation_id for asked in formations(published)} == set(store.stored_windows)
    assert len(store.stored_windows) == 1
    assert list(forgotten(published)) == ["s.m3"]
    aliases = {name: one.alias_of for name, one in store.stored_messages.items() if one.alias_of}
    assert aliases == {"s.n1": "s.m1", "s.n2": "s.m2"}
    assert store.waiting_in(S) == []
    assert store.stored_sessions[S].deletions == []


@pytest.mark.parametrize("restart", range(len(BATCHES)))
async def test_a_request_that_died_before_it_was_published_is_made_again(restart: int) -> None:
    store, published = MemoryStore(LIMITS), list[Emit]()
    stage = trigger(store, grace=GRACE)
    for index, batch in enumerate(BATCHES):
        if index == restart:
            await stage(batch)  # stored; nothing of it is published
            stage = trigger(store, grace=GRACE)
        published += await run(stage, batch)
    assert list(forgotten(published)) == ["s.m3"]
    assert len(store.stored_windows) == 1


async def test_what_is_written_again_can_be_deleted_and_written_again_under_its_newest_id() -> None:
    store = MemoryStore(LIMITS)
    stage = trigger(store, grace=GRACE)
    second = [gone("s.n1", S, 30, 1.3), message("s.o1", S, 31, 1.35, "text 1"), gone("s.n2", S, 32, 1.35)]
    published = await run(stage, *BATCHES[:2], second, *([one] for one in LATER))
    assert store.stored_messages["s.o1"].alias_of == "s.m1"
    told = forgotten(published)
    assert sorted(told) == ["s.m2", "s.m3"]
    assert told["s.m2"] == gone("s.n2", S, 32, 1.35).envelope.entity_version


async def test_another_text_another_author_and_a_late_one_are_new_messages() -> None:
    store = MemoryStore(LIMITS)
    stage = trigger(store, grace=GRACE)
    others = [
        message("s.x1", S, 8, 1.1, "text 1", user="i.2"),
        message("s.x2", S, 9, 1.1, "another text"),
        message("s.x3", S, 30, 2.2, "text 3"),
    ]
    published = await run(stage, FORMED, DELETED, others[:2], [LATER[0]], [LATER[1]], others[2:], LATER[2:])
    assert sorted(forgotten(published)) == ["s.m1", "s.m2", "s.m3"]
    assert not [one for one in store.stored_messages.values() if one.alias_of]
    assert len(store.stored_windows) == 2


async def test_a_tombstone_in_every_partition_waits_in_that_of_its_session_alone() -> None:
    store = MemoryStore(LIMITS)
    stage = trigger(store, grace=GRACE)
    everywhere = gone("s.m1", None, 4, 1.0)
    elsewhere = everywhere._replace(partition=1)
    published = await run(stage, FORMED, [elsewhere], [everywhere], [elsewhere])
    assert forgotten(published) == {}
    assert not store.stored_messages["s.m1"].alias_of
    published = await run(stage, *([one] for one in LATER))
    assert list(forgotten(published)) == ["s.m1"]


async def test_its_own_record_behind_a_newer_one_is_taken_back() -> None:
    store = MemoryStore(LIMITS)
    stage = trigger(store, grace=GRACE)
    published = await run(stage, FORMED, DELETED, AGAIN)
    named = {one.event.message_id: one.event for one in published if isinstance(one.event, MessageRecorded)}
    echo = AGAIN[0]._replace(event=named["s.n1"])
    decision = await stage([gone("s.n1", S, 30, 1.2), echo])
    assert isinstance(decision, Decision)
    (end,) = [one for one in decision.events if isinstance(one, Erase)]
    assert (end.key, end.reason) == ("s.n1", "dropped")


POSITIONS = [message(f"s.p{number}", S, 1 + number, 0.1, f"text {number}") for number in range(3)]
TRIMMED = [
    *(gone(f"s.p{number}", S, 4 + number, 1.0) for number in range(3)),
    *(message(f"s.p{number}", S, 8 + number, 1.1, f"text {number + 1}") for number in range(3)),
]


@pytest.mark.parametrize("crash", range(10))
async def test_ids_that_number_the_messages_are_no_aliases_of_one_another(crash: int) -> None:
    store = MemoryStore(LIMITS)
    published = await killed_at(store, crash, (POSITIONS, TRIMMED, *([one] for one in LATER)))
    assert forgotten(published) == {f"s.p{number}": version(4 + number) for number in range(3)}
    windows = {asked.formation_id: asked for asked in formations(published)}
    assert [names(asked) for asked in windows.values()] == [["s.p0", "s.p1", "s.p2"]] * 2
    assert [ref.version for ref in list(windows.values())[1].messages] == [version(8 + n) for n in range(3)]
    assert not [one for one in store.stored_messages.values() if one.alias_of or one.deleted]


async def test_a_text_whose_id_has_another_one_by_now_is_a_new_message() -> None:
    store = MemoryStore(LIMITS)
    stage = trigger(store, grace=GRACE)
    await run(stage, POSITIONS, TRIMMED, [message("s.q", S, 12, 1.2, "text 0")])
    assert (store.stored_messages["s.q"].alias_of, store.waiting_in(S)) == (None, ["s.q"])


@pytest.mark.parametrize("grace", [timedelta(0), GRACE])
async def test_a_deletion_that_does_not_wait_is_said_again_after_a_crash(
    grace: timedelta, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(LIMITS)
    await run(trigger(store, grace=grace), FORMED)
    monkeypatch.setattr(trigger_batch, "MOST_WAITING", 0)
    await trigger(store, grace=grace)(DELETED)  # stored; nothing of it is published
    monkeypatch.undo()
    published = await run(trigger(store, grace=GRACE), DELETED)
    assert list(forgotten(published)) == ["s.m1", "s.m2", "s.m3"]
    assert store.stored_sessions[S].deletions == []


async def test_a_deletion_that_does_not_wait_is_said_again_when_its_id_has_another_text_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore(LIMITS)
    await run(trigger(store, grace=GRACE), FORMED)
    monkeypatch.setattr(trigger_batch, "MOST_WAITING", 0)
    batch = [
        *DELETED,
        *(message(f"s.m{number}", S, 7 + number, 1.1, f"other {number}") for number in (1, 2, 3)),
    ]
    await trigger(store, grace=GRACE)(
        batch
    )  # stored, with a window of the other texts; nothing of it is published
    assert len(store.stored_windows) == 2
    published = await run(trigger(store, grace=GRACE), batch)
    assert forgotten(published) == {f"s.m{number}": version(3 + number) for number in (1, 2, 3)}


async def test_its_own_record_behind_an_edit_leaves_the_text_in_the_topic() -> None:
    store = MemoryStore(LIMITS)
    stage = trigger(store, grace=GRACE)
    edit = message("s.n1", S, 9, 1.2, "text 1", edited=True)
    published = await run(stage, FORMED, DELETED, [AGAIN[0], edit])
    echoes = [
        AGAIN[0]._replace(event=one.event) for one in published if isinstance(one.event, MessageRecorded)
    ]
    assert [echo.event.version for echo in echoes if isinstance(echo.event, MessageRecorded)] == [
        version(8),
        version(9),
    ]
    decision = await stage(echoes)
    assert isinstance(decision, Decision)
    assert decision.events == []


@dataclass
class MarkedMeanwhile(KnownMarks):
    """Forgetting marks the new id once the stage has looked for marks."""

    looks: int = 0

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        wanted = set(named)
        self.looks += ("message", "s.n1") in wanted
        if self.looks == 2:
            self.marks.append(Mark("message", "s.n1", "for_ever", by_hand=True))
        return await super().among(wanted)


async def test_a_new_id_that_is_forgotten_while_it_becomes_an_alias_forgets_the_first() -> None:
    store, marks = MemoryStore(LIMITS), MarkedMeanwhile()
    stage = trigger(store, forgotten=marks, grace=GRACE)
    await run(stage, FORMED, DELETED)
    for attempt in (stage, trigger(store, forgotten=marks, grace=GRACE)):  # the second after a crash
        decision = await attempt(AGAIN)
        assert isinstance(decision, Decision)
        assert forgotten(publish(decision)) == {"s.m1": version(8)}
        last = [one for one in decision.events if "s.n1" in (getattr(one, "key", None), _message_of(one))][-1]
        assert isinstance(last, Erase)
    assert store.stored_messages["s.m1"].forgotten


def _message_of(one: object) -> str | None:
    event = one.event if isinstance(one, Emit) else None
    return event.message_id if isinstance(event, MessageRecorded) else None


async def test_a_deletion_hides_until_forgetting_has_marked_its_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, marks = MemoryStore(LIMITS), KnownMarks()
    stage = trigger(store, forgotten=marks, grace=GRACE)
    published = await run(stage, FORMED, DELETED, *([one] for one in LATER), [watermark(24, 60)])
    assert [one.message_id for one in store.stored_sessions[S].deletions] == ["s.m1", "s.m2", "s.m3"]
    monkeypatch.setattr(trigger_batch, "MOST_WAITING", 2)
    await run(stage, [watermark(25, 60.5)])
    assert [one.message_id for one in store.stored_sessions[S].deletions] == ["s.m2", "s.m3"]
    mark(published, marks)
    await run(stage, [watermark(26, 61)])
    assert store.stored_sessions[S].deletions == []


async def test_what_is_written_again_forms_anew_no_more_often_in_a_day() -> None:
    store = MemoryStore(LIMITS)
    stage = trigger(store, grace=GRACE)
    published = await run(stage, FORMED)
    for number in range(AGAIN_A_DAY + 2):
        at, named = 10.0 * (number + 1), "s.m1" if number == 0 else f"s.n{number}"
        said, place = f"another text {number}", 100 * (number + 1)
        batches = [
            [message(named, S, place, at, said, edited=True), watermark(place + 1, at + 2)],
            [gone(named, S, place + 2, at + 3)],
            [message(f"s.n{number + 1}", S, place + 3, at + 3.1, said), watermark(place + 4, at + 3.2)],
        ]
        published += await run(stage, *batches)
    edited = {one.formation_id for one in formations(published) if one.closed_because == "edited"}
    assert len(edited) == AGAIN_A_DAY
