"""The same records give the same windows: in any batches, repeated from anywhere, with a crash at any write."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from eden_memory.directory.participants import Missing, own_session
from eden_memory.schemas.events import Forgotten, FormationRequested, MessageRecorded
from eden_memory.schemas.ids import encode
from eden_memory.stages.stage import Delivery, Emit
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import Crash, MemoryStore
from tests.unit.windows.records import (
    Sessions,
    asked,
    ended,
    formations,
    gone,
    message,
    names,
    run,
    trigger,
    watermark,
)

LIMITS = Limits(messages=4, tokens=40, least=2, stale=timedelta(minutes=30))
SESSIONS = ("s.a", "s.b", "s.c")
KINDS = (
    "new",
    "new",
    "new",
    "new",
    "empty",
    "edit",
    "edit empty",
    "delete",
    "move",
    "ask",
    "ask if due",
    "end",
    "watermark",
)

MOVED_AND_READ_AGAIN = [
    ("new", 0, 0, 0.0),
    ("new", 0, 0, 0.0),
    ("edit", 0, 0, 0.0),
    ("new", 1, 5, 0.0),
    ("move", 2, 2, 0.0),
    ("new", 1, 4, 31.0),
    ("watermark", 0, 0, 0.0),
]
"""With seed 28: a message that moved away is delivered again, and must not wait in its old session again."""
MOVED_BACK_IN_ONE_BATCH = [
    ("new", 0, 0, 1.0),
    ("new", 2, 0, 0.0),
    ("edit empty", 0, 0, 6.0),
    ("empty", 0, 0, 1.0),
    ("new", 0, 0, 1.0),
    ("end", 0, 0, 0.1),
    ("new", 0, 0, 0.0),
    ("watermark", 0, 0, 11.0),
    ("move", 2, 0, 0.0),
    ("move", 0, 0, 11.0),
    ("watermark", 0, 0, 0.0),
]
"""With seed 39: the session through which a message came keeps its author, though its own write was lost."""
EDITED_WHERE_IT_WAS_NOT_FORMED = [
    ("empty", 2, 0, 0.0),
    ("new", 0, 0, 0.0),
    ("edit", 0, 0, 0.0),
    ("new", 0, 0, 0.0),
    ("empty", 2, 0, 0.0),
    ("end", 0, 0, 31.0),
    ("edit", 0, 3, 0.0),
    ("move", 0, 0, 0.0),
    ("edit empty", 0, 0, 0.0),
    ("end", 0, 0, 0.0),
]
"""With seed 15: an edit that is stored with one session changes no other, whose write may be lost."""
EDITED_BEHIND_A_WATERMARK = [
    ("new", 1, 0, 0.1),
    ("empty", 0, 0, 31.0),
    ("watermark", 1, 0, 0.1),
    ("edit", 0, 0, 0.1),
    ("edit empty", 0, 0, 0.0),
    ("new", 2, 0, 31.0),
    ("watermark", 1, 0, 0.0),
    ("move", 0, 0, 0.0),
]
"""With seed 5: a Watermark that is read again closes no window over a text that came behind it."""
OWN = tuple(encode(own_session("s.a", f"i.{number}")) for number in range(3))
added = st.lists(
    st.tuples(
        st.sampled_from(("new", "new", "ask", "end", "watermark")),
        st.integers(0, 2),
        st.integers(0, 7),
        st.sampled_from([0.0, 0.1, 11.0]),
    ),
    max_size=30,
)
steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 2),
        st.integers(0, 7),
        st.sampled_from([0.0, 0.1, 1.0, 6.0, 11.0, 31.0]),
    ),
    max_size=30,
)


@dataclass
class Application:
    """Turns steps into the records that a tailer would write, and knows what is left of each message."""

    sessions: Sequence[str] = SESSIONS
    log: list[Delivery] = field(default_factory=list[Delivery])
    home: dict[str, str] = field(default_factory=dict[str, str])
    minutes: float = 0.0
    version: int = 0

    def step(self, kind: str, session: int, which: int, minutes: float) -> None:
        self.minutes += minutes
        self.version += 1
        name, at, now = self.sessions[session], self.version, self.minutes
        old = sorted(self.home)[which % len(self.home)] if self.home else None
        match kind:
            case "new" | "empty":
                text = "" if kind == "empty" else f"text {at} " + "x" * (20 * which)
                self._write(f"s.m{at}", name, text)
            case "edit" | "edit empty" if old is not None:
                text = "" if kind == "edit empty" else "edited " + "y" * (30 * which)
                self._write(old, self.home[old], text, edited=True)
            case "delete" if old is not None:
                self.log.append(gone(old, self.home.pop(old), at, now))
            case "move" if old is not None and self.home[old] != name:
                self.log.append(gone(old, self.home[old], at, now, "moved"))
                self._write(old, name, f"moved {at}")
            case "ask":
                self.log.append(asked(name, at, now))
            case "ask if due":
                self.log.append(asked(name, at, now, if_due=True))
            case "end":
                self.log.append(ended(name, at, now))
            case "watermark":
                self.log.append(watermark(at, now))
            case _:
                pass

    def _write(self, name: str, session: str, text: str, *, edited: bool = False) -> None:
        author = f"i.{self.version % 3}"
        self.home[name] = session
        said = message(name, session, self.version, self.minutes, text, user=author, edited=edited)
        self.log.append(said)


def written(told: list[tuple[str, int, int, float]], sessions: Sequence[str] = SESSIONS) -> list[Delivery]:
    application = Application(sessions)
    for one in told:
        application.step(*one)
    return application.log


async def plainly(log: list[Delivery]) -> list[Emit]:
    """One record at a time, nothing fails."""
    return await run(trigger(MemoryStore(LIMITS)), *([one] for one in log))


async def roughly(
    log: list[Delivery], store: MemoryStore, dice: random.Random, sessions: Sessions
) -> list[Emit]:
    """In batches of any size, by processes that die at any write or publish and begin again anywhere before."""
    published: list[Emit] = []
    stage, at, deaths = trigger(store, sessions), 0, 0
    while at < len(log):
        batch = log[at : at + dice.randint(1, 8)]
        store.writes_left = dice.randint(0, 12) if deaths < 12 and dice.random() < 0.5 else None
        try:
            published += await run(stage, batch)
            at += len(batch)
            if dice.random() < 0.8:
                continue
        except Crash:
            deaths += 1
        finally:
            store.writes_left = None
        stage = trigger(store, sessions)
        at = dice.randint(0, at)
        sessions.said.clear()
    return published


def ids(published: list[Emit]) -> list[str]:
    """Formations in the order in which they were first published."""
    return list(dict.fromkeys(one.formation_id for one in formations(published)))


def by_id(published: list[Emit]) -> dict[str, set[bytes]]:
    """What was ever published under each identity; of edits in one batch, only the last need be forgotten."""
    found: dict[str, set[bytes]] = {}
    for one in published:
        assert one.identity is not None
        if isinstance(one.event, Forgotten) and one.event.because == "edited":
            continue
        found.setdefault(one.identity, set()).add(one.event.json_bytes() + str(one.time).encode())
    return found


@given(told=steps, seed=st.integers(0, 2**32))
@example(told=MOVED_AND_READ_AGAIN, seed=28)
@example(told=MOVED_BACK_IN_ONE_BATCH, seed=39)
@example(told=EDITED_WHERE_IT_WAS_NOT_FORMED, seed=15)
@example(told=EDITED_BEHIND_A_WATERMARK, seed=5)
async def test_batches_repeats_and_crashes_change_no_window(
    told: list[tuple[str, int, int, float]], seed: int
) -> None:
    log, dice = written(told), random.Random(seed)
    store = MemoryStore(LIMITS, seed)
    rough = await roughly(log, store, dice, Sessions())
    plain = await plainly(log)
    assert by_id(rough) == by_id(plain)
    assert forgotten_up_to(rough) == forgotten_up_to(plain)
    assert all(len(values) == 1 for values in by_id(rough).values()), "a repeat is the same record"
    for session in SESSIONS:
        of = [name for name in ids(rough) if name.startswith(f"{session}/")]
        assert of == [name for name in ids(plain) if name.startswith(f"{session}/")]


@given(told=added, seed=st.integers(0, 2**32))
async def test_added_texts_that_wait_share_windows_and_each_is_formed_once_when_it_was_asked_for(
    told: list[tuple[str, int, int, float]], seed: int
) -> None:
    log, store = written(told, OWN), MemoryStore(LIMITS, seed)
    rough = {
        one.formation_id: one
        for one in formations(await roughly(log, store, random.Random(seed), Sessions()))
    }
    assert set(rough) == set(store.stored_windows), "every window that is stored is published"
    plain = {one.formation_id: one for one in formations(await plainly(log))}
    assert sorted(members(rough.values())) == sorted(members(plain.values()))


async def test_texts_added_at_once_close_one_window_and_a_message_after_them_waits() -> None:
    own, stage = OWN[0], trigger(MemoryStore(Limits()))
    batch = [one for n in range(1, 7, 2) for one in (message(f"s.m{n}", own, n, 0), asked(own, n + 1, 0))]
    found = formations(await run(stage, [*batch, message("s.after", own, 9, 0)], batch))
    assert [(names(one), one.closed_because) for one in found] == [(["s.m1", "s.m3", "s.m5"], "asked")]


def members(windows: Iterable[FormationRequested]) -> list[str]:
    return [name for one in windows for name in names(one)]


@given(told=steps, seed=st.integers(0, 2**32))
async def test_records_that_the_tailer_repeats_change_no_window(
    told: list[tuple[str, int, int, float]], seed: int
) -> None:
    log, dice = written(told), random.Random(seed)
    repeated: list[Delivery] = []
    for end, one in enumerate(log, 1):
        repeated.append(one)
        if dice.random() < 0.1:
            repeated += log[dice.randint(0, end) : end]
    rough = await roughly(repeated, MemoryStore(LIMITS, seed), dice, Sessions())
    windows = {one.formation_id for one in formations(rough)}
    assert windows == {one.formation_id for one in formations(await plainly(log))}


@given(told=steps, seed=st.integers(0, 2**32))
async def test_every_message_is_in_one_window_or_waits_while_its_text_is_kept_once(
    told: list[tuple[str, int, int, float]], seed: int
) -> None:
    log, store = written(told), MemoryStore(LIMITS, seed)
    late = Sessions({name: Missing("no document") for name in SESSIONS[: seed % 4]})
    published = await roughly(log, store, random.Random(seed), late)
    late.said.clear()
    published += await run(trigger(store, late), [watermark(10_000, -1)])
    windows = {one.formation_id: one for one in formations(published)}
    assert set(windows) == set(store.stored_windows), "every window that is stored is published"
    gone_up_to = forgotten_up_to(published)
    held = [one for window in windows.values() for one in window.messages]
    counts = [one.message_id for one in held if one.version > gone_up_to.get(one.message_id, "")]
    assert len(counts) == len(set(counts)), "no message is in two windows that count"
    formed = {one.message_id for one in held if store.stored_messages[one.message_id].formation_id}
    for name, last in _last(log).items():
        waits = [session for session in SESSIONS if name in store.waiting_in(session)]
        if name in formed:
            assert not waits
            assert store.stored_messages[name].text is None
        elif last is not None and last.text:
            assert waits == [last.session_id]
            assert store.stored_messages[name].text == last.text
        else:
            assert not waits
            assert store.stored_messages[name].text is None


def forgotten_up_to(published: list[Emit]) -> dict[str, str]:
    """The highest version of each message that is forgotten."""
    found: dict[str, str] = {}
    for one in published:
        if isinstance(one.event, Forgotten):
            found[one.event.id] = max(one.event.version or "", found.get(one.event.id, ""))
    return found


def _last(log: list[Delivery]) -> dict[str, MessageRecorded | None]:
    last: dict[str, MessageRecorded | None] = {}
    for one in log:
        if isinstance(one.event, MessageRecorded):
            last[one.key] = one.event
        elif one.event is None and one.envelope.reason == "deleted":
            last[one.key] = None
    return last


@given(told=steps)
async def test_every_deletion_that_was_seen_is_forgotten(told: list[tuple[str, int, int, float]]) -> None:
    log = written(told)
    deleted = [(one.key, one.envelope.entity_version) for one in log if one.envelope.reason == "deleted"]
    published = await plainly(log)
    assert [
        (one.event.id, one.event.version)
        for one in published
        if isinstance(one.event, Forgotten) and one.event.because == "deleted"
    ] == deleted
    assert all(isinstance(one.event, Forgotten | FormationRequested) for one in published)
