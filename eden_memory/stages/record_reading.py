"""Queued records as their stage sees them, and how they are known to the ledger."""

from collections.abc import Sequence
from dataclasses import dataclass

from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.registry import Registry, SchemaViolation
from eden_memory.stages.codec import delivery
from eden_memory.stages.failure_decisions import Failure, Kind
from eden_memory.stages.lanes import Queued, Unit
from eden_memory.stages.stage import Delivery, Stage
from eden_memory.stages.stage_health import StageHealth


@dataclass(slots=True)
class Read:
    """One record of a unit; `member` is what the ledger knows it by."""

    item: Queued
    delivery: Delivery | None
    """None: a type of this topic that the stage does not read, or a repeat of a record before it in the unit."""
    member: str


def wanted(read: Sequence[Read]) -> list[Delivery]:
    """The deliveries of a unit that the handler is given."""
    return [record.delivery for record in read if record.delivery is not None]


def members(read: Sequence[Read]) -> list[str]:
    """The names of a unit's records in the ledger."""
    return [record.member for record in read if record.delivery is not None]


class Reader:
    """Decodes what one stage reads."""

    def __init__(self, stage: Stage, registry: Registry, health: StageHealth) -> None:
        self._reads = {event.NAME for event in stage.reads}
        self._registry = registry
        self._health = health

    def unit(self, unit: Unit) -> list[Read] | Failure:
        """The unit up to its first unreadable record; a Failure if that was the first, kept alone."""
        read: list[Read] = []
        seen: set[str] = set()
        for index, item in enumerate(unit.items):
            try:
                read.append(self._read(item, seen))
            except (EnvelopeError, SchemaViolation) as error:
                unit.keep(max(index, 1))
                return read or Failure(Kind.PERMANENT, str(error), error)
        return read

    def _read(self, item: Queued, seen: set[str]) -> Read:
        if item.epoch != self._health.epoch:
            if self._health.was_outage(item.epoch):
                item.attempts = min(item.attempts, item.settled + 1)
            item.epoch, item.settled = self._health.epoch, item.attempts
        envelope = Envelope.of_headers(item.record.headers)
        member = f"{envelope.id}#{item.retry}" if item.retry else envelope.id
        unknown = envelope.name not in self._reads and envelope.name in self._registry.events
        if unknown or member in seen:
            return Read(item, None, member)
        seen.add(member)
        attempt = item.attempts + 1
        given = delivery(item.record, envelope, self._registry.decode, attempt=attempt, times=item.times)
        return Read(item, given, member)
