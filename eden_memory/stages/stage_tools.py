"""What the units of a stage are worked on with, and who hears how they end."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from eden_memory.schemas.registry import Registry
from eden_memory.stages.codec import TopicOf
from eden_memory.stages.failure_decisions import Failure
from eden_memory.stages.lanes import Queued
from eden_memory.stages.ledger import Ledger
from eden_memory.stages.outcome import StoredRecord


class Publishing(Protocol):
    """What sends records and returns when they are confirmed."""

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        """Send in order and wait; raises if a record is refused."""
        ...


class Watching(Protocol):
    """What hears how units end, so that it can pause the stage."""

    @property
    def epoch(self) -> int:
        """Rises with each success after a failure."""
        ...

    def was_outage(self, epoch: int) -> bool:
        """Whether the stage as a whole was failing then: all attempts of that time count as one."""
        ...

    def attempt_failed(self, unit: str, failure: Failure) -> bool:
        """An attempt failed; False if the stage as a whole is failing, so that it does not count."""
        ...

    def attempt_succeeded(self) -> None:
        """A handler returned."""
        ...

    def finished(self, item: Queued, *, dead: bool, redelivered: bool = False) -> None:
        """Nothing is left to do for a record; `redelivered`: it was decided before, and only published again."""
        ...


@dataclass(frozen=True, slots=True)
class Tools:
    """What a stage's units are worked on with."""

    topic_of: TopicOf
    registry: Registry
    publisher: Publishing
    ledger: Ledger | None
    clock: Callable[[], datetime]
    group: str
