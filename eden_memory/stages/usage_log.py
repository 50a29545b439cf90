"""Publishes model calls that no decision carries to `memory.usage`: those of failed attempts and of readers."""

import asyncio
from collections.abc import Sequence

import structlog

from eden_memory.error_text import describe
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.outcome import Publishing, StoredRecord
from eden_memory.tracing import traceparent

log = structlog.get_logger()
MOST_WAITING = 10_000
USAGE_SOURCE = "models"
"""`ce_source` of calls that stages publish this way."""


class UsageLog:
    """Publishes calls in the background, in batches."""

    def __init__(self, publisher: Publishing, topic_of: TopicOf, source: str) -> None:
        self._publisher, self._topic_of, self._source = publisher, topic_of, source
        self._waiting: list[ModelCalled] = []
        self._sending: asyncio.Task[None] | None = None

    def add(self, calls: Sequence[ModelCalled]) -> None:
        """Queue calls for publishing; beyond a bound the oldest are dropped, which is logged."""
        self._waiting += calls
        if (beyond := len(self._waiting) - MOST_WAITING) > 0:
            del self._waiting[:beyond]
            log.warning("usage records let go", count=beyond)
        if self._waiting and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send())

    async def flush(self, seconds: float = 5.0) -> None:
        """Wait until everything is sent, at most for so many seconds."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=seconds)

    async def _send(self) -> None:
        while self._waiting:
            calls, self._waiting = self._waiting, []
            try:
                await self._publisher.publish([self._record(call) for call in calls])
            except Exception as error:  # noqa: BLE001 - accounting never stops the work
                log.warning("usage not published", calls=len(calls), error=describe(error))

    def _record(self, call: ModelCalled) -> StoredRecord:
        about = call.session_id or call.scope or call.call_id
        return record_of(
            call,
            self._topic_of,
            identity=f"call/{call.call_id}",
            source=self._source,
            time=call.started_at,
            traceparent=traceparent(about, call.cause or call.call_id),
        )
