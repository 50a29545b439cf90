"""The writer's handler alone: what is dropped, what is said, and how far a batch is done."""

import itertools
from collections.abc import Iterable, Mapping, Sequence

import pytest

from eden_memory.forgotten import Mark, Marks
from eden_memory.memory.memory_batch import AppliedScope, Memory, ScopeBatch, StoredScope
from eden_memory.memory.projection import project
from eden_memory.processors.atlas_writer import ANNOUNCED_EVERY, AtlasWriter
from eden_memory.schemas.events import (
    CommandRef,
    Event,
    FactCommanded,
    Forgotten,
    MemoryCommanded,
    ScopeChanged,
    SessionClosed,
)
from eden_memory.schemas.provenance import Statement
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Emit, Erase
from tests.unit.memory.memory_histories import (
    SESSION,
    USER,
    blob,
    closed,
    delivered,
    fact,
    minute,
    reflection,
    source,
    tombstone,
)
from tests.unit.memory.memory_in_mind import Mind

OTHER = Scope.of_user("s.assistant", "i.12")


class Store:
    """Applies to nothing stored; some scopes fail."""

    def __init__(self, failing: Mapping[str, Exception] | None = None) -> None:
        self.failing = dict(failing or {})
        self.batches: list[ScopeBatch] = []
        self.loaded: list[list[str]] = []
        self.given: list[list[str] | None] = []

    async def load(self, batches: Sequence[ScopeBatch]) -> Mapping[str, StoredScope]:
        self.loaded.append([one.key for one in batches])
        return {one.key: StoredScope() for one in batches}

    async def apply(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope] | None = None
    ) -> Mapping[str, AppliedScope | Exception]:
        self.batches += batches
        self.given.append(None if stored is None else list(stored))
        return {one.key: self.failing.get(one.key) or self._applied(one) for one in batches}

    def _applied(self, batch: ScopeBatch) -> AppliedScope:
        projected = project(batch, StoredScope())
        parts = projected.change.parts if projected.change else ()
        return AppliedScope(projected.snapshot, parts, projected.duplicates)


class Marked:
    def __init__(self, *marks: Mark) -> None:
        self._marks = marks
        self.asked: set[tuple[str, str]] = set()

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        self.asked |= set(named)
        return Marks(one for one in self._marks if (one.kind, one.target) in self.asked)


class Clock:
    """Time passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def writer(store: Store | None = None, *marks: Mark, clock: Clock | None = None) -> AtlasWriter:
    clock = clock or Clock()
    return AtlasWriter(store or Store(), Marked(*marks), clock=clock, sleep=clock.sleep)


def said(events: Iterable[object]) -> list[ScopeChanged]:
    emitted = [one.event for one in events if isinstance(one, Emit)]
    return [one for one in emitted if isinstance(one, ScopeChanged)]


def erased(events: Iterable[object]) -> list[str]:
    return [one.key for one in events if isinstance(one, Erase)]


async def test_a_scope_is_announced_once_whatever_came_of_it() -> None:
    batch = [fact("f"), reflection("r"), fact("g", text="g"), fact("h", scope=OTHER)]
    decision = await writer()([delivered(one) for one in batch])
    user, other = said(decision.events)
    assert (user.scope, user.active_facts, user.buffered) == (USER, 2, 1)
    assert user.changed == ("facts", "reflections")
    assert other.scope == OTHER
    assert decision.covers == len(batch)


async def test_an_announcement_is_known_by_its_scope_and_revision() -> None:
    decision = await writer()([delivered(fact("f"), at=7)])
    (emit,) = [one for one in decision.events if isinstance(one, Emit)]
    assert (emit.identity, emit.time) == (f"changed/{USER.key}#1", minute(7))


async def test_of_facts_that_say_the_same_the_younger_is_to_be_retired() -> None:
    decision = await writer()([delivered(fact("young", at=5)), delivered(fact("old", at=1))])
    (command,) = [
        one for one in decision.events if isinstance(one, Emit) and isinstance(one.event, FactCommanded)
    ]
    assert isinstance(command.event, FactCommanded)
    assert (command.event.fact_id, command.event.expected_version, command.event.by) == (
        "young",
        1,
        "duplicate",
    )
    assert command.identity == command.event.command_id == "duplicate/young/1"


FORGOTTEN = Mark("message", "i.1", "for_ever")
ADDED = CommandRef(command_id="o.1", action="add", by="application", asked_at=minute(0))


@pytest.mark.parametrize(
    ("event", "marks"),
    [
        (fact("f", sources=[source(1)]), [FORGOTTEN]),
        (fact("f"), [Mark("fact", "f", "for_ever")]),
        (fact("f", 3), [Mark("fact", "f@3", "for_ever")]),
        (fact("f"), [Mark("user", "i.4711", "created_up_to", until=minute(9))]),
        (reflection("r", sources=[source(1)]), [FORGOTTEN]),
        (reflection("r"), [Mark("reflection", "r", "for_ever")]),
        (reflection("r", scope=SESSION), [Mark("session", "s.one", "for_ever")]),
        (closed(5), [Mark("session", "s.one", "for_ever")]),
        (blob(2, ["r"]), [Mark("blob", f"{USER.key}@2", "for_ever")]),
        (blob(2, ["r"]), [Mark("blob", f"{USER.key}@1", "for_ever")]),
        (blob(2, ["r"]), [Mark("reflection", "r", "for_ever")]),
        (blob(2, []), [Mark("user", "i.4711", "for_ever")]),
        (blob(2, [], scope=SESSION), [Mark("user", "i.4711", "for_ever")]),
        (
            reflection("r", at=9, scope=SESSION, sources=[source(1, None)]),
            [Mark("user", "i.4711", "created_up_to", until=minute(9))],
        ),
    ],
    ids=lambda one: getattr(one, "NAME", None) or str([(mark.kind, mark.target) for mark in one]),
)
async def test_what_is_forgotten_is_dropped_and_erased(event: Event, marks: list[Mark]) -> None:
    store = Store()
    given = delivered(event)
    decision = await writer(store, *marks)([given])
    assert erased(decision.events) == [given.key]
    (batch,) = store.batches
    assert not (batch.facts)
    assert not (batch.reflections)
    assert not (batch.blobs)
    assert not (batch.closed_at)


@pytest.mark.parametrize(
    ("event", "of"),
    [
        (fact("f", sources=[source(1)]).model_copy(update={"command": ADDED}), FactCommanded),
        (reflection("r", version=2, sources=[source(1)]), MemoryCommanded),
    ],
)
async def test_the_command_behind_a_dropped_version_is_erased_too(event: Memory, of: type[Event]) -> None:
    assert not isinstance(event, SessionClosed)
    assert event.command is not None
    decision = await writer(None, FORGOTTEN)([delivered(event)])
    version, command = [tombstone for tombstone in decision.events if isinstance(tombstone, Erase)]
    assert (version.of, version.key) == (type(event), event.key())
    assert (command.of, command.key) == (of, event.command.command_id)
    assert command.ordering_key == USER.key


async def test_a_fact_that_never_stood_is_told_to_forgetting_if_it_contradicted_another() -> None:
    contradicting = fact("f", sources=[source(1)]).model_copy(update={"replaces": "old"})
    decision = await writer(None, FORGOTTEN)(
        [delivered(contradicting), delivered(fact("g", sources=[source(1)]))]
    )
    told = [
        one.event for one in decision.events if isinstance(one, Emit) and isinstance(one.event, Forgotten)
    ]
    assert [(one.kind, one.id, one.because, one.reach) for one in told] == [
        ("fact", "f", "derived", "for_ever")
    ]


@pytest.mark.parametrize(
    ("event", "marks"),
    [
        (fact("f", 2), [Mark("fact", "f@1", "for_ever")]),
        (fact("f"), [Mark("user", "i.4711", "created_up_to", until=minute(0))]),
        (fact("f", sources=[source(1)]), [Mark("message", "i.1", "up_to_version", version="0" * 16)]),
        (blob(3, ["r"]), [Mark("blob", f"{USER.key}@1", "for_ever")]),
        (reflection("r"), [Mark("session", "s.one", "for_ever")]),
    ],
)
async def test_what_rests_on_something_else_too_stands(event: Event, marks: list[Mark]) -> None:
    decision = await writer(None, *marks)([delivered(event)])
    assert erased(decision.events) == []
    assert len(said(decision.events)) == 1


async def test_what_is_dropped_counts_as_decided() -> None:
    decision = await writer(None, FORGOTTEN)([delivered(fact("f", outcome=9, sources=[source(1)]))])
    (announced,) = said(decision.events)
    assert announced.applied == 8


class MarkedLate(Marked):
    """Marks that are stored while the first batch is written."""

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        before = not self.asked
        found = await super().among(named)
        return Marks() if before else found


async def test_what_is_forgotten_while_it_is_written_is_taken_back() -> None:
    store, clock = Store(), Clock()
    late = AtlasWriter(store, MarkedLate(FORGOTTEN), clock=clock, sleep=clock.sleep)
    events = [
        fact("f", sources=[source(1)]),
        reflection("r", sources=[source(1)]),
        reflection("stays", sources=[source(2)]),
        fact("g", scope=OTHER),
    ]
    decision = await late([delivered(one) for one in events])
    written, other, taken_back = store.batches
    assert (set(written.reflections), other.key) == ({("r", 1), ("stays", 1)}, OTHER.key)
    assert (taken_back.key, set(taken_back.reflections)) == (USER.key, {("stays", 1)})
    assert (taken_back.gone_facts, taken_back.gone_reflections) == ({("f", 1)}, {("r", 1)})
    assert erased(decision.events) == ["f@1", "r"]
    assert [one.scope for one in said(decision.events)] == [USER, OTHER]
    assert decision.covers == len(events)


async def test_a_reflection_that_stood_for_a_moment_is_told_of() -> None:
    events = [fact("f", sources=[source(1)]), reflection("r", sources=[source(1)])]
    decision = await AtlasWriter(Store(), MarkedLate(FORGOTTEN))([delivered(one) for one in events])
    told = [one.event for one in decision.events if isinstance(one, Emit)]
    assert [(one.kind, one.id, one.scope) for one in told if isinstance(one, Forgotten)] == [
        ("reflection", "r", USER.key)
    ]
    known = await writer(None, FORGOTTEN)([delivered(one) for one in events])
    emitted = [one.event for one in known.events if isinstance(one, Emit)]
    assert not [one for one in emitted if isinstance(one, Forgotten)]


class Remembering(Store):
    """Keeps the facts of one scope."""

    def __init__(self) -> None:
        super().__init__()
        self.mind = Mind()

    async def load(self, batches: Sequence[ScopeBatch]) -> Mapping[str, StoredScope]:
        return {batch.key: self.mind.load(batch) for batch in batches}

    async def apply(
        self, batches: Sequence[ScopeBatch], stored: Mapping[str, StoredScope] | None = None
    ) -> Mapping[str, AppliedScope | Exception]:
        return {batch.key: self.mind.apply(batch) for batch in batches}


async def test_what_is_left_of_a_stored_fact_is_stated_anew_when_its_newest_version_is_taken_back() -> None:
    store = Remembering()
    await writer(store)([delivered(fact("f", sources=[source(2)]))])
    statement = Statement(number=1, text="Ana rows.", sources=(source(1),))
    second = fact("f", 2, sources=[source(2), source(1)]).model_copy(update={"statement": statement})
    late = await AtlasWriter(store, MarkedLate(FORGOTTEN))([delivered(second)])
    again = await writer(store, FORGOTTEN)([delivered(second)])
    for decision in (late, again):
        (anew,) = [emit.event for emit in decision.events if isinstance(emit, Emit)][:1]
        assert isinstance(anew, FactCommanded)
        assert (anew.command_id, anew.text, anew.sources) == ("restated/f/1", fact("f").text, (source(2),))
        assert sorted(erased(decision.events)) == ["f@1", "f@2"]
    await writer(store, FORGOTTEN)([tombstone(fact("f")), tombstone(second)])
    assert store.mind.facts == {}


async def test_nothing_is_stated_anew_of_a_fact_that_someone_asked_to_forget() -> None:
    statement = Statement(number=1, text="Ana rows.", sources=(source(2),))
    second = fact("f", 2, sources=[source(1), source(2)]).model_copy(update={"statement": statement})
    for by_hand, anew in ((False, ["restated/f/2"]), (True, [])):
        marks = [FORGOTTEN, Mark("fact", "f", "for_ever", by_hand=by_hand)]
        decision = await writer(None, *marks)([delivered(second)])
        commands = [emit.event for emit in decision.events if isinstance(emit, Emit)]
        assert [event.command_id for event in commands if isinstance(event, FactCommanded)] == anew


async def test_what_is_stored_is_read_beside_the_marks_and_again_where_there_are_any() -> None:
    store, events = Store(), [fact("f", sources=[source(1)]), fact("g", scope=OTHER)]
    await writer(store)([delivered(one) for one in events])
    await writer(store, FORGOTTEN)([delivered(one) for one in events])
    assert store.loaded == [[USER.key, OTHER.key]] * 2
    assert store.given == [[USER.key, OTHER.key], None]


async def test_a_batch_is_done_up_to_the_first_record_of_a_scope_that_failed() -> None:
    store = Store({OTHER.key: ValueError("ill")})
    batch = [fact("a", text="a"), fact("b", scope=OTHER), fact("c", text="c"), fact("d", scope=OTHER)]
    decision = await writer(store)([delivered(one) for one in batch])
    assert decision.covers == 1
    assert [one.scope for one in said(decision.events)] == [USER]


async def test_a_scope_that_fails_at_the_front_raises_its_error() -> None:
    store = Store({USER.key: ValueError("ill"), OTHER.key: KeyError("also")})
    with pytest.raises(ValueError, match="ill"):
        await writer(store)([delivered(fact("a")), delivered(fact("b", scope=OTHER))])


async def test_a_scope_is_announced_every_50_ms_at_most() -> None:
    clock = Clock()
    handler = writer(clock=clock)
    times: list[float] = []
    for name in "abc":
        await handler([delivered(fact(name, text=name))])
        times.append(clock.now)
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == pytest.approx(  # pyright: ignore[reportUnknownMemberType]
        [ANNOUNCED_EVERY] * 2
    )


async def test_scopes_that_were_not_announced_lately_do_not_wait() -> None:
    clock = Clock()
    handler = writer(clock=clock)
    await handler([delivered(fact("a"))])
    await handler([delivered(fact("b", scope=OTHER))])
    clock.now += ANNOUNCED_EVERY
    await handler([delivered(fact("c", text="c"))])
    assert clock.slept == []


async def test_everything_that_forgetting_concerns_is_asked_in_one_question() -> None:
    forgotten = Marked()
    await AtlasWriter(Store(), forgotten)(
        [delivered(fact("f", sources=[source(1)])), delivered(blob(2, ["r"])), delivered(closed(1))]
    )
    assert forgotten.asked == {
        ("message", "i.1"),
        ("session", "s.one"),
        ("user", "i.4711"),
        ("fact", "f"),
        ("fact", "f@1"),
        ("blob", USER.key),
        ("blob", f"{USER.key}@2"),
        ("blob", f"{USER.key}@1"),
        ("reflection", "r"),
    }


def test_a_tombstone_that_names_no_version_ends_nothing() -> None:
    given = delivered(blob(1, []))
    batch = ScopeBatch(USER.key, minute(0))
    batch.remove(given.envelope.name, "nonsense")
    assert batch.gone_blobs == set()
