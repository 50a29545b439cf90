"""A stage as its author writes it: what a handler is given, what it may give back, and how it is run.

A handler is a function from deliveries to events. It publishes nothing and commits nothing itself.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Event


class Delivery(NamedTuple):
    """One record as a handler sees it.

    `event` is None for a tombstone (the envelope says of what), which only stages that do not decide are given.
    """

    envelope: Envelope
    event: Event | None
    topic: str
    key: str
    partition: int = 0
    attempt: int = 1
    sent_again: int = 0
    """How often it was a dead letter that was sent again."""

    @property
    def id(self) -> str:
        """The event's deterministic id."""
        return self.envelope.id

    @property
    def asks_anew(self) -> bool:
        """A dead letter sent again: answers stored at earlier attempts are not to be reused."""
        return self.sent_again > 0


@dataclass(frozen=True, slots=True)
class Emit:
    """An event to be published, with what caused it; without a cause it is the last delivery of the unit."""

    event: Event
    cause: Delivery | None = None
    time: datetime | None = None
    """`ce_time`; without one, the cause's (so that a repeat is the same record)."""
    identity: str | None = None
    """`ce_id`, for stages that keep what they decided themselves; without one, made from cause and stage."""
    traceparent: str | None = None
    """Without one, it follows from the cause (tracing.py)."""
    value: bytes | None = None
    """The event's JSON, where it is written already."""


@dataclass(frozen=True, slots=True)
class Erase:
    """A tombstone to be published: the entity `key` of `of`'s topic has ended."""

    of: type[Event]
    key: str
    ordering_key: str
    subject: str
    reason: str
    entity_version: str | None = None
    scope: str | None = None
    cause: Delivery | None = None
    time: datetime | None = None
    """`ce_time`; without one, the cause's."""
    identity: str | None = None
    """`ce_id`; without one, made from cause and stage."""


Emitted = Event | Emit | Erase


@dataclass(frozen=True, slots=True)
class Decision:
    """Events with what makes the decision unique.

    `writes` are the entity versions that it creates (`fact:ID@5`): no other decision can create them too.
    `key` replaces the decision key, which otherwise is the stage and the first event's id.
    """

    events: Sequence[Emitted]
    writes: tuple[str, ...] = ()
    key: str | None = None
    covers: int | None = None
    """How many of the first deliveries it is about; None: all. The others go back to the lane."""
    published: Callable[[], None] | None = None
    """Called once the brokers have confirmed all events; not if the partition was lost before."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Ids of deliveries that become dead letters, with the reason for each; they never pause the stage."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again, in the same lane and order; `after` in seconds, None: by the stage's backoff."""

    reason: str
    after: float | None = None
    split: bool = False
    """Try the halves of what was taken together each on their own."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Nothing is decided yet: ask again with the next record of the lane, or after so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Dead:
    """Give this up now; of several taken together only those that fail alone are given up."""

    reason: str


Result = Sequence[Emitted] | Decision | Gather | Retry | Dead
Handler = Callable[[Sequence[Delivery]], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Capped exponential backoff with full jitter; times in seconds."""

    first: float = 0.5
    cap: float = 60.0
    attempts: int = 6
    """Failed attempts after which a unit is given up, unless the stage as a whole is failing."""


@dataclass(frozen=True)
class Stage:
    """One consumer group: its handler, what it reads and writes, and how much of it runs at once."""

    name: str
    handler: Handler
    reads: tuple[type[Event], ...]
    writes: tuple[type[Event], ...] = ()
    at_once: int = 200
    """Handlers that run at the same time in one process."""
    together: int = 1
    """Waiting records of one ordering key that a handler may take at once."""
    together_first: Callable[[Sequence[Delivery]], int] | None = None
    """How many of the first deliveries belong together (at least 1); None: all that were taken."""
    one_question: bool = False
    """Whether records taken together are one question: given up, they leave one dead letter, of the last."""
    batch: int = 0
    """Above 0, the batch form: up to so many records of a partition at once, whatever their keys."""
    records_at_once: int | None = None
    """While handlers run on so many records or more, no other starts: bounds what is decoded. None: without bound."""
    rest: float = 0.0
    """Seconds between a fetch that brought little and the next one, so that more comes with it."""
    decides: bool = True
    """Outcomes are stored before they are published; False for stages that may be repeated at will, and read
    tombstones."""
    keeps_empty: bool = True
    """Whether a decision without events is stored too; False where asking again costs nothing."""
    in_parts: bool = False
    """Whether a decision may be larger than one stored document: it is stored in parts then."""
    noted: bool = False
    """Whether MongoDB notes how far its group has committed. Where Kafka knows of more, MongoDB was restored from a
    backup, and the stage reads its topics from the beginning."""
    timeout: float = 300.0
    """Seconds until a handler that does not return counts as failed; what it waits for a model does not count."""
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    on_dead: Callable[[Delivery, str], Sequence[Emitted]] | None = None
    """Makes, of the reason, the events that stand for a result that a later stage counts on."""
    dead_share: float = 0.2
    """The stage pauses itself when more than this share of its last records was dead-lettered."""

    def __post_init__(self) -> None:
        if self.batch and self.together > 1:
            raise ValueError(f"stage {self.name}: `batch` and `together` exclude each other")
