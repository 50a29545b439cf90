"""A message that comes after its session's end, though it was written before it, is in one window all the same."""

import random

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.schemas.events import FormationAsked, SessionEnded
from eden_memory.stages.stage import Delivery
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
    Sessions,
    asked,
    ended,
    formations,
    message,
    names,
    run,
    trigger,
    watermark,
)
from tests.unit.windows.test_window_properties import (
    LIMITS,
    SESSIONS,
    forgotten_up_to,
    roughly,
    steps,
    written,
)

S = "s.a"
END = ended(S, 50, 1)


def late(number: int = 1) -> Delivery:
    """Written before the end."""
    return message(f"s.m{number}", S, number, 0.1)


async def test_the_next_watermark_forms_it_as_what_the_session_ended_with() -> None:
    store = MemoryStore(LIMITS)
    published = formations(await run(trigger(store), [END], [late(1)], [watermark(60, 1.2)]))
    assert [(one.closed_because, names(one)) for one in published] == [("ended", []), ("ended", ["s.m1"])]
    assert {one.control_id for one in published} == {END.key}
    assert not store.waiting_in(S)
    assert store.session(S).due() is None


async def test_it_is_formed_by_the_process_that_comes_after_the_one_that_read_it() -> None:
    store = MemoryStore(LIMITS)
    await run(trigger(store), [END, late(1)])
    *_, window = formations(await run(trigger(store), [watermark(60, 1.2)]))
    assert (window.closed_because, names(window)) == ("ended", ["s.m1"])


async def test_what_was_written_before_somebody_asked_is_formed_as_asked_for() -> None:
    published = await run(trigger(MemoryStore(LIMITS)), [asked(S, 50, 1), late(1), watermark(60, 1.2)])
    assert [(one.closed_because, names(one)) for one in formations(published)] == [("asked", ["s.m1"])]


async def test_a_backfilled_message_is_late_by_the_time_at_which_it_was_written() -> None:
    backfilled = message("s.m1", S, 90, 0.5)
    published = await run(trigger(MemoryStore(LIMITS)), [END, backfilled, watermark(91, 1.2)])
    assert [names(one) for one in formations(published)] == [[], ["s.m1"]]


async def test_what_is_written_after_the_end_waits_for_more() -> None:
    store = MemoryStore(LIMITS)
    published = await run(trigger(store), [END, message("s.m51", S, 51, 1.0), watermark(60, 30)])
    assert [names(one) for one in formations(published)] == [[]]
    assert store.waiting_in(S) == ["s.m51"]


async def test_a_watermark_from_before_the_end_that_comes_again_does_not_form_it() -> None:
    store = MemoryStore(LIMITS)
    published = await run(trigger(store), [END, late(1)], [watermark(40, 0.5)], [END, late(1), late(2)])
    assert [names(one) for one in formations(published)] == [[]]
    *_, window = formations(await run(trigger(store), [watermark(60, 1.2)]))
    assert names(window) == ["s.m1", "s.m2"]


def compacted(log: list[Delivery], dice: random.Random) -> list[Delivery]:
    """The log, a part of it again behind it, and of every key only its last copies, however many."""
    twice = [*log, *log[dice.randint(0, len(log)) :]]
    of: dict[str, list[int]] = {}
    for place, one in enumerate(twice):
        of.setdefault(one.key, []).append(place)
    gone = {place for places in of.values() for place in places[: dice.randint(0, len(places) - 1)]}
    return [one for place, one in enumerate(twice) if place not in gone]


def asked_last(log: list[Delivery]) -> dict[str, str]:
    """Of each session, the highest version at which a window was asked for."""
    found: dict[str, str] = dict.fromkeys(SESSIONS, "")
    for one in log:
        event = one.event
        if isinstance(event, SessionEnded) or (isinstance(event, FormationAsked) and not event.if_due):
            found[event.session_id] = max(found[event.session_id], event.version)
    return found


@given(told=steps, seed=st.integers(0, 2**32))
async def test_whatever_a_compaction_left_each_message_is_in_one_window_or_was_written_after_the_end(
    told: list[tuple[str, int, int, float]], seed: int
) -> None:
    dice, store = random.Random(seed), MemoryStore(LIMITS, seed)
    log = compacted(written(told), dice)
    last = max((one.envelope.time for one in log), default=END.envelope.time)
    published = await roughly(log, store, dice, Sessions())
    minutes = (last - late().envelope.time).total_seconds() / 60 + 0.1
    published += await run(trigger(store), [watermark(10_000, minutes)])
    windows = {one.formation_id: one for one in formations(published)}
    assert set(windows) == set(store.stored_windows), "every window that is stored is published"
    gone = forgotten_up_to(published)
    held = [one for window in windows.values() for one in window.messages]
    formed = [one.message_id for one in held if one.version > gone.get(one.message_id, "")]
    assert len(formed) == len(set(formed)), "no message is in two windows that count"
    waiting = {name: session for session in SESSIONS for name in store.waiting_in(session)}
    assert not waiting.keys() & set(formed)
    edited = {name for name in waiting if store.stored_messages[name].forms_alone}
    for name, session in waiting.items():
        assert name in edited or store.stored_messages[name].version > asked_last(log)[session], (
            "an ended session forms it"
        )
    for one in store.stored_messages.values():
        recorded = isinstance(one.text, str) and not one.deleted
        assert not recorded or one.message_id in waiting, "what stands is formed or waits"


@given(told=steps, seed=st.integers(0, 2**32))
async def test_in_a_log_in_order_nothing_is_late(told: list[tuple[str, int, int, float]], seed: int) -> None:
    store = MemoryStore(LIMITS, seed)
    log = written(told)
    await roughly(log, store, random.Random(seed), Sessions())
    assert not any(one.late for one in store.stored_sessions.values())
