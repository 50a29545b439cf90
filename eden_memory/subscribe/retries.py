"""Retry a handler that fails, then publish the record as a dead letter, and only then continue.

FastStream commits or rereads a record when this middleware returns or raises. It returns only when the handler has
succeeded or the dead letter is confirmed, so no record is committed that was lost.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from faststream import BaseMiddleware
from faststream.exceptions import HandlerException, IgnoredException, SubscriberNotFound
from faststream.kafka import KafkaMessage

from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.schemas.envelope import EnvelopeError, rfc3339
from eden_memory.schemas.events import SchemaViolation

DEAD = ".dead"
"""Behind a group's name: the topic of its dead letters, where the router names no other."""
DEAD_HEADERS = "__connect.errors."
"""Before the name of every header that says why a record is a dead letter."""
UNREADABLE = (EnvelopeError, SchemaViolation)
TEXT = 2_000
"""Characters of an error's text in a dead letter."""
BYTES = "application/octet-stream"
"""The content type of dead letters: as JSON, FastStream would fail on tombstones and unreadable records."""
log = LibraryLogger()
Publish = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a handler is called: `attempts` times, with pauses that double up to `most_seconds`.

    After an error of the types in `permanent` it is not called again. Later records wait meanwhile: keep the sum of
    the pauses under Kafka's `max.poll.interval.ms` (5 minutes), or another member of the group takes the partitions.
    """

    attempts: int = 5
    first_seconds: float = 0.5
    most_seconds: float = 30.0
    permanent: tuple[type[Exception], ...] = ()

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the attempt of this number, from 1."""
        return min(self.first_seconds * 2 ** (attempt - 1), self.most_seconds)

    def is_last(self, attempt: int, error: Exception) -> bool:
        """Return whether the record becomes a dead letter after this attempt."""
        return attempt >= self.attempts or isinstance(error, (*UNREADABLE, *self.permanent))


@dataclass(frozen=True, slots=True)
class HandlerRetries:
    """FastStream's middleware: built for each record."""

    retries: Retries
    group: str
    publish: Publish
    """Publishes a dead letter, and returns when it is confirmed."""

    def __call__(self, msg: Any, /, *, context: Any) -> "RetriedRecord":
        """Return the middleware of one record."""
        return RetriedRecord(self, msg, context=context)


class RetriedRecord(BaseMiddleware):
    """One record on its way through a handler."""

    def __init__(self, around: HandlerRetries, msg: Any, /, *, context: Any) -> None:
        super().__init__(msg, context=context)
        self._around = around

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        """Call the handler until it succeeds, or publish the record as a dead letter."""
        retries, attempt = self._around.retries, 1
        while True:
            try:
                return await call_next(msg)
            except (HandlerException, IgnoredException):
                raise
            except Exception as error:  # noqa: BLE001 - any failure of a handler becomes a retry or a dead letter
                if retries.is_last(attempt, error):
                    await self._bury(msg, error, attempt)
                    return None
                log.warning(
                    "a handler failed and is tried again", attempt=attempt, error=type(error).__name__
                )
            await asyncio.sleep(retries.pause(attempt))
            attempt += 1

    async def after_processed(
        self, exc_type: type[BaseException] | None = None, exc_val: Any = None, exc_tb: Any = None
    ) -> bool | None:
        """Skip records that no handler wants."""
        return (
            True
            if isinstance(exc_val, SubscriberNotFound)
            else await super().after_processed(exc_type, exc_val, exc_tb)
        )

    async def _bury(self, msg: KafkaMessage, error: Exception, attempts: int) -> None:
        try:
            await self._around.publish(**dead_letter(msg, self._around.group, error, attempts))
        except Exception as failure:
            log.warning(
                "a dead letter could not be published: its record is read again", error=describe(failure)
            )
            await asyncio.sleep(self._around.retries.pause(attempts))
            raise


def dead_letter(msg: KafkaMessage, group: str, error: Exception, attempts: int) -> dict[str, Any]:
    """Return the original bytes and headers, and beside them, as Kafka Connect does, where the record stood and why.

    The text of an error is given for unreadable records only: a handler's error may hold what was said.
    """
    record: Any = msg.raw_message
    why = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "group": group,
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error)[:TEXT] if isinstance(error, UNREADABLE) else "",
        "attempts": attempts,
        "time": rfc3339(datetime.now(UTC)),
    }
    headers = {name: text for name, text in msg.headers.items() if not name.startswith(DEAD_HEADERS)}
    added = {DEAD_HEADERS + name: str(value) for name, value in why.items()}
    return {
        "message": record.value,
        "key": record.key,
        "headers": {**headers, **added, "content-type": BYTES},
    }
