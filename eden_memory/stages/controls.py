"""What people, and the stages themselves, ask of stages: pauses and dead letters to be tried again."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

PauseKind = Literal["hand", "dead-letters", "outage"]


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a stage stands still; who asked, if people did."""

    stage: str
    kind: PauseKind
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True)
class DeadRetry:
    """A dead letter that is to be tried again inside the stage that failed."""

    id: str
    stage: str
    topic: str
    """Its original topic and partition: the stage's worker that holds them takes it."""
    partition: int
    dead_topic: str
    dead_partition: int
    dead_offset: int
    times: int
    """1 at the first retry, then one more each, also of the dead letter that a failed retry leaves."""


class Controls(Protocol):
    """What people, and the stages themselves, ask of the stages."""

    async def pauses(self) -> Sequence[Pause]:
        """All pauses in force."""
        ...

    async def pause(self, pause: Pause) -> None:
        """Put a pause in force (one per stage and kind)."""
        ...

    async def resume(self, stage: str, kind: PauseKind | None = None) -> int:
        """Lift the pauses of a stage (of one kind); how many there were."""
        ...

    async def report(self, stage: str, trouble: str | None) -> None:
        """Say what keeps a stage, or some of its records, from going on; None: nothing does."""
        ...

    async def dead_retries(self) -> Sequence[DeadRetry]:
        """The retries asked for and not yet done."""
        ...

    async def dead_retry_done(self, retry: DeadRetry, result: str) -> None:
        """Note how a retry ended: `published` or `dead again`."""
        ...

    def changes(self) -> AsyncIterator[None]:
        """Yields once at the start and whenever pauses or retries may have changed."""
        ...


class GroupNotes(Protocol):
    """Which partitions each consumer group has ever committed, so that lost offsets are noticed."""

    async def committed(self, group: str) -> Collection[tuple[str, int]]:
        """Topic and partition of every partition that the group committed."""
        ...

    async def note(self, group: str, partitions: Collection[tuple[str, int]]) -> None:
        """Remember that the group committed these."""
        ...
