"""Messages that are deleted and written again under new ids, with a crash at any write of the stage."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from eden_memory.schemas.events import Forgotten, MessageRecorded
from eden_memory.stages.stage import Decision, Delivery, Emit, Erase
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import Crash, MemoryStore
from tests.unit.windows.records import formations, gone, message, run, trigger, watermark

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


async def killed_at(store: MemoryStore, crash: int, batches: Sequence[Sequence[Delivery]]) -> list[Emit]:
    """Publish batch after batch; at a crash the next process begins with the batch that was not committed."""
    store.writes_left, published = crash, list[Emit]()
    stage = trigger(store, grace=GRACE)
    for batch in batches:
        try:
            published += await run(stage, batch)
        except Crash:
            store.writes_left, stage = None, trigger(store, grace=GRACE)
            published += await run(stage, batch)
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
