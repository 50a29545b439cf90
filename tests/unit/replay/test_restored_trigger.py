"""formation-trigger's state restored from its records and its windows goes on as the one that was lost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import TypeVar

from hypothesis import example, given
from hypothesis import strategies as st

from eden_memory.directory.participants import SessionFacts
from eden_memory.replay.restore.trigger_restore import RecordedWindows, WantsTexts, run_silently
from eden_memory.schemas.events import FormationRequested, MessageRecorded
from eden_memory.stages.stage import Delivery
from eden_memory.windows.formation_requests import StoredWindow
from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import MemoryStore
from tests.unit.windows.records import (
    Sessions,
    asked,
    ended,
    formations,
    gone,
    message,
    names,
    opted_out,
    run,
    trigger,
    watermark,
)
from tests.unit.windows.test_window_properties import LIMITS, Application, steps

T = TypeVar("T")
S = "s.a"
GRACE = timedelta(minutes=1)
LEFT_BY_ITS_AUTHOR = [
    *[("new", 0, 0, 0.0)] * 2,
    ("new", 0, 0, 11.0),
    *[("new", 2, 4, 0.0)] * 2,
    ("move", 2, 2, 0.0),
]
"""Who wrote in a session stays one of its users, also when what they wrote has moved to another."""
CHANGING = {"edit", "edit empty", "delete", "move"}


@dataclass
class Topics:
    """What is left in both topics, in order."""

    chat: list[Delivery]
    windows: list[FormationRequested]

    def compacted(self) -> "Topics":
        """Only the newest record of each key."""
        last = {one.key: place for place, one in enumerate(self.chat)}
        return Topics([one for place, one in enumerate(self.chat) if last[one.key] == place], self.windows)


async def restored(
    topics: Topics,
    limits: Limits = LIMITS,
    *,
    forgets: bool = True,
    texts: WantsTexts = lambda _: True,
    grace: timedelta = timedelta(0),
) -> tuple[MemoryStore, int]:
    """A store with the restored state, and how many windows were cut that had not been published."""
    store = MemoryStore(limits)

    async def write(
        messages: Iterable[StoredMessage],
        sessions: Iterable[Session],
        windows: Iterable[StoredWindow],
        erased: Iterable[StoredWindow],
    ) -> None:
        store.stored_messages |= {one.message_id: one for one in messages}
        store.stored_windows |= {one.formation_id: one for one in (*windows, *erased)}
        for session in sessions:
            session.written()
            session.stored, session.held = True, {}
            store.stored_sessions[session.session_id] = session

    described = Sessions({S: SessionFacts("s.default", None, names={"i.1": "Ana"})})
    windows = RecordedWindows(store, write, described, texts, forgets, False, lambda _: 0)
    for some in batched(topics.windows):
        await windows.take([(one, one.json_bytes(), None) for one in some])
    for some in batched(topics.chat):
        await windows.describe(some)
    for some in batched(topics.chat):
        await run_silently(trigger(store, grace=grace), some)
    return store, len(store.stored_windows) - len({one.formation_id for one in topics.windows})


def batched(found: Sequence[T]) -> list[Sequence[T]]:
    return [found[start : start + 3] for start in range(0, len(found), 3)]


def waiting(store: MemoryStore) -> dict[str, list[str]]:
    """What waits, session by session."""
    named = {one.session_id for one in store.stored_messages.values() if one.session_id is not None}
    return {one: found for one in sorted(named) if (found := store.waiting_in(one))}


def homes(windows: list[FormationRequested]) -> dict[str, str]:
    """Each message's window; a message in two of them is an error, unless an edit made the later one."""
    found: dict[str, str] = {}
    every = {one.formation_id: one for one in windows}.values()
    for one in sorted(every, key=lambda one: one.closed_because == "edited"):
        for ref in one.messages:
            if one.closed_because == "edited":
                found[ref.message_id] = one.formation_id
            assert found.setdefault(ref.message_id, one.formation_id) == one.formation_id, ref
    return found


def kept(store: MemoryStore) -> dict[str, tuple[object, ...]]:
    """What is kept of each message, without the place that only orders those that wait."""
    return {one.message_id: _kept(one) for one in store.stored_messages.values()}


def _kept(one: StoredMessage) -> tuple[object, ...]:
    return (
        one.session_id,
        one.version,
        one.text,
        one.formation_id,
        one.deleted,
        one.opted_out,
        one.changed_after_formation,
    )


def application(script: list[tuple[str, int, int, float]]) -> list[Delivery]:
    """The records of an application's steps."""
    told = Application()
    for step in script:
        told.step(*step)
    return told.log


@given(steps)
@example([("new", 0, 0, 0.0)] * 3 + [("delete", 0, 0, 0.1), ("watermark", 0, 0, 11.0)])
@example(LEFT_BY_ITS_AUTHOR)
async def test_what_was_handled_is_restored_as_it_was(script: list[tuple[str, int, int, float]]) -> None:
    log = application(script)
    live = MemoryStore(LIMITS)
    published = await run(trigger(live), *([one] for one in log))
    again, cut = await restored(Topics(log, formations(published)))
    assert kept(again) == kept(live)
    assert waiting(again) == waiting(live)
    assert cut == 0
    for name, before in live.stored_sessions.items():
        after = again.stored_sessions.get(name)
        if before.seq or before.controls:
            assert after is not None
            assert (after.seq, {*after.controls}, after.audiences) == (
                before.seq,
                {*before.controls},
                before.audiences,
            )
            assert set(before.users) <= set(after.users)
        due = again.session(name).due()
        assert due == live.session(name).due(), name
        stored = after.due_at if after is not None else None
        assert due is None or (stored is not None and stored <= due), "it is looked at in time"


@given(steps, st.data())
async def test_whatever_was_published_of_it_all_goes_on_and_each_message_is_in_one_window(
    script: list[tuple[str, int, int, float]], data: st.DataObject
) -> None:
    log = application(script)
    handled = data.draw(st.integers(0, len(log)))
    before = formations(await run(trigger(MemoryStore(LIMITS)), *([one] for one in log[:handled])))
    topics = Topics(log, before[: data.draw(st.integers(0, len(before)))])
    whole = MemoryStore(LIMITS)
    expected = formations(await run(trigger(whole), *([one] for one in log)))
    store, _ = await restored(topics)
    committed = data.draw(st.integers(0, handled))
    again = await run(trigger(store), *([one] for one in (*log[committed:], watermark(99, 999))))
    published = [*topics.windows, *formations(again)]
    found = homes(published)
    if not CHANGING & {kind for kind, *_ in script}:
        assert {one.formation_id for one in expected} <= {one.formation_id for one in published}
    left = {name for some in waiting(store).values() for name in some}
    for name in homes(expected):  # an unpublished window is cut anew without what was changed since
        assert name in found or name in left or whole.stored_messages[name].changed_after_formation
    for some in waiting(whole).values():
        assert set(some) <= {*found, *left}


@given(steps)
@example([("new", 1, 0, 0.0), ("new", 1, 0, 0.0), ("new", 0, 0, 31.0), ("edit", 0, 0, 0.0)])
@example([("new", 0, 0, 0.0), ("edit", 0, 0, 0.0), ("ask", 0, 0, 0.0), ("edit", 0, 0, 0.0)])
async def test_after_compaction_nothing_is_formed_twice_or_left_out(
    script: list[tuple[str, int, int, float]],
) -> None:
    """But for a message that was formed after an edit and edited again to the same text: nothing is left of what its
    window saw, so that the second edit counts."""
    log = application(script)
    same = _edited_to_the_same_text(log)
    live = MemoryStore(LIMITS)
    published = formations(await run(trigger(live), *([one] for one in log)))
    store, _ = await restored(Topics(log, published).compacted())
    settled = homes(published)
    cut = {
        message.message_id
        for window in store.stored_windows.values()
        for message in window.messages
        if message.message_id not in settled
    }  # an edited message waits since its edit, which may close a window that the live trigger holds open
    assert {*cut, *chain(*waiting(store).values())} - same == {*chain(*waiting(live).values())} - same
    again = await run(trigger(store), [watermark(99, 999)])
    assert cut <= homes([*published, *formations(again)]).keys()


def _edited_to_the_same_text(log: Sequence[Delivery]) -> set[str]:
    texts = Counter(
        (event.message_id, event.text)
        for event in (delivery.event for delivery in log)
        if isinstance(event, MessageRecorded) and event.edited_at is not None
    )
    return {message_id for (message_id, _), times in texts.items() if times > 1}


def edited() -> Topics:
    """m1 as its window saw it and once more, m2 opted out, m3 deleted, all in one window."""
    chat = [
        message("s.m1", S, 1, 0, "first"),
        message("s.m2", S, 2, 0, "second"),
        message("s.m3", S, 3, 0, "third"),
        message("s.m4", S, 4, 0, "fourth"),
        asked(S, 5, 0),
        message("s.m1", S, 6, 1, "first, edited"),
        opted_out("s.m2", S, 2, 1),
        gone("s.m3", S, 7, 1, "deleted"),
        message("s.m4", S, 8, 1, "fourth, edited"),
    ]
    return Topics(chat, [])


async def formed(topics: Topics) -> Topics:
    return Topics(topics.chat, formations(await run(trigger(MemoryStore(Limits())), topics.chat[:5])))


async def test_texts_are_those_that_the_window_saw_where_they_are_still_there() -> None:
    topics = await formed(edited())
    store, _ = await restored(topics, Limits())
    (window,) = store.stored_windows.values()
    assert [one.text for one in window.messages] == ["first", None, None, "fourth"]
    assert window.names == {"i.1": "Ana"}
    store, _ = await restored(topics.compacted(), Limits())
    (window,) = store.stored_windows.values()
    assert [one.text for one in window.messages] == ["first, edited", None, None, "fourth, edited"]
    assert window.requested == topics.windows[0]


async def test_what_was_excluded_and_is_read_again_stays_gone() -> None:
    chat = [
        message("s.m1", S, 1, 0),
        opted_out("s.m1", S, 1, 0),
        message("s.m1", S, 5, 1, origin="merge"),
        message("s.m2", S, 6, 2),
    ]
    for end in ([], [opted_out("s.m1", S, 5, 1)]):
        store, _ = await restored(Topics([*chat, *end], []), Limits())
        assert waiting(store) == {S: ["s.m2"]}
        assert (store.stored_messages["s.m1"].opted_out, store.stored_messages["s.m1"].text) == (True, None)


async def test_what_was_written_again_under_a_new_id_is_known_once_its_tombstone_is_gone() -> None:
    chat = [message("s.m1", S, 1, 0, "first"), message("s.m2", S, 2, 0, "second"), asked(S, 3, 0)]
    again = [gone("s.m1", S, 4, 1), message("s.n1", S, 5, 1.1, "first")]
    stage = trigger(MemoryStore(Limits()), grace=GRACE)
    published = await run(stage, chat, again)
    (named,) = [one.event for one in published if isinstance(one.event, MessageRecorded)]
    records = [*chat, *again, again[1]._replace(event=named)]
    await run(stage, records[-1:])  # its own record says nothing new
    for left in (records, [one for one in Topics(records, []).compacted().chat if one.event is not None]):
        store, _ = await restored(Topics(left, formations(published)), Limits(), grace=GRACE)
        assert waiting(store) == {}
        assert (store.stored_messages["s.n1"].alias_of, store.stored_messages["s.m1"].deleted) == (
            "s.m1",
            False,
        )
        (window,) = store.stored_windows.values()
        assert [one.text for one in window.messages] == ["first", "second"]


async def test_a_deletion_leaves_the_text_of_what_was_inserted_after_it() -> None:
    chat = [message("s.m1", S, 10, 0, "inserted again"), asked(S, 11, 0)]
    windows = formations(await run(trigger(MemoryStore(Limits())), chat))
    store, _ = await restored(Topics([*chat, gone("s.m1", "s.other", 9, 0)], windows), Limits())
    (window,) = store.stored_windows.values()
    assert [one.text for one in window.messages] == ["inserted again"]


async def test_where_deletion_does_not_forget_the_text_is_used_while_it_is_there() -> None:
    topics = await formed(edited())
    store, _ = await restored(topics, Limits(), forgets=False)
    (window,) = store.stored_windows.values()
    assert [one.text for one in window.messages] == ["first", None, "third", "fourth"]


async def test_the_next_window_has_the_next_number_and_generation() -> None:
    chat = [message("s.m1", S, 1, 0), asked(S, 2, 0), message("s.m2", S, 3, 1, user="i.2"), asked(S, 4, 1)]
    directory = Sessions()
    windows = formations(await run(trigger(MemoryStore(LIMITS), directory), chat))
    store, _ = await restored(Topics(chat, windows))
    more = [message("s.m3", S, 5, 2), asked(S, 4, 1), ended(S, 6, 3)]
    (third,) = formations(await run(trigger(store, directory), more))
    assert (third.seq, names(third)) == (3, ["s.m3"])
    assert third.users == ("i.1", "i.2")
    assert third.scopes[-1] == windows[-1].scopes[-1]


async def test_what_came_after_its_sessions_end_is_late_once_more_when_it_is_restored() -> None:
    chat = [ended(S, 5, 1), message("s.m1", S, 1, 0), watermark(4, 0.5)]
    live = MemoryStore(LIMITS)
    topics = Topics(chat, formations(await run(trigger(live), chat)))
    store, _ = await restored(topics)
    assert store.session(S).due() == live.session(S).due()
    *_, window = formations(await run(trigger(store), [watermark(6, 1.1)]))
    assert (window.seq, window.closed_because, names(window)) == (2, "ended", ["s.m1"])
    topics = Topics([*chat, watermark(6, 1.1)], topics.windows)
    store, cut = await restored(topics)
    assert (cut, waiting(store)) == (1, {})


async def test_a_message_written_under_the_id_of_a_deleted_one_is_restored_as_it_was() -> None:
    chat = [
        message("s.m1", S, 1, 0, "first"),
        asked(S, 2, 0),
        gone("s.m1", S, 3, 1),
        message("s.m1", S, 4, 1, "second"),
        message("s.m1", S, 5, 1, "second, edited"),
        asked(S, 6, 2),
        message("s.m1", S, 7, 3, "too late"),
    ]
    for end in range(3, len(chat) + 1):
        live = MemoryStore(Limits())
        windows = formations(await run(trigger(live), *([one] for one in chat[:end])))
        store, cut = await restored(Topics(chat[:end], windows), Limits())
        assert kept(store) == kept(live)
        assert waiting(store) == waiting(live)
        assert cut == 0
        assert [names(one) for one in windows] == [["s.m1"], ["s.m1"]][: 1 + (end > 5)]


async def test_a_window_gets_back_the_messages_that_explain_it() -> None:
    """Also those of a window that is restored without its texts; what was deleted since stays away."""
    said = [message(f"s.m{n}", S, n, n, f"text {n}") for n in (1, 2)]
    chat = [*said, asked(S, 3, 3), message("s.m4", S, 4, 4, "yes"), asked(S, 5, 5)]
    first, second = formations(await run(trigger(MemoryStore(LIMITS)), *[[one] for one in chat]))
    assert [ref.message_id for ref in second.before] == ["s.m1", "s.m2"]
    for deleted, left in (([], ["text 1", "text 2"]), ([gone("s.m1", S, 6, 6)], [None, "text 2"])):
        topics = Topics([*chat, *deleted], [first, second])
        store, _ = await restored(topics, texts=lambda window: window.seq == 2)
        assert [one.text for one in store.stored_windows[second.formation_id].before] == left
