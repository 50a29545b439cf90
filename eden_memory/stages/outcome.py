"""Decisions of stages as they are stored before they are published, and published again on a redelivery."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from eden_memory.kafka.record import Headers
from eden_memory.schemas.documents import GivenUp


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record ready for Kafka, byte for byte; its partition follows from the ordering key."""

    topic: str
    ordering_key: bytes
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        size = len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:  # a generator would cost twice as much, several times a record
            size += len(name) + len(value or b"")
        return size


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """One decision: written once, never changed; only its records are removed when all have consumed them.

    `members` are the ids of the input events decided together; `topic`, `partition` and `offset` say how far
    the stage's group must have committed for them to count as consumed.
    """

    key: str
    stage: str
    members: tuple[str, ...]
    writes: tuple[str, ...]
    records: tuple[StoredRecord, ...]
    topic: str
    partition: int
    offset: int
    decided_at: datetime
    kinds: tuple[str, ...] = ()
    """Names of the events among the records; they stay when the records are removed."""
    dead: str | None = None
    """Why the input was given up, if it was."""
    retry_of: str | None = None
    """The id of the input event, where it was a dead letter that was sent again: its member is another one."""
    letters: tuple[GivenUp, ...] = ()
    """Those of its members that are dead letters."""
    removed: bool = False
    """Only the keys are left: consumed by everyone, nothing to publish."""
    in_parts: bool = False
    """Whether its records may be more than one stored document holds."""

    @property
    def size(self) -> int:
        """Bytes of its records."""
        return sum(record.size for record in self.records)


class Reread(Exception):  # noqa: N818 - it is a direction, not an error
    """Another decision took one of the members or writes: read anew and decide again."""


class OutcomeTooLarge(Exception):  # noqa: N818
    """The records of one decision exceed the limit."""


class Publishing(Protocol):
    """Sends records and returns when they are confirmed."""

    async def publish(self, records: Sequence[StoredRecord]) -> None:
        """Send in order and wait; raises if a record is refused."""
        ...


class Ledger(Protocol):
    """The write-once store of outcomes."""

    async def find(self, stage: str, members: Sequence[str]) -> Mapping[str, StageOutcome]:
        """The outcomes that the members were decided in, by member; majority-committed ones only."""
        ...

    async def store(self, outcome: StageOutcome) -> StageOutcome:
        """Store an outcome, acknowledged by a majority, or return the one stored under its key before.

        Raises Reread if another decision holds a member or write of it, OutcomeTooLarge beyond the limit where the
        outcome may not be stored in parts.
        """
        ...
