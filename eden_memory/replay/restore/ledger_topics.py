"""The ledger from the topics: a record behind its stage's committed offset that left any output counts as decided.

With it, records that come again are not decided, paid for and published a second time. Only what left no record
(not decided, nothing found, nothing to change) is decided again, and asked of a model again.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import orjson
from aiokafka import TopicPartition

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import reading
from eden_memory.kafka.topics import Topics
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FactsExtracted,
    FactsProposed,
    FormationRequested,
    ReflectionFormed,
    SessionClosed,
)
from eden_memory.stages.outcome import Ledger, StageOutcome

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
