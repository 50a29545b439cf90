"""The ledger from the topics: what was decided and published behind the offsets that its stage had committed.

With it, records that come again are not decided, paid for and published a second time. What was decided but left no
record (nothing found, nothing to change) is decided again: that changes nothing, and is asked of a model again.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeGuard

import orjson
from aiokafka import TopicPartition

from eden_memory.formation.extraction_results import proposals_of, session_closed
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import reading
from eden_memory.kafka.topics import Topics
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    REGISTRY,
    Event,
    FactChanged,
    FactsExtracted,
    FactsProposed,
    FormationRequested,
    ReflectionFormed,
    SessionClosed,
)
from eden_memory.stages.codec import Encoder
from eden_memory.stages.outcome import Ledger, StageOutcome, StoredRecord
from eden_memory.stages.stage import Delivery, Emitted

EXTRACTION, DEDUP, REFLECTIONS = "fact-extraction", "fact-dedup", "reflection-extraction"
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Undecided:
    """A record behind its stage's committed offset."""

    id: str
    """`ce_id`."""
    topic: str
    partition: int
    offset: int
    envelope: Envelope
    ended: FactsExtracted | None = None
    """Of a session's last window: what was found in it."""


@dataclass(slots=True)
class InFlight:
    """By formation: what was not committed yet when MongoDB was lost."""

    asked: dict[str, Undecided] = field(default_factory=dict[str, Undecided])
    """FormationRequested."""
    extracted: dict[str, Undecided] = field(default_factory=dict[str, Undecided])
    """FactsExtracted."""

    def wants_texts(self, asked: FormationRequested) -> bool:
        """Tell whether a window is still to be read."""
        return asked.formation_id in self.asked or asked.formation_id in self.extracted


@dataclass(slots=True)
class Decisions:
    """`committed`: what a stage's group has committed (stage in)."""

    kafka: KafkaArguments
    topics: Topics
    ledger: Ledger
    committed: Callable[[str], Offsets]
    now: Callable[[], datetime]
    stored: Counter[str] = field(default_factory=Counter[str])
    """By stage: decisions that were found."""

    async def restore(self) -> InFlight:
        """Note every decision that was published; safe to repeat. What was in flight is returned."""
        flying = InFlight(
            await self._behind(EXTRACTION, FormationRequested),
            await self._behind(REFLECTIONS, FactsExtracted),
        )
        await self._extractions(flying)
        await self._reflections(flying.extracted)
        await self._facts()
        return flying

    async def _behind(self, stage: str, kind: type[Event]) -> dict[str, Undecided]:
        """The records of a topic that its stage had not committed, by key."""
        found: dict[str, Undecided] = {}
        async for record, envelope in self._records(kind, self.committed(stage)):
            if record.key is not None and record.value is not None:
                place = record.topic, record.partition, record.offset
                event = _event(record, envelope) if kind is FactsExtracted else None
                last = event if _ended(event) else None
                found[record.key.decode()] = Undecided(envelope.id, *place, envelope, last)
        return found

    async def _extractions(self, flying: InFlight) -> None:
        """A window whose facts are known was decided; its proposals are published again, byte for byte."""
        encoder = Encoder(EXTRACTION, self.topics.topic_of)
        async for record, envelope in self._records(FactsExtracted):
            name = (record.key or b"").decode()
            asked = flying.asked.get(name)
            event = None if asked is None else _event(record, envelope)
            if asked is not None and isinstance(event, FactsExtracted):
                delivery = Delivery(asked.envelope, None, asked.topic, name, asked.partition)
                events: Sequence[Emitted] = (event, *proposals_of(event))
                records = encoder.records(events, [delivery])
                kinds = (FactsExtracted.NAME, FactsProposed.NAME)[: len(records)]
                await self._note(EXTRACTION, asked, records, kinds)
        for name, extracted in flying.extracted.items():
            if name not in flying.asked:  # committed long ago: housekeeping looks for it
                await self._note(EXTRACTION, _asked(name, extracted), (), (FactsExtracted.NAME,))

    async def _reflections(self, extracted: Mapping[str, Undecided]) -> None:
        """A window of which any reflection is known was decided; its last word, if that is missing, is said."""
        by_id = {undecided.id: name for name, undecided in extracted.items()}
        formed, closed = Counter[str](), set[str]()
        async for record, envelope in self._records(ReflectionFormed):
            name = by_id.get(_cause(record))
            if name is None:
                continue
            if envelope.name == SessionClosed.NAME:
                closed.add(name)
            else:
                event = _event(record, envelope)
                formed[name] += isinstance(event, ReflectionFormed) and event.scope.kind == "session"
        for name in formed.keys() | closed:
            last = () if name in closed else self._last_word(extracted[name], formed[name])
            kinds = (ReflectionFormed.NAME, SessionClosed.NAME)
            await self._note(REFLECTIONS, extracted[name], last, kinds)

    def _last_word(self, undecided: Undecided, of_session: int) -> tuple[StoredRecord, ...]:
        if undecided.ended is None:
            return ()
        delivery = Delivery(
            undecided.envelope, undecided.ended, undecided.topic, undecided.ended.key(), undecided.partition
        )
        events = session_closed(delivery, undecided.ended, of_session)
        return Encoder(REFLECTIONS, self.topics.topic_of).records(events, [delivery])

    async def _facts(self) -> None:
        """A proposal or command of which any fact is known was decided."""
        behind = {
            undecided.id: undecided for undecided in (await self._behind(DEDUP, FactsProposed)).values()
        }
        found: dict[str, list[str]] = {}
        if behind:
            async for record, _ in self._records(FactChanged):
                cause = _cause(record)
                if cause in behind and record.key is not None:
                    found.setdefault(cause, []).append(f"fact:{record.key.decode()}")
        for cause, writes in found.items():
            await self._note(DEDUP, behind[cause], (), (FactChanged.NAME,), tuple(writes))

    async def _records(
        self, kind: type[Event], since: Offsets | None = None
    ) -> AsyncGenerator[tuple[Record, Envelope]]:
        """The records of an event's topic that can be read."""
        async with reading(self.kafka, [self.topics.topic_of(kind)], since) as source:
            async for batch in source.batches():
                for record in batch:
                    try:
                        envelope = Envelope.of_headers(record.headers)
                    except ValueError:
                        continue
                    yield record, envelope

    async def _note(
        self,
        stage: str,
        undecided: Undecided,
        records: tuple[StoredRecord, ...],
        kinds: tuple[str, ...],
        writes: tuple[str, ...] = (),
    ) -> None:
        key = f"{stage}:{undecided.id}"
        place = undecided.topic, undecided.partition, undecided.offset
        await self.ledger.store(
            StageOutcome(key, stage, (undecided.id,), writes, records, *place, self.now(), kinds)
        )
        self.stored[stage] += 1


def _event(record: Record, envelope: Envelope) -> Event | None:
    try:
        value = record.value
        return None if value is None else REGISTRY.decode(envelope.name, envelope.version, value)
    except ValueError:
        return None


def _ended(event: Event | None) -> TypeGuard[FactsExtracted]:
    return isinstance(event, FactsExtracted) and event.window.closed_because == "ended"


def _cause(record: Record) -> str:
    """`ce_id` of what a record was decided from."""
    try:
        return str(orjson.loads(record.value)["cause"]) if record.value is not None else ""
    except (ValueError, KeyError, TypeError):
        return ""


def _asked(formation_id: str, extracted: Undecided) -> Undecided:
    """The FormationRequested that a FactsExtracted answers, by what its id follows from."""
    return Undecided(f"formation/{formation_id}", extracted.topic, extracted.partition, 0, extracted.envelope)
