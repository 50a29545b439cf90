"""Restore everything that the topics hold into a MongoDB that has lost it; formation goes on behind it.

A record behind its stage's committed offset that left any output counts as decided: it is not decided, paid for and
published a second time. Only what left no record (not decided, nothing found, nothing to change) is asked again.

Every step finds what was done before; killed at any moment, the same command goes on. In this order: what is
forgotten (as far as forgetting had carried it out: the rest comes again), the ledger of what was in flight,
formation-trigger's state, memory, usage.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from aiokafka import TopicPartition

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.errors import EdenError
from eden_memory.housekeeping.topics_check import TopicsCheck
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import all_partitions, reading
from eden_memory.kafka.topics import Topics
from eden_memory.memory.memory_batch import blob_ended
from eden_memory.names import Names
from eden_memory.processors.pipeline import FORGETTING
from eden_memory.replay.group_progress import GroupProgress, recorded
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import WRITER
from eden_memory.replay.rebuild.namespace_rebuild import (
    Counted,
    NamespaceFill,
    OnProgress,
    memory_writer,
    silent_writer,
)
from eden_memory.replay.restore.restored_backup import NOTED, marks_again, revisions_beyond
from eden_memory.replay.restore.restored_store import MongoLost, follow_from_now
from eden_memory.replay.restore.trigger_restore import TriggerRestore
from eden_memory.schemas.documents import Namespace
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FactsExtracted,
    FactsProposed,
    FormationRequested,
    ModelCalled,
    ReflectionFormed,
    SessionClosed,
)
from eden_memory.source.messages_store import inbox_name
from eden_memory.stages.controls import MongoGroupNotes
from eden_memory.stages.outcome import Ledger, StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.stage import Delivery
from eden_memory.usage.usage_store import MongoUsage

EXTRACTION, DEDUP, REFLECTIONS = "fact-extraction", "fact-dedup", "reflection-extraction"
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class InFlight:
    """What was not committed yet when MongoDB was lost."""

    formations: frozenset[str]
    """Formations that are still to be read."""
    decided: int
    """Records that left an output."""
    undecided: int
    """Records that left none: they are asked again."""

    def wants_texts(self, asked: FormationRequested) -> bool:
        """Tell whether a window is still to be read."""
        return asked.formation_id in self.formations


@dataclass(frozen=True, slots=True)
class Decisions:
    """`committed`: what a stage's group has committed (stage in)."""

    kafka: KafkaArguments
    topics: Topics
    ledger: Ledger
    committed: Callable[[str], Offsets]

    async def restore(self) -> InFlight:
        """Note every decision that was published; safe to repeat. What was in flight is returned."""
        asked = await self._behind(EXTRACTION, FormationRequested)
        extracted = await self._behind(REFLECTIONS, FactsExtracted)
        proposed = await self._behind(DEDUP, FactsProposed)
        decided = await self._note(
            EXTRACTION, asked, FactsExtracted, (FactsExtracted.NAME, FactsProposed.NAME), _formation
        )
        # an extraction that was committed long ago: housekeeping looks for it
        earlier = {f"formation/{_key(record)}": record for record in extracted.values()}
        for name in earlier.keys() - asked.keys():
            await self._store(EXTRACTION, name, earlier[name], (FactsExtracted.NAME,))
        decided += await self._note(
            REFLECTIONS, extracted, ReflectionFormed, (ReflectionFormed.NAME, SessionClosed.NAME), _cause
        )
        decided += await self._note(DEDUP, proposed, FactChanged, (FactChanged.NAME,), _cause)
        formations = frozenset(_key(record) for record in (*asked.values(), *extracted.values()))
        return InFlight(formations, decided, len(asked) + len(extracted) + len(proposed) - decided)

    async def _behind(self, stage: str, kind: type[Event]) -> dict[str, Record]:
        """Return the records of a topic that its stage had not committed, by `ce_id`."""
        records = self._records(kind, self.committed(stage))
        return {envelope.id: record async for record, envelope in records if record.value is not None}

    async def _note(
        self,
        stage: str,
        behind: Mapping[str, Record],
        output: type[Event],
        kinds: tuple[str, ...],
        cause_of: Callable[[Record], str],
    ) -> int:
        """Note a decision for each record that an output was made from, and return how many there are."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        if behind:
            async for record, _ in self._records(output):
                if (cause := cause_of(record)) in behind:
                    found[cause].append(_key(record))
        for cause, keys in found.items():
            writes = tuple(f"fact:{key}" for key in dict.fromkeys(keys)) if stage == DEDUP else ()
            await self._store(stage, cause, behind[cause], kinds, writes)
        return len(found)

    async def _records(
        self, kind: type[Event], since: Offsets | None = None
    ) -> AsyncGenerator[tuple[Record, Envelope]]:
        """Yield the records of an event's topic that can be read."""
        async with reading(self.kafka, [self.topics.topic_of(kind)], since) as source:
            async for batch in source.batches():
                for record in batch:
                    try:
                        envelope = Envelope.of_headers(record.headers)
                    except ValueError:
                        continue
                    yield record, envelope

    async def _store(
        self, stage: str, cause: str, record: Record, kinds: tuple[str, ...], writes: tuple[str, ...] = ()
    ) -> None:
        place = record.topic, record.partition, record.offset
        key, now = f"{stage}:{cause}", datetime.now(UTC)
        await self.ledger.store(StageOutcome(key, stage, (cause,), writes, (), *place, now, kinds))


def _key(record: Record) -> str:
    return (record.key or b"").decode()


def _formation(record: Record) -> str:
    """Return `ce_id` of the FormationRequested that a FactsExtracted answers."""
    return f"formation/{_key(record)}" if record.value is not None else ""


def _cause(record: Record) -> str:
    """Return `ce_id` of what a record was decided from."""
    try:
        return str(orjson.loads(record.value)["cause"]) if record.value is not None else ""
    except (ValueError, KeyError, TypeError):
        return ""


Row = dict[str, Any]

Say = Callable[[str], None]

LOST = (
    "Not in the topics, and so lost: API keys, streams (`eden stream`), budgets, pauses, how often facts were found, "
    "what was asked in the inbox and not carried yet, answers of models (what was in flight is asked again)."
)

STAGE = f"{WRITER}.from_nothing"
"""No namespace can have this name."""


@dataclass(slots=True)
class FromNothing:
    """One restoration; `say` hears of each step, `on_progress` of the records of memory."""

    at: Installation
    say: Say
    on_progress: OnProgress
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    _committed: dict[str, Offsets] = field(default_factory=dict[str, Offsets])

    async def run(self) -> None:
        """Restore what was not restored before."""
        lost = MongoLost(self.at.database, self._names)
        if not await self._begin(lost):
            self.say("everything was restored before: go on with `eden run`")
            return
        async with self.at.groups as groups:
            for program in self.topics.file.programs:
                self._committed[program] = await groups.committed(self.topics.group(program))
        # up to where forgetting had come: the rest comes again, and finds what it erases
        marks = await marks_again(self.at, self.topics, self._committed[FORGETTING])
        self._say("forgotten", marks, "marks of what is forgotten")
        flying = await self._decisions()
        await self._trigger(flying)
        await self._memory(lost)
        await self._usage()
        await self._note_offsets()
        await lost.done(self.told)
        settings = self.at.settings
        if await follow_from_now(self.at.database, settings, settings.source_name, inbox_name(settings)):
            self.say(
                "the application's messages are not there: the tailer follows what is written from now on, and "
                "takes nothing that is missing for deleted"
            )
        self.say(LOST)
        self.say("restored: go on with `eden run`")

    @property
    def topics(self) -> Topics:
        """Of what is live."""
        return self.at.topics(self.at.settings.placement)

    @property
    def _names(self) -> Names:
        return self.at.settings.names

    async def _begin(self, lost: MongoLost) -> bool:
        state, there = await lost.state(), await lost.in_the_way()
        if state == "done" and there:
            return False
        await self._nobody_runs()
        await all_partitions(self.at.kafka, [self.topics.name(topic) for topic in self.topics.file.topics])
        await TopicsCheck(self.at.admin, self.topics, PartitionCounts(self.at.database, self._names)).look()
        if state == "going on":
            return True
        if there:
            found = ", ".join(f"{name} ({count:,})" for name, count in there.items())
            raise EdenError(
                f"not everything is lost: {found}",
                "`eden rebuild NAME` rebuilds memory beside it; to begin from nothing, drop these collections.",
            )
        await self.at.forget_group(self._group)
        await set_up(self.at.database, self._names)
        await lost.begin()
        return True

    async def _nobody_runs(self) -> None:
        async with self.at.groups as groups:
            members = await groups.members([self.topics.group(name) for name in self.topics.file.programs])
        if busy := [group for group, count in members.items() if count]:
            raise EdenError(
                f"somebody reads for {', '.join(busy)}",
                "Stop `eden run` and whatever else runs; a killed process counts for ten seconds more.",
            )

    async def _decisions(self) -> InFlight:
        """Outcomes of what was published and not committed."""
        decisions = Decisions(
            self.at.kafka,
            self.topics,
            MongoLedger(self.at.database, self._names),
            lambda stage: self._committed[stage],
        )
        flying = await decisions.restore()
        self._say("decisions", flying.decided, "decisions that were in flight")
        self._say(
            "undecided", flying.undecided, "records in flight that left no record: they are asked again"
        )
        return flying

    async def _trigger(self, flying: InFlight) -> None:
        """Formation-trigger's state, with the texts of the windows that are still to be read."""
        settings, client = self.at.settings, self.at.database.client
        restored = await TriggerRestore(settings, client, self.topics, flying.wants_texts).run()
        self._say("windows", restored.windows, "windows, as they were recorded")
        self._say("cut", restored.cut, "windows that had closed and were not recorded: asked for next")
        self._say("waiting", restored.waiting, "messages that wait for their window")
        if restored.gone:
            self._say(
                "gone", restored.gone, "messages of windows in flight whose text is in no topic any more"
            )
        if restored.unreadable:
            self._say("unreadable", restored.unreadable, "records that cannot be read")

    async def _memory(self, lost: MongoLost) -> None:
        """Facts, reflections, blobs, snapshots: by the writer's own code, in a group of its own."""
        at, placement, counted = self.at, self.at.settings.placement, Counted()
        topics = self.topics.read_by(WRITER)
        async with GroupProgress(at.kafka, {self._group: topics}) as progress:
            namespace = Namespace(
                id=placement.memory,
                kind="original",
                prefix=at.prefix,
                group=self._group,
                source=at.prefix,
                pipeline=placement.pipeline,
                state="filling",
                created_at=datetime.now(UTC),
            )
            worker = silent_writer(at, placement, STAGE, self._group, counted)
            fill = NamespaceFill(namespace, worker, progress, counted, self.on_progress)
            await fill.run(follow=False)
        counts = await at.namespaces.counts(at.prefix)
        writer = memory_writer(at, placement)
        async for names in lost.forgotten_blobs():
            await writer([_ended(name) for name in names])
        await revisions_beyond(at, self.topics, lost)
        for name, count in counts.items():
            self._say(name, count, name)
        await MongoGroupNotes(at.database, self._names).forget(self._group)

    @property
    def _group(self) -> str:
        return self.topics.group_prefix + STAGE

    async def _note_offsets(self) -> None:
        """Note how far the stages had come whose work is restored: this MongoDB is not older than Kafka."""
        notes = MongoGroupNotes(self.at.database, self._names)
        for stage in NOTED:
            reached = {(tp.topic, tp.partition): end for tp, end in self._committed[stage].items()}
            await notes.note_reached(self.topics.group(stage), reached, {})

    async def _usage(self) -> None:
        """Usage as far back as its topic goes; every call counts once, whatever comes again."""
        store = MongoUsage(self.at.database, self._names)
        await store.prepare()
        count = 0
        async for batch in recorded(self.at.kafka, self.topics.topic_of(ModelCalled)):
            calls = {event.call_id: event for event, *_ in batch if isinstance(event, ModelCalled)}
            count += len(await store.count(list(calls.values())))
        self._say("calls", count, "calls of models, with tokens and cost")

    def _say(self, name: str, count: int, what: str) -> None:
        self.told[name] = count
        self.say(f"{count:,} {what}")


def _ended(name: str) -> Delivery:
    """The tombstone of a blob version, which the topic may no longer have."""
    key, _, version = name.rpartition("@")
    return Delivery(blob_ended(key, int(version), STAGE), None, "", name)
