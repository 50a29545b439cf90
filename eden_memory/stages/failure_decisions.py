"""Decides what an exception means for the record in progress, and how long to wait before a retry."""

import asyncio
import sys
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from bson.errors import InvalidDocument
from pydantic import ValidationError
from pymongo.errors import (
    ConnectionFailure,
    DocumentTooLarge,
    OperationFailure,
    PyMongoError,
    WaitQueueTimeoutError,
    WTimeoutError,
)

from eden_memory.errors import (
    PermanentError,
    ProviderError,
    ServerAway,
    describe,
    describe_with_trace,
    refused_for_good,
)
from eden_memory.kafka.error_kinds import KAFKA_ERRORS, RECORD_TOO_LARGE, REFUSED
from eden_memory.mongo.refusals import refused_by_mongodb
from eden_memory.schemas.documents import GivenUp
from eden_memory.schemas.envelope import EnvelopeError
from eden_memory.stages.outcome import OutcomeTooLarge
from eden_memory.stages.retry_waits import backoff, growing
from eden_memory.stages.stage import RetryPolicy


class Kind(StrEnum):
    """What the runtime does about a failure."""

    AWAY = "away"
    """MongoDB or Kafka is away or refuses us: retried without a limit, and not counted against the record."""
    TRANSIENT = "transient"
    """Busy, late, cut off or at a spending cap: retried."""
    PROVIDER = "provider"
    """A model provider is away or busy: retried, but not before the time that it asks for."""
    PERMANENT = "permanent"
    """This input can never succeed: dead letter at once."""
    BUG = "bug"
    """A defect of the program: tried once more, then dead letter."""


BUG_ATTEMPTS = 2
REASON_CHARACTERS, LONGEST_TRACE = 2_000, 8_000

_PERMANENT = (
    PermanentError,
    EnvelopeError,
    ValidationError,
    DocumentTooLarge,
    InvalidDocument,
    OutcomeTooLarge,
    *RECORD_TOO_LARGE,
)
_AWAY = (ServerAway, ConnectionFailure, WaitQueueTimeoutError, WTimeoutError, *KAFKA_ERRORS)
_TRANSIENT = (TimeoutError, OSError, asyncio.IncompleteReadError, PyMongoError)


def connection_lost(error: BaseException) -> bool:
    """Whether a write met a closed connection: uvloop reports that as a bare RuntimeError."""
    return isinstance(error, RuntimeError) and "the handler is closed" in str(error)


def classify(error: BaseException) -> Kind:
    """Return the kind of a failure, by the exception's type and MongoDB's code."""
    if isinstance(error, ProviderError):
        return Kind.PROVIDER
    if isinstance(error, _PERMANENT):
        return Kind.PERMANENT
    if isinstance(error, _AWAY) or connection_lost(error) or refused(error):
        return Kind.AWAY
    if isinstance(error, OperationFailure) and refused_for_good(error.code, error.details):
        return Kind.PERMANENT
    return Kind.TRANSIENT if isinstance(error, _TRANSIENT) else Kind.BUG


def passes(error: BaseException) -> bool:
    """Whether the same step may succeed later without a change of the program or its input."""
    return classify(error) in (Kind.AWAY, Kind.TRANSIENT)


def refused(error: BaseException) -> bool:
    """Whether a server denies this program the right to do what it asked for."""
    return refused_by_mongodb(error) or isinstance(error, REFUSED)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt: its kind, the reason for people, the exception if there was one."""

    kind: Kind
    reason: str
    error: BaseException | None = None
    after: float | None = None
    """Seconds that the provider or the handler asked to wait."""
    split: bool = False
    asked: bool = False
    """The handler asked for the retry, so it says nothing about the stage as a whole."""
    counts: bool = True
    """Whether the attempt counts against the input."""
    alone: bool = False
    """Nothing suggests an outage: only this input waits, not the stage."""
    session: str = ""
    """Whose input brought answers that cannot be read."""

    @property
    def outage(self) -> bool:
        """Whether a provider is known to be away: earlier attempts may have met the same outage."""
        return self.kind is Kind.PROVIDER and not self.counts and not self.alone

    def __post_init__(self) -> None:
        """Make the reason valid text of a readable length, because it is stored and published."""
        said = self.reason[:REASON_CHARACTERS].encode(errors="backslashreplace").decode()
        object.__setattr__(self, "reason", said)

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Return the failure that an exception means."""
        failure = cls(classify(error), describe(error), error, session=getattr(error, "session", ""))
        if isinstance(error, ProviderError):
            failure = replace(failure, after=error.retry_after, counts=error.counts, alone=error.alone)
        return failure


def delay(policy: RetryPolicy, failure: Failure, attempts: int, uncounted: int = 0) -> float:
    """Return the seconds until the next attempt: the backoff, or longer if that was requested."""
    pause = growing(policy, uncounted) if uncounted else backoff(policy, attempts)
    return max(pause, failure.after or 0.0)


def attempts_allowed(policy: RetryPolicy, failure: Failure) -> int:
    """Return how many attempts a unit has that fails in this way."""
    if failure.kind is Kind.AWAY:
        return sys.maxsize
    if failure.kind is Kind.PERMANENT:
        return 1
    return min(BUG_ATTEMPTS, policy.attempts) if failure.kind is Kind.BUG else policy.attempts


def given_up(member: str, failure: Failure, attempts: int, at: datetime) -> GivenUp:
    """Return why a record is given up, as its stage stores it with the decision."""
    error = failure.error
    return GivenUp(
        member=member,
        reason=failure.reason,
        error=type(error).__name__ if error is not None else str(failure.kind),
        trace=""
        if error is None
        else describe_with_trace(error)[-LONGEST_TRACE:].encode(errors="replace").decode(),
        attempts=max(attempts, 1),
        at=at,
    )
