"""Publishing what a stage has decided: until it is confirmed, and around what the brokers will never take."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from eden_memory import metrics
from eden_memory.errors import describe
from eden_memory.kafka.error_kinds import UNPUBLISHABLE
from eden_memory.kafka.record import Record
from eden_memory.logs import LibraryLogger
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event
from eden_memory.stages.codec import Encoder, kind_of
from eden_memory.stages.dead_letters import dead_letter
from eden_memory.stages.failure_decisions import Failure, Kind, given_up
from eden_memory.stages.lanes import Unit
from eden_memory.stages.outcome import StageOutcome, StoredRecord
from eden_memory.stages.patience import until_done
from eden_memory.stages.stage import Delivery, Emit, Emitted, Stage

if TYPE_CHECKING:
    from eden_memory.stages.worker import Surroundings

log = LibraryLogger()
EndPublished = Callable[[str, Sequence[Event], Sequence[Delivery]], Awaitable[Sequence[Emitted]]]
"""Given an outcome's key, the events just published, and what was decided: returns what is to be published behind."""


class OutcomePublishing:
    """Publishes the records of one stage's outcomes."""

    def __init__(self, stage: Stage, encoder: Encoder, around: "Surroundings") -> None:
        self._stage, self._encoder, self._publisher = stage, encoder, around.publisher
        self._clock, self._letters = around.clock, around.letters
        self._decode = around.registry.decode
        self._end = around.end_published if stage.decides else None

    async def __call__(
        self, unit: Unit, deliveries: Sequence[Delivery], records: Sequence[StoredRecord]
    ) -> None:
        """Publish until confirmed, or until the partition is another worker's: that one publishes then.

        An event that the brokers will never take becomes a dead letter, and the stage goes on.
        """
        for record, error in await self._refused(unit, records):
            await self._bury(unit, deliveries, record, error)

    async def decided(
        self,
        unit: Unit,
        deliveries: Sequence[Delivery],
        outcome: StageOutcome,
        events: Sequence[Emitted] | None = None,
    ) -> None:
        """Publish a stored outcome, then what ends those of its events that were forgotten meanwhile.

        An outcome without events is looked at, too: a model may have answered in an attempt before.
        `events`: what the outcome was made of; without them they are read from its records.
        """
        await self(unit, deliveries, outcome.records)
        published = self._events_of(outcome.records) if events is None else _events_in(events)
        while self._end is not None and not unit.home.revoked:
            behind = await until_done(partial(self._end, outcome.key, published, deliveries))
            await self(unit, deliveries, self._encoder.records(behind, deliveries, unit.items[0].retry))
            if not (published := _events_in(behind)):
                return

    def _events_of(self, records: Sequence[StoredRecord]) -> list[Event]:
        """Return the events among records: tombstones are none."""
        named = [(Envelope.of_headers(record.headers), record.value) for record in records]
        return [self._decode(of.name, of.version, value) for of, value in named if value is not None]

    async def _refused(
        self, unit: Unit, records: Sequence[StoredRecord]
    ) -> list[tuple[StoredRecord, Exception]]:
        """Publish records; those that the brokers will never take, each with their answer."""
        if not records:
            return []

        async def attempt() -> Exception | None:
            if not unit.home.revoked:
                try:
                    await self._publisher.publish(records)
                except UNPUBLISHABLE as error:
                    return error
            return None

        error = await until_done(attempt)
        if error is None:
            return []
        if len(records) == 1:
            return [(records[0], error)]
        return [pair for record in records for pair in await self._refused(unit, [record])]

    async def _bury(
        self, unit: Unit, deliveries: Sequence[Delivery], record: StoredRecord, error: Exception
    ) -> None:
        """Store the dead letter of an event that was refused, and publish what later stages count on in its place."""
        said = f"{type(error).__name__}: {record.topic} takes no event of {record.size} bytes"
        log.error("the broker refuses an event", stage=self._stage.name, topic=record.topic, reason=said)
        failure = Failure(Kind.PERMANENT, said, error)
        why = given_up("", failure, 1, self._clock())
        metrics.DEAD_LETTERS.labels(self._stage.name, why.error).inc()
        nowhere = Record(record.topic, -1, -1, record.key, record.value, record.headers, 0)
        letter = dead_letter(nowhere, why, self._letters.origin(self._stage.name))
        await until_done(lambda: self._letters.put([letter]))
        if len(deliveries) == 1 and not unit.items[0].retry:
            _, instead = self.in_its_place(deliveries[0], failure)
            await self(
                unit, (), [stored_record for stored_record in instead if _alike(stored_record, record)]
            )

    def in_its_place(
        self, delivery: Delivery, failure: Failure
    ) -> tuple[tuple[str, ...], tuple[StoredRecord, ...]]:
        """Kinds and records of what the stage publishes in place of a result."""
        if self._stage.on_dead is None:
            return (), ()
        try:
            events = self._stage.on_dead(delivery, failure.reason)
            kinds = tuple(dict.fromkeys(kind_of(event) for event in events))
            return kinds, self._encoder.records(events, [delivery])
        except Exception as error:  # noqa: BLE001 - the dead letter matters more than what stands in its place
            log.error("on_dead failed", stage=self._stage.name, error=describe(error))
            return (), ()


def _events_in(outgoing: Sequence[Emitted]) -> list[Event]:
    events = (emitted.event if isinstance(emitted, Emit) else emitted for emitted in outgoing)
    return [event for event in events if isinstance(event, Event)]


def _alike(stored_record: StoredRecord, other: StoredRecord) -> bool:
    """Whether two records are events of one type."""
    return dict(stored_record.headers).get("ce_type") == dict(other.headers).get("ce_type")
