"""Sessions and users that are switched off: nothing is formed from them, and no text of theirs is kept."""

from collections.abc import Sequence
from contextlib import suppress

import pytest

from eden_memory.directory.participants import Missing, SessionFacts
from eden_memory.metrics import TRIGGER_OPTED_OUT
from eden_memory.processors.formation_trigger import FormationTrigger
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.events.chat import Origin
from eden_memory.stages.stage import Decision, Delivery, Emit, Erase
from eden_memory.windows.window_rule import Limits
from tests.counted import Grown
from tests.unit.windows.memory_store import Crash, MemoryStore
from tests.unit.windows.records import (
    Sessions,
    asked,
    ended,
    message,
    names,
    trigger,
    version,
    watermark,
)

S = "s.s"
Sent = list[Emit | Erase]


async def sent(stage: FormationTrigger, *batches: Sequence[Delivery]) -> Sent:
    """Everything that the batches lead to, tombstones included."""
    found: Sent = []
    for batch in batches:
        decision = await stage(batch)
        assert isinstance(decision, Decision)
        found += [one for one in decision.events if isinstance(one, Emit | Erase)]
        if decision.published is not None:
            decision.published()
    return found


def gone(found: Sent) -> list[tuple[str, str | None]]:
    """Messages whose texts leave the topic, with their versions."""
    erased = [one for one in found if isinstance(one, Erase)]
    assert {(one.reason, one.of.NAME, one.scope, one.ordering_key) for one in erased} <= {
        ("opted_out", "MessageRecorded", S, S)
    }
    return [(one.key, one.entity_version) for one in erased]


def formed(found: Sent) -> list[FormationRequested]:
    return [one.event for one in found if isinstance(one, Emit) and isinstance(one.event, FormationRequested)]


def texts(store: MemoryStore) -> list[str]:
    """Every text that is stored anywhere."""
    windows = [one for window in store.stored_windows.values() for one in window.messages]
    return [one.text for one in (*store.stored_messages.values(), *windows) if one.text]


async def test_a_session_that_is_off_forms_nothing_and_leaves_no_text() -> None:
    store, opted_out = MemoryStore(Limits()), Grown(TRIGGER_OPTED_OUT)
    stage = trigger(store, Sessions(off_sessions={S}))
    records = [message("s.m1", S, 1, 0), message("s.m2", S, 2, 1), asked(S, 10, 2), ended(S, 11, 3)]
    found = await sent(stage, records, [watermark(20, 30)])
    assert gone(found) == [("s.m1", version(1)), ("s.m2", version(2))]
    assert not formed(found)
    assert not texts(store)
    assert sum(opted_out().values()) == 2


async def test_a_session_whose_users_are_all_off_is_off_and_its_assistant_is_not_heard_either() -> None:
    store = MemoryStore(Limits())
    sessions = Sessions({S: SessionFacts("s.agent", ("i.1",), sharing="team")}, off_users={"i.1"})
    answer = message("s.m2", S, 2, 1, role="assistant", user=None)
    found = await sent(trigger(store, sessions), [message("s.m1", S, 1, 0), answer, asked(S, 10, 2)])
    assert [name for name, _ in gone(found)] == ["s.m1", "s.m2"]
    assert not formed(found)
    assert not texts(store)


async def test_of_several_users_only_the_one_who_is_off_is_left_out_and_none_has_user_scope() -> None:
    store = MemoryStore(Limits())
    sessions = Sessions({S: SessionFacts("s.agent", ("i.1", "i.2"), sharing="team")}, off_users={"i.2"})
    records = [message("s.m1", S, 1, 0), message("s.m2", S, 2, 1, user="i.2"), message("s.m3", S, 3, 2)]
    found = await sent(trigger(store, sessions), records, [asked(S, 10, 3)])
    assert gone(found) == [("s.m2", version(2))]
    (one,) = formed(found)
    assert names(one) == ["s.m1", "s.m3"]
    assert [scope.kind for scope in one.scopes] == ["agent", "session"]
    assert len(texts(store)) == 2


async def test_what_waited_when_a_user_was_switched_off_is_left_out_of_the_window() -> None:
    store, sessions = (
        MemoryStore(Limits()),
        Sessions({S: SessionFacts("s.agent", ("i.1", "i.2"), sharing="team")}),
    )
    stage = trigger(store, sessions)
    await sent(stage, [message("s.m1", S, 1, 0), message("s.m2", S, 2, 1, user="i.2")])
    sessions.off_users.add("i.2")
    found = await sent(stage, [asked(S, 10, 3)])
    assert gone(found) == [("s.m2", version(2))]
    (one,) = formed(found)
    assert names(one) == ["s.m1"]
    assert texts(store) == ["something to remember"]


async def test_what_waited_when_its_session_was_switched_off_goes_with_the_next_message() -> None:
    store, sessions = MemoryStore(Limits()), Sessions()
    stage = trigger(store, sessions)
    await sent(stage, [message("s.m1", S, 1, 0), message("s.m2", S, 2, 0.1)])
    sessions.off_sessions.add(S)
    found = await sent(stage, [message("s.m3", S, 3, 1)])
    assert sorted(gone(found)) == [(f"s.m{number}", version(number)) for number in (1, 2, 3)]
    assert not formed(found)
    assert not texts(store)
    assert not await sent(stage, [watermark(20, 30)], [watermark(21, 31)])


async def test_a_window_that_waited_for_a_document_loses_those_who_were_switched_off_meanwhile() -> None:
    store, sessions = MemoryStore(Limits()), Sessions({S: Missing("no document")})
    stage = trigger(store, sessions)
    records = [message("s.m1", S, 1, 0), message("s.m2", S, 2, 1, user="i.2"), asked(S, 10, 2)]
    assert not await sent(stage, records)
    sessions.said[S] = SessionFacts("s.agent", ("i.1", "i.2"), sharing="team")
    sessions.off_users.add("i.2")
    found = await sent(stage, [watermark(20, 3)])
    assert gone(found) == [("s.m2", version(2))]
    assert [names(one) for one in formed(found)] == [["s.m1"]]
    assert len(texts(store)) == 1
    assert store.stored_messages["s.m2"].opted_out


@pytest.mark.parametrize("ends", [ended, asked], ids=["ended", "asked"])
async def test_a_session_that_waits_for_a_document_and_is_switched_off_waits_no_more(ends: type) -> None:
    store, sessions = MemoryStore(Limits()), Sessions({S: Missing("no document")})
    stage = trigger(store, sessions)
    assert not await sent(stage, [message("s.m1", S, 1, 0), ends(S, 10, 2)], [ended(S, 11, 3)])
    sessions.off_sessions.add(S)
    found = await sent(stage, [watermark(20, 4)], [watermark(21, 5)])
    assert gone(found) == [("s.m1", version(1))]
    assert not formed(found)
    assert not texts(store)
    assert not store.stored_sessions[S].outbox
    assert store.stored_sessions[S].waits_for is None


async def test_a_repeat_erases_again_by_the_same_record() -> None:
    store, sessions = MemoryStore(Limits()), Sessions()
    await sent(trigger(store, sessions), [message("s.m1", S, 1, 0)])
    sessions.off_sessions.add(S)
    batch = [message("s.m2", S, 2, 1)]
    first = await trigger(store, sessions)(batch)
    again = await sent(trigger(store, sessions), batch, [watermark(20, 3)])
    assert isinstance(first, Decision)
    wanted = {(one.key, one.identity, one.time) for one in first.events if isinstance(one, Erase)}
    assert {name for name, _, _ in wanted} == {"s.m1", "s.m2"}
    assert {(one.key, one.identity, one.time) for one in again if isinstance(one, Erase)} == wanted


async def test_a_crash_before_the_write_loses_no_tombstone() -> None:
    for writes in range(4):
        store, sessions = MemoryStore(Limits()), Sessions()
        await sent(trigger(store, sessions), [message("s.m1", S, 1, 0)])
        sessions.off_sessions.add(S)
        store.writes_left = writes
        batch = [message("s.m2", S, 2, 1)]
        with suppress(Crash):
            await trigger(store, sessions)(batch)
        store.writes_left = None
        found = await sent(trigger(store, sessions), batch, [watermark(20, 3)])
        assert {name for name, _ in gone(found)} == {"s.m1", "s.m2"}
        assert not texts(store)


async def test_an_edit_of_a_formed_message_by_one_who_is_off_now_leaves_no_text() -> None:
    store, sessions = MemoryStore(Limits()), Sessions()
    stage = trigger(store, sessions)
    assert len(formed(await sent(stage, [message("s.m1", S, 1, 0), asked(S, 10, 1)]))) == 1
    sessions.off_sessions.add(S)
    found = await sent(stage, [message("s.m1", S, 20, 2, "edited")])
    assert gone(found) == [("s.m1", version(20))]
    assert store.stored_messages["s.m1"].changed_after_formation
    assert "edited" not in texts(store)


async def test_switched_on_again_new_messages_form_and_the_old_ones_stay_gone() -> None:
    store, sessions = MemoryStore(Limits()), Sessions(off_sessions={S})
    stage = trigger(store, sessions)
    old = message("s.m1", S, 1, 0)
    await sent(stage, [old])
    sessions.off_sessions.clear()
    found = await sent(stage, [old, message("s.m2", S, 2, 1), asked(S, 10, 2)])
    assert [names(one) for one in formed(found)] == [["s.m2"]]
    assert gone(found) == [("s.m1", version(1))], "the first tombstone may not have been published"


@pytest.mark.parametrize(
    ("origin", "edited"),
    [("merge", False), ("reread", True), ("backfill", False), ("added", False), ("stream", False)],
)
async def test_switched_on_again_what_comes_again_stays_gone_until_its_text_is_edited(
    origin: Origin, edited: bool
) -> None:
    store, sessions = MemoryStore(Limits()), Sessions(off_sessions={S})
    stage = trigger(store, sessions)
    await sent(stage, [message("s.m1", S, 1, 0)])
    sessions.off_sessions.clear()
    again = message("s.m1", S, 5, 1, origin=origin, edited=edited)
    found = await sent(stage, [again, asked(S, 10, 2)], [watermark(11, 30)])
    assert gone(found) == [("s.m1", version(5))]
    assert not formed(found)
    assert not texts(store)
    found = await sent(stage, [message("s.m1", S, 20, 31, "edited", edited=True), asked(S, 21, 31)])
    assert [names(one) for one in formed(found)] == [["s.m1"]]
    assert not gone(found)


async def test_switched_on_again_what_waited_when_it_was_switched_off_stays_gone() -> None:
    store, sessions = MemoryStore(Limits()), Sessions()
    stage = trigger(store, sessions)
    await sent(stage, [message("s.m1", S, 1, 0)])
    sessions.off_sessions.add(S)
    await sent(stage, [message("s.m2", S, 2, 1)])
    sessions.off_sessions.clear()
    again = [message(f"s.m{number}", S, 5, 2, origin="merge") for number in (1, 2)]
    found = await sent(stage, [*again, asked(S, 10, 3)])
    assert gone(found) == [("s.m1", version(5)), ("s.m2", version(5))]
    assert not formed(found)
    assert not texts(store)
    assert all(one.opted_out for one in store.stored_messages.values())
