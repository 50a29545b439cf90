"""`eden rebuild NAME`: fill a namespace from the memory topics, compare it with live memory, and make it live.

The filling is atlas-writer's own stage. Nothing is published: the live writer has announced it already. Records that
cannot be read or written are counted and passed over; the live writer's dead letters name them."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from eden_memory.assembly.stage_parts import surroundings
from eden_memory.errors import EdenError
from eden_memory.forgetting.mark_store import MongoBatchMarks, MongoForgetting
from eden_memory.kafka.topic_reading import refuse_missing
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.names import Names, Placement
from eden_memory.processors import pipeline
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.replay.group_progress import GroupProgress, Offsets
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import (
    WRITER,
    MongoNamespaces,
    checked,
    placement_of,
    prefix_of,
    stage_of,
    sweeping_of,
)
from eden_memory.replay.namespaces.switching import switch
from eden_memory.replay.rebuild.document_comparing import (
    ComparedMemories,
    DocumentDifference,
    MemoryComparison,
)
from eden_memory.schemas.documents import DeadLetter, Namespace
from eden_memory.schemas.events import REGISTRY, Event, FactChanged
from eden_memory.schemas.registry import Registry
from eden_memory.stages.controls import MongoControls
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.lanes import Slots
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.patience import until_done
from eden_memory.stages.stage import Decision, Delivery, Handler
from eden_memory.stages.worker import Bounds, Worker
from eden_memory.tasks import end, first_of

BATCH = 1_500
"""Records of one partition that are written together: those of one scope go into one transaction."""
HANDLERS = 2
"""Batches at a time: one waits for MongoDB while the other is decoded; more of them only take memory."""
SLOTS = 12
BOUNDS = Bounds(records=1_000, bytes=1_500_000, commit_seconds=0.5, poll_seconds=0.1, stop_seconds=10.0)
"""Of every partition of every topic: with six partitions, about 30 MB wait at most."""
LOOK_SECONDS = 0.5
PAUSE_SECONDS = 1.0
LEAVE_SECONDS = 15.0
PASSED_OVER: Event = FactChanged.model_construct(said_at=None)
"""Stands for any value."""


@dataclass(slots=True)
class Counted:
    """The records that this process has written, and those that it could not read."""

    records: int = 0
    unreadable: int = 0

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        """Publish nothing: a silent writer decides no events."""


class CountedLetters(DeadLetters):
    """Counts dead letters instead of storing them: the live writer leaves the same."""

    def __init__(self, at: Installation, placement: Placement, counted: Counted) -> None:
        names = at.settings.names
        super().__init__(at.database, names, MongoForgetting(at.database, names), placement)
        self._counted = counted

    async def put(self, letters: Sequence[DeadLetter]) -> None:
        """Count them."""
        self._counted.unreadable += len(letters)


class Undecoded(Registry):
    """A registry that reads no values: a tombstone writer needs none, and vectors are long."""

    def __init__(self, registry: Registry) -> None:
        self.events = registry.events

    def decode(self, name: str, version: int, value: bytes) -> Event:
        """Return the same event for any value."""
        del name, version, value
        return PASSED_OVER


def silent(writer: Handler, counted: Counted) -> Handler:
    """Return the writer without its events: they would reach live topics."""

    async def run(deliveries: Sequence[Delivery]) -> Decision:
        decision = await writer(deliveries)
        assert isinstance(decision, Decision)
        counted.records += len(deliveries) if decision.covers is None else decision.covers
        return Decision((), covers=decision.covers)

    return run


def tombstones_only(writer: Handler) -> Handler:
    """Return the writer, given only tombstones; other records count as done."""

    async def run(deliveries: Sequence[Delivery]) -> Decision:
        ends = [index for index, delivery in enumerate(deliveries) if delivery.event is None]
        if not ends:
            return Decision(())
        decision = await writer([deliveries[index] for index in ends])
        assert isinstance(decision, Decision)
        if decision.covers is None or decision.covers >= len(ends):
            return Decision(())
        return Decision((), covers=ends[decision.covers])

    return run


def memory_writer(at: Installation, placement: Placement) -> AtlasWriter:
    """Return the writer's own code over the collections of a memory, with the marks of its pipeline."""
    names = placement.names(at.settings.mongodb.prefix)
    marks = MongoBatchMarks(at.database, names)
    return AtlasWriter(MongoMemoryStore(at.database, names), marks, sleep=_without_spacing)


async def _without_spacing(seconds: float) -> None:
    """Do not wait: nothing is announced."""
    del seconds


def silent_writer(
    at: Installation,
    placement: Placement,
    name: str,
    group: str,
    counted: Counted,
    *,
    only_tombstones: bool = False,
) -> Worker:
    """Return the writer's stage for a memory, under a name and in a group of its own; it publishes nothing."""
    writer: Handler = memory_writer(at, placement)
    writer = silent(tombstones_only(writer) if only_tombstones else writer, counted)

    def group_of(program: str) -> str:
        del program
        return group

    (row,) = pipeline.stages({WRITER: writer})
    stage = replace(row, name=name, writes=(), at_once=HANDLERS, batch=BATCH, dead_share=1.0)
    around = replace(
        surroundings(at.settings.placed(placement), at.database, counted, BOUNDS),
        controls=MongoControls(at.database, Names(at.memory_prefix(placement))),
        slots=Slots(SLOTS),
        group_of=group_of,
        letters=CountedLetters(at, placement, counted),
        registry=Undecoded(REGISTRY) if only_tombstones else REGISTRY,
    )
    return Worker(stage, around)


@dataclass(frozen=True, slots=True)
class FillProgress:
    """How far a namespace is, in offsets of the topics (compacted topics hold fewer records)."""

    done: int
    whole: int
    """Up to the present ends."""
    records: int
    """Written by this process."""
    unreadable: int


OnProgress = Callable[[FillProgress], None]


@dataclass(slots=True)
class NamespaceFill:
    """Fills one namespace until it has everything; `on_progress` gets the newest figures."""

    namespace: Namespace
    worker: Worker
    topics: GroupProgress
    counted: Counted
    on_progress: OnProgress
    namespaces: MongoNamespaces | None = None
    """Where it is stored that everything is in; None: nowhere."""
    _noted: int = field(default=0)
    """Unreadable records that are stored already."""

    async def run(
        self,
        then: Callable[[], Awaitable[None]] | None = None,
        *,
        follow: bool,
        guard: Coroutine[Any, Any, None] | None = None,
    ) -> None:
        """Work until everything is in (with `follow`, until cancelled); `then` runs meanwhile, once it is.

        What `guard` raises ends the work.
        """
        working = asyncio.create_task(self.worker.run())
        steps = asyncio.create_task(self._steps(then, follow=follow))
        guarding = [] if guard is None else [asyncio.create_task(guard)]
        try:
            await first_of(working, steps, *guarding)
            for task in (working, *guarding):
                if task.done():
                    task.result()
                    raise EdenError("the rebuild has stopped by itself", "Run the same command again.")
            steps.result()
        finally:
            steps.cancel()
            self.worker.stop()
            await asyncio.wait([working, steps], timeout=LEAVE_SECONDS)
            await end([working, steps, *guarding])
            await self._note()

    async def _steps(self, then: Callable[[], Awaitable[None]] | None, *, follow: bool) -> None:
        await self.up_to_now()
        if self.namespaces is not None:
            await self.namespaces.caught_up(self.namespace.id, datetime.now(UTC))
        if then is not None:
            await then()
        while follow:
            await asyncio.sleep(LOOK_SECONDS)
            await self.up_to_now()

    async def up_to_now(self) -> None:
        """Return once everything is in that was in the topics at some moment after the call."""
        ends = await until_done(self.topics.ends)
        while await until_done(lambda: self._look(ends)):  # noqa: ASYNC110 - another process may do it
            await asyncio.sleep(LOOK_SECONDS)
        await self._note()

    async def _look(self, ends: Offsets) -> int:
        """Return the offsets left up to `ends`, and report them."""
        left = await self.topics.behind(ends)
        whole, counted = sum(ends.values()) - sum(self.topics.begin.values()), self.counted
        self.on_progress(FillProgress(whole - left, whole, counted.records, counted.unreadable))
        return left

    async def _note(self) -> None:
        """Store how many more records could not be read."""
        more = self.counted.unreadable - self._noted
        self._noted += more
        if self.namespaces is not None and more:
            await self.namespaces.unreadable(self.namespace.id, more)


@asynccontextmanager
async def filling(at: Installation, name: str, on_progress: OnProgress) -> AsyncGenerator[NamespaceFill]:
    """Yield the work that fills a namespace, which is made if it is new; EdenError where it cannot be filled."""
    known = await at.namespaces.get(checked(name))
    if known is not None and known.kind != "rebuild":
        raise EdenError(f"{name} is a {known.kind}, no rebuild", "Give another name.")
    placement = placement_of(known) if known is not None else Placement(name, at.settings.placement.pipeline)
    if placement == at.settings.placement:
        raise EdenError(f"{name} is live: its writer is part of `eden run`", "Give another name.")
    topics, group = at.topics(placement).read_by(WRITER), at.topics(placement).group(WRITER)
    async with GroupProgress(at.kafka, {group: topics}) as progress:
        if known is None:
            # A namespace of this name may have been lost with MongoDB: its groups would go on where they ended.
            for lost in (group, sweeping_of(group)):
                await at.forget_group(lost)
            refuse_missing(topics, (tp.topic for tp in progress.partitions))
            known = Namespace(
                id=placement.memory,
                kind="rebuild",
                prefix=prefix_of(at.settings.mongodb.prefix, placement.memory),
                group=group,
                source=at.prefix,
                pipeline=placement.pipeline,
                state="filling",
                created_at=datetime.now(UTC),
            )
        if known.state == "dropped":
            raise EdenError(f"{name} is being dropped", f"eden namespace drop {name}")
        namespace, counted = await at.namespaces.made(known), Counted()
        worker = silent_writer(at, placement, stage_of(name), namespace.group, counted)
        yield NamespaceFill(namespace, worker, progress, counted, on_progress, at.namespaces)


SHOWN = 50
ROUNDS = 20
STABLE = 3
"""So many comparisons in a row must find the same differences before they are believed."""


@dataclass(slots=True)
class NamespaceRebuild:
    """One `eden rebuild NAME`; `say` gets lines for people, `on_progress` the newest figures."""

    name: str
    say: Callable[[str], None]
    on_progress: OnProgress
    follow: bool = False
    compared: int | None = None
    """How many differences are listed; None: nothing is compared."""
    switch: bool = False
    accept: bool = False
    """Switch in spite of differences, or uncompared."""
    verdict: "RebuildVerdict | None" = None

    async def run(self, at: Installation) -> None:
        """Fill, compare and switch; EdenError once somebody drops the namespace or makes it live."""

        async def once_filled() -> None:
            counts = await at.namespaces.counts(fill.namespace.prefix)
            listed = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
            self.say(f"{self.name} has all that was there: {listed}")
            if self.compared is not None:
                await self._compare(at, fill, self.compared)
            if self.switch and (self.accept or self.verdict is None or self.verdict.equal):
                was = await switch(at, self.name)
                self.say(f"{self.name} is live now, in the place of {was.memory}")
            elif self.switch:
                self.say("nothing was switched; --accept makes it live all the same")

        async with filling(at, self.name, self.on_progress) as fill:
            await fill.run(once_filled, follow=self.follow and not self.switch, guard=self._until_taken(at))

    async def _compare(self, at: Installation, fill: NamespaceFill, most: int) -> None:
        self.verdict = verdict = await verify(at, fill, most)
        for line in verdict.lines():
            self.say(line)
        if verdict.equal:
            await at.namespaces.verified(self.name, datetime.now(UTC))

    async def _until_taken(self, at: Installation) -> None:
        """Watch whether somebody drops the namespace, or makes it live: it has a writer then."""
        while True:
            found, live = await at.namespaces.get(self.name), await at.live.placement()
            if found is None or found.state == "dropped":
                raise EdenError(f"{self.name} is being dropped")
            if live.memory == self.name and not self.switch:
                raise EdenError(f"{self.name} was made live: `eden run` goes on with it")
            await asyncio.sleep(LOOK_SECONDS)


@dataclass(frozen=True, slots=True)
class RebuildVerdict:
    """A comparison, and how many of its differences are listed."""

    compared: ComparedMemories
    most: int

    @property
    def differences(self) -> list[DocumentDifference]:
        """The first differences, by collection and id."""
        return [found for _, found in sorted(self.compared.differing.items())[: self.most]]

    @property
    def differing(self) -> int:
        """The number of documents that differ."""
        return len(self.compared.differing) + self.compared.beyond.total()

    @property
    def equal(self) -> bool:
        """Whether all documents are the same."""
        return self.differing == 0

    def lines(self) -> list[str]:
        """Return the documents that were compared, those that differ, and the verdict, for people."""
        differ = Counter(name for name, _ in self.compared.differing) + self.compared.beyond
        lines = [
            f"{name}: {count:,} compared, " + (f"{differ[name]:,} DIFFERENT" if differ[name] else "equal")
            for name, count in self.compared.counts.items()
        ]
        lines += map(str, self.differences)
        if (more := self.differing - len(self.differences)) > 0:
            lines.append(f"and {more:,} more")
        return [*lines, "equal to live" if self.equal else f"{self.differing:,} documents differ from live"]


async def verify(at: Installation, fill: NamespaceFill, most: int = SHOWN) -> RebuildVerdict:
    """Compare everything, then the differences again and again, each time with what was published meanwhile."""
    comparison = MemoryComparison(at.database, at.prefix, fill.namespace.prefix)
    compared = await comparison.whole()
    same = 0
    for _ in range(ROUNDS):
        if not compared.differing or same == STABLE:
            break
        await fill.up_to_now()
        await asyncio.sleep(PAUSE_SECONDS)
        same = 0 if await comparison.again(compared) else same + 1
    return RebuildVerdict(compared, most)
