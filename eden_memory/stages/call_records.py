"""Model calls into `memory.usage`: with the decision that they led to, or by themselves where none came of them."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from eden_memory.error_text import describe
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.model_calls import CALLS
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.stage import Dead, Decision, Delivery, Emit, Handler, Result, Retry
from eden_memory.stages.stage_tools import Publishing
from eden_memory.tracing import traceparent

log = structlog.get_logger()
MOST_WAITING = 10_000


def accounted(handler: Handler, failed: Callable[[Sequence[ModelCalled]], None]) -> Handler:
    """The handler with its model calls among its events; those of a failed attempt go to `failed`."""

    async def run(deliveries: Sequence[Delivery]) -> Result:
        calls: list[ModelCalled] = []
        token = CALLS.set(calls)
        try:
            result = await handler(deliveries)
        except BaseException:
            failed(calls)
            raise
        finally:
            CALLS.reset(token)
        if isinstance(result, Retry | Dead):
            failed(calls)
            return result
        decision = result if isinstance(result, Decision) else Decision(result)
        return replace(decision, events=[*decision.events, *map(_emit, calls)]) if calls else decision

    return run


def _emit(call: ModelCalled) -> Emit:
    """The same record at every repeat: its id is the call's."""
    return Emit(call, time=call.started_at, identity=f"call/{call.call_id}")


class UsageLog:
    """Publishes calls that no decision carries, in the background: those of failed attempts and of readers."""

    def __init__(self, publisher: Publishing, topic_of: TopicOf, source: str) -> None:
        self._publisher, self._topic_of, self._source = publisher, topic_of, source
        self._waiting: list[ModelCalled] = []
        self._sending: asyncio.Task[None] | None = None

    def add(self, calls: Sequence[ModelCalled]) -> None:
        """Send them soon; beyond a bound the oldest are let go, and that is logged."""
        self._waiting += calls
        if (beyond := len(self._waiting) - MOST_WAITING) > 0:
            del self._waiting[:beyond]
            log.warning("usage records let go", count=beyond)
        if self._waiting and (self._sending is None or self._sending.done()):
            self._sending = asyncio.create_task(self._send())

    async def flush(self, seconds: float = 5.0) -> None:
        """Wait until everything is sent, but not for ever."""
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
