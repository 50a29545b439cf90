"""When windows close: counts, tokens, cold, stale, asked, ended; what edits, deletions and moves do to them."""

import asyncio
from collections.abc import Iterable

import pytest
from prometheus_client import REGISTRY

from eden_memory.directory.participants import Missing, SessionFacts
from eden_memory.forgotten import Mark, Marks
from eden_memory.metrics import TRIGGER_EMPTY, TRIGGER_MISSING, TRIGGER_WINDOWS
from eden_memory.processors import formation_trigger
from eden_memory.schemas.events import Forgotten
from eden_memory.stages.stage import Decision, Delivery
from eden_memory.windows.formation_requests import BatchWrite
from eden_memory.windows.window_rule import Limits
from tests.counted import Grown
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
    KnownMarks,
    Sessions,
    asked,
    ended,
    formations,
    gone,
    message,
    names,
    publish,
    run,
    trigger,
    watermark,
)

S = "s.s"


def some(count: int, first: int = 1, minutes: float = 0, text: str = "hello there") -> list[Delivery]:
    """Messages m<first>… of the session, a second apart."""
    return [message(f"s.m{one}", S, one, minutes + one / 60, text) for one in range(first, first + count)]


def mapped(delivery: Delivery) -> Delivery:
    """The record of a message that a field mapping has read."""
    assert delivery.event is not None
    return delivery._replace(event=delivery.event.model_copy(update={"mapping": "2.abc"}))


async def test_45_messages_close_a_window() -> None:
    published = await run(trigger(MemoryStore(Limits())), some(44), some(2, 45))
    (one,) = formations(published)
    assert (names(one), one.closed_because) == ([f"s.m{n}" for n in range(1, 46)], "messages")


async def test_weighted_tokens_close_a_window_of_at_least_four() -> None:
    long = "x" * 4_500  # 1,000 tokens of a user, 200 of an assistant
    store = MemoryStore(Limits())
    stage = trigger(store)
    assert not await run(stage, some(3, text=long))
    (one,) = formations(await run(stage, some(1, 4, text=long)))
    assert (len(one.messages), one.closed_because, one.weighted_tokens) == (4, "tokens", 4_000)
    said = [message(f"s.a{n}", "s.b", n, 0, long, role="assistant") for n in range(1, 9)]
    (other,) = formations(await run(stage, said))
    assert len(other.messages) == 8


async def test_a_message_after_ten_minutes_closes_the_cold_window_before_it() -> None:
    published = await run(trigger(MemoryStore(Limits())), some(4), some(1, 5, minutes=11))
    (one,) = formations(published)
    assert (names(one), one.closed_because) == (["s.m1", "s.m2", "s.m3", "s.m4"], "cold")


async def test_a_watermark_closes_what_is_cold_by_then_and_nothing_sooner() -> None:
    stage = trigger(MemoryStore(Limits()))
    assert not await run(stage, some(4), [watermark(90, 10)])
    (one,) = formations(await run(stage, [watermark(91, 10.5)]))
    assert (len(one.messages), one.closed_because) == (4, "cold")


async def test_fewer_than_four_go_stale_after_a_day_unless_that_is_switched_off() -> None:
    never = Limits(stale=None)
    assert not await run(trigger(MemoryStore(never)), some(3), [watermark(90, 30_000)])
    published = await run(
        trigger(MemoryStore(Limits())), some(1), [watermark(90, 1_400)], [watermark(91, 1_441)]
    )
    (one,) = formations(published)
    assert one.closed_because == "stale"


async def test_the_end_of_a_session_closes_a_window_even_with_nothing_pending() -> None:
    published = await run(trigger(MemoryStore(Limits())), some(2), [ended(S, 10, 1)], [ended(S, 11, 2)])
    first, second = formations(published)
    assert (names(first), names(second)) == (["s.m1", "s.m2"], [])
    assert (first.closed_because, second.closed_because, second.first_at) == ("ended", "ended", None)


async def test_asking_forms_what_is_pending_and_nothing_where_nothing_is() -> None:
    published = await run(trigger(MemoryStore(Limits())), some(1), [asked(S, 10, 1)], [asked(S, 11, 2)])
    (one,) = formations(published)
    assert (names(one), one.closed_because, one.asked_by) == (["s.m1"], "asked", "ana")


async def test_a_repeated_control_record_closes_nothing_more() -> None:
    again = asked(S, 10, 1)
    published = await run(trigger(MemoryStore(Limits())), some(1), [again], some(1, 2), [again])
    assert len({one.formation_id for one in formations(published)}) == 1


async def test_asking_for_what_is_due_forms_by_the_rule_alone() -> None:
    store = MemoryStore(Limits())
    assert not await run(trigger(store), some(44), [asked(S, 100, 3, if_due=True)])
    lowered = MemoryStore(Limits(messages=40))
    lowered.stored_sessions, lowered.stored_messages = store.stored_sessions, store.stored_messages
    lowered.places = store.places
    (one,) = formations(await run(trigger(lowered), [asked(S, 101, 3, if_due=True)]))
    assert (len(one.messages), one.closed_because) == (44, "messages")


@pytest.mark.parametrize(("count", "minutes", "because"), [(4, 9.9, None), (3, 60, None), (4, 10.1, "cold")])
async def test_asking_for_what_is_due_takes_a_cold_session_and_no_other(
    count: int, minutes: float, because: str | None
) -> None:
    published = await run(trigger(MemoryStore(Limits())), some(count), [asked(S, 100, minutes, if_due=True)])
    assert [one.closed_because for one in formations(published)] == ([because] if because else [])


async def test_what_comes_late_is_not_formed_because_somebody_asked_for_what_is_due() -> None:
    records = [asked(S, 10, 1, if_due=True), *some(2), watermark(20, 5)]
    assert not formations(await run(trigger(MemoryStore(Limits())), records))


async def test_an_edit_before_its_window_counts_and_keeps_the_place() -> None:
    store = MemoryStore(Limits())
    edited = message("s.m1", S, 20, 2, "the new text")
    (one,) = formations(await run(trigger(store), some(3), [edited, asked(S, 30, 3)]))
    assert names(one) == ["s.m1", "s.m2", "s.m3"]
    assert store.stored_windows[one.formation_id].messages[0].text == "the new text"


async def test_an_edit_after_its_window_is_noted_and_forms_nothing_more() -> None:
    store = MemoryStore(Limits())
    edited = message("s.m1", S, 20, 2, "too late")
    records = [*some(3), asked(S, 10, 1), edited, asked(S, 30, 3)]
    (one,) = formations(await run(trigger(store), records))
    assert store.stored_windows[one.formation_id].messages[0].text == "hello there"
    assert store.stored_messages["s.m1"].changed_after_formation
    assert not store.waiting_in(S)


async def test_a_message_touched_between_two_closings_of_one_batch_is_in_one_window() -> None:
    records = [*some(4), asked(S, 10, 1), *some(4), message("s.m2", S, 20, 2), asked(S, 30, 3)]
    (one,) = formations(await run(trigger(MemoryStore(Limits())), records))
    assert len(one.messages) == 4


async def test_a_message_deleted_before_its_window_is_left_out_and_forgotten() -> None:
    published = await run(trigger(MemoryStore(Limits())), [*some(3), gone("s.m2", S, 9, 1), asked(S, 10, 1)])
    (one,) = formations(published)
    assert names(one) == ["s.m1", "s.m3"]
    (forgotten,) = [one for one in published if isinstance(one.event, Forgotten)]
    assert isinstance(forgotten.event, Forgotten)
    assert (forgotten.event.id, forgotten.event.reach, forgotten.event.session_id) == (
        "s.m2",
        "up_to_version",
        S,
    )


async def test_a_message_deleted_after_its_window_is_noted() -> None:
    store = MemoryStore(Limits())
    await run(trigger(store), some(2), [asked(S, 10, 1), gone("s.m2", S, 20, 2)])
    kept = store.stored_messages["s.m2"]
    assert (kept.deleted, kept.changed_after_formation) == (True, True)
    assert kept.formation_id is not None


async def test_a_deleted_message_is_still_known_to_be_no_added_text() -> None:
    store = MemoryStore(Limits())
    await run(trigger(store), [mapped(*some(1))], [gone("s.m1", S, 20, 2)])
    kept = store.stored_messages["s.m1"]
    assert (kept.deleted, kept.mapping) == (True, "2.abc")


async def test_keeping_deleted_messages_forgets_nothing() -> None:
    stage = formation_trigger.FormationTrigger(
        MemoryStore(Limits()), Sessions(), "v1", KnownMarks(), forgets=False
    )
    assert not await run(stage, [*some(2), gone("s.m2", S, 9, 1)])


async def test_a_message_that_moved_waits_in_its_new_session_only() -> None:
    store = MemoryStore(Limits())
    moved = [gone("s.m1", S, 20, 2, "moved"), message("s.m1", "s.other", 20, 2)]
    published = await run(trigger(store), some(2), moved, [asked(S, 30, 3), asked("s.other", 31, 3)])
    assert {one.session_id: names(one) for one in formations(published)} == {
        S: ["s.m2"],
        "s.other": ["s.m1"],
    }


async def test_a_message_moved_there_and_back_waits_again() -> None:
    store = MemoryStore(Limits())
    there = gone("s.m1", S, 20, 2, "moved")
    back = message("s.m1", S, 21, 3)
    published = await run(trigger(store), some(1), [there, back], [there], [asked(S, 30, 3)])
    (one,) = formations(published)
    assert names(one) == ["s.m1"]


async def test_a_missing_message_is_counted_noted_and_stays() -> None:
    missing, store = Grown(TRIGGER_MISSING), MemoryStore(Limits())
    stage = trigger(store)
    published = await run(stage, [*some(2), gone("s.m1", None, 9, 1, "missing"), asked(S, 10, 1)])
    assert len(formations(published)[0].messages) == 2
    assert sum(missing().values()) == 1
    assert [name for name, one in store.stored_messages.items() if one.missing] == ["s.m1"]
    await run(stage, [message("s.m1", S, 20, 4, "it is back")])
    assert not any(one.missing for one in store.stored_messages.values())


async def test_a_message_waits_once_it_has_text() -> None:
    without_text = Grown(TRIGGER_EMPTY)
    empty = message("s.m9", S, 5, 0, "")
    records = [*some(1), empty, *some(1, 10), message("s.m9", S, 11, 1, "now it has"), asked(S, 30, 2)]
    (one,) = formations(await run(trigger(MemoryStore(Limits())), records))
    assert names(one) == ["s.m1", "s.m10", "s.m9"]
    assert sum(without_text().values()) == 1


def waiting_sessions() -> float | None:
    """Return what the metric says of the records' partition."""
    return REGISTRY.get_sample_value("eden_trigger_waiting_sessions", {"partition": "0"})


async def test_a_session_without_its_document_waits_with_the_reason_and_goes_on_in_order() -> None:
    sessions, store = Sessions({S: Missing("no document s.s in sessions")}), MemoryStore(Limits())
    stage = trigger(store, sessions)
    waiting = [[*some(2), asked(S, 10, 1)], [*some(2, 11), asked(S, 20, 2)], [watermark(30, 3)]]
    assert not await run(stage, *waiting)
    assert (store.stored_sessions[S].waits_for, waiting_sessions()) == ("no document s.s in sessions", 1)
    sessions.said[S] = SessionFacts("s.agent", ("i.1",), sharing="team")
    first, second = formations(await run(stage, [watermark(31, 3.2)], [watermark(32, 3.4)]))
    assert (names(first), names(second)) == (["s.m1", "s.m2"], ["s.m11", "s.m12"])
    assert (store.stored_sessions[S].waits_for, waiting_sessions()) == (None, 0)
    assert not await run(stage, [watermark(33, 3.6)])


async def test_a_waiting_session_goes_on_with_its_next_message() -> None:
    sessions = Sessions({S: Missing("no document")})
    stage = trigger(MemoryStore(Limits()), sessions)
    assert not await run(stage, [*some(2), asked(S, 10, 1)])
    del sessions.said[S]
    assert len(formations(await run(stage, some(1, 11)))) == 1


async def test_more_waiting_sessions_than_a_watermark_looks_up_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(formation_trigger, "MOST_DUE", 3)
    monkeypatch.setattr(formation_trigger, "MANY_DUE", 3)
    many = [f"s.{one}" for one in range(8)]
    sessions = Sessions({name: Missing("no document") for name in many})
    stage = trigger(MemoryStore(Limits()), sessions)
    for number, name in enumerate(many):
        await run(stage, [message(f"s.m{number}", name, number + 1, 0), asked(name, 100 + number, 1)])
    sessions.asked.clear()
    await run(stage, *([watermark(200 + one, 2)] for one in range(3)))
    assert set(sessions.asked) == set(many)


async def test_a_watermark_closes_no_more_than_its_share_and_the_next_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(formation_trigger, "MOST_DUE", 3)
    monkeypatch.setattr(formation_trigger, "MANY_DUE", 3)
    stage = trigger(MemoryStore(Limits(least=1)))
    await run(stage, [message(f"s.m{one}", f"s.{one}", one + 1, 0) for one in range(5)])
    assert len(formations(await run(stage, [watermark(100, 20)]))) == 3
    assert len(formations(await run(stage, [watermark(101, 20)]))) == 2


async def test_watermarks_of_one_batch_close_their_shares_and_each_share_is_published_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(formation_trigger, "MOST_DUE", 3)
    monkeypatch.setattr(formation_trigger, "MANY_DUE", 3)
    stage = trigger(MemoryStore(Limits(least=1)))
    await run(stage, [message(f"s.m{one}", f"s.{one}", one + 1, 0) for one in range(8)])
    left = [
        watermark(100, 20),
        watermark(101, 20),
        watermark(102, 20),
        message("s.m9", "s.9", 103, 21),
        watermark(104, 60),
    ]
    shares: list[tuple[int, int]] = []
    while left:
        decision = await stage(left)
        assert isinstance(decision, Decision)
        assert decision.covers is not None
        shares.append((decision.covers, len(formations(publish(decision)))))
        left = left[decision.covers :]
    assert shares == [(1, 3), (1, 3), (3, 3)]


async def test_windows_of_sessions_that_wait_no_more_are_published_in_shares_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(formation_trigger, "MOST_DUE", 3)
    monkeypatch.setattr(formation_trigger, "MANY_DUE", 3)
    many = [f"s.{one}" for one in range(8)]
    sessions = Sessions({name: Missing("no document") for name in many})
    stage = trigger(MemoryStore(Limits()), sessions)
    for number, name in enumerate(many):
        await run(stage, [message(f"s.m{number}", name, number + 1, 0), asked(name, 100 + number, 1)])
    late = [watermark(200 + one, 2) for one in range(4)]
    decision = await stage(late)
    assert isinstance(decision, Decision)
    assert (decision.covers, formations(publish(decision))) == (4, []), (
        "they wait: nothing to publish in between"
    )
    sessions.said.clear()
    decision = await stage(late)
    assert isinstance(decision, Decision)
    assert decision.covers is not None
    assert decision.covers < len(late)
    assert len(formations(publish(decision))) <= 3
    assert len(formations(await run(stage, late, late))) >= 5


class OneAfterTheOther(MemoryStore):
    """Notices how many batches are stored side by side."""

    storing = most = 0

    async def put(self, write: BatchWrite) -> int | None:
        self.storing += 1
        self.most = max(self.most, self.storing)
        await asyncio.sleep(0)
        place = await super().put(write)
        self.storing -= 1
        return place


@pytest.mark.parametrize(("many", "most"), [(3, 1), (4, 2)])
async def test_partitions_that_close_many_sessions_take_turns(
    monkeypatch: pytest.MonkeyPatch, many: int, most: int
) -> None:
    monkeypatch.setattr(formation_trigger, "MANY_DUE", many)
    store = OneAfterTheOther(Limits(least=1))
    stage = trigger(store)
    for partition in (0, 1):
        said = [message(f"s.m{partition}{one}", f"s.{partition}{one}", one + 1, 0) for one in range(3)]
        await run(stage, [one._replace(partition=partition) for one in said])
    ended = [watermark(100, 20)._replace(partition=partition) for partition in (0, 1)]
    closed = await asyncio.gather(*(run(stage, [one]) for one in ended))
    assert [len(formations(events)) for events in closed] == [3, 3]
    assert store.most == most


@pytest.mark.parametrize(("seconds", "waits"), [(60.0, True), (0.01, False)])
async def test_a_partition_closes_many_sessions_once_those_of_another_are_published_or_after_a_while(
    monkeypatch: pytest.MonkeyPatch, seconds: float, waits: bool
) -> None:
    monkeypatch.setattr(formation_trigger, "MANY_DUE", 3)
    monkeypatch.setattr(formation_trigger, "PUBLISHING_SECONDS", seconds)
    stage = trigger(MemoryStore(Limits(least=1)))
    for partition in (0, 1):
        said = [message(f"s.m{partition}{one}", f"s.{partition}{one}", one + 1, 0) for one in range(3)]
        await run(stage, [one._replace(partition=partition) for one in said])
    first, second = ([watermark(100, 20)._replace(partition=partition)] for partition in (0, 1))
    decision = await stage(first)
    closing = asyncio.create_task(run(stage, second))
    if waits:
        for _ in range(50):
            await asyncio.sleep(0)
        assert not closing.done()
        assert len(formations(publish(decision))) == 3
    assert len(formations(await closing)) == 3


class LaterMarks(KnownMarks):
    """Meanwhile, once, a message of the batch is forgotten, or the marks cannot be read."""

    def __init__(self, *, fails: bool) -> None:
        super().__init__()
        self.fails, self.reads = fails, 0

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        self.reads += 1
        if self.reads == 2 and self.fails:
            raise ConnectionError
        if self.reads == 2:
            self.marks.append(Mark("message", "s.m9", "for_ever"))
        return await super().among(named)


@pytest.mark.parametrize("fails", [False, True])
async def test_a_batch_that_closes_many_sessions_never_waits_for_itself(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(formation_trigger, "MOST_DUE", 3)
    monkeypatch.setattr(formation_trigger, "MANY_DUE", 3)
    monkeypatch.setattr(formation_trigger, "PUBLISHING_SECONDS", 600.0)
    store = MemoryStore(Limits(least=1))
    await run(trigger(store), [message(f"s.m{one}", f"s.{one}", one + 1, 0) for one in range(8)])
    stage = trigger(store, forgotten=LaterMarks(fails=fails))
    late = [message("s.m9", "s.9", 100, 20), watermark(101, 20)]
    if fails:
        with pytest.raises(ConnectionError):
            await stage(late)
    closing = asyncio.create_task(run(stage, late, [watermark(102, 20)]))
    for _ in range(200):
        await asyncio.sleep(0)
    done = closing.done()
    closing.cancel()
    assert done
    assert len(formations(closing.result())) == 8


async def test_two_users_leave_no_user_scope_and_one_who_left_neither() -> None:
    sessions = Sessions({S: SessionFacts("s.agent", ("i.1", "i.2"), sharing="team")})
    stage = trigger(MemoryStore(Limits()), sessions)
    (both,) = formations(await run(stage, [message("s.m1", S, 1, 0), asked(S, 10, 1)]))
    sessions.said[S] = SessionFacts("s.agent", ("i.1",), sharing="team")
    left = [message("s.m2", S, 11, 2, user="i.2"), asked(S, 20, 3)]
    (after,) = formations(await run(stage, left))
    alone = [message("s.m3", S, 21, 4, user="i.1"), asked(S, 30, 5)]
    (one,) = formations(await run(stage, alone))
    kinds = [[scope.kind for scope in window.scopes] for window in (both, after, one)]
    assert kinds == [["agent", "session"], ["agent", "session"], ["agent", "user", "session"]]


async def test_session_memory_begins_anew_when_a_user_joins_and_goes_on_when_they_left() -> None:
    sessions = Sessions()
    stage = trigger(MemoryStore(Limits()), sessions)
    keys: list[str] = []
    for number, users in enumerate([("i.1",), ("i.1", "i.2"), ("i.1",), ("i.1", "i.3")]):
        sessions.said[S] = SessionFacts("s.agent", users, sharing="team")
        records = [message(f"s.m{number}", S, 10 * number + 1, number), asked(S, 10 * number + 2, number)]
        (one,) = formations(await run(stage, records))
        keys.append(one.scopes[-1].key)
    assert keys == ["session:s.s", "session:s.s:2", "session:s.s", "session:s.s:3"]


async def test_users_are_those_seen_before_the_window_closed_whatever_came_in_its_batch() -> None:
    records = [
        message("s.m1", S, 1, 0),
        asked(S, 10, 1),
        message("s.m2", S, 11, 2, user="i.2"),
        asked(S, 20, 3),
    ]
    first, second = formations(await run(trigger(MemoryStore(Limits())), records))
    assert (first.users, second.users) == (("i.1",), ("i.1", "i.2"))


async def test_a_formed_message_keeps_no_text_of_its_own() -> None:
    store = MemoryStore(Limits())
    (one,) = formations(await run(trigger(store), [*some(2), asked(S, 10, 1)]))
    assert [message.text for message in store.stored_messages.values()] == [None, None]
    assert [message.text for message in store.stored_windows[one.formation_id].messages] == [
        "hello there"
    ] * 2


async def test_what_was_closed_is_counted_by_reason() -> None:
    closed = Grown(TRIGGER_WINDOWS)
    await run(trigger(MemoryStore(Limits())), [*some(46), ended(S, 90, 2)])
    assert closed() == {("messages",): 1, ("ended",): 1}
