"""Announces scopes again that are over their threshold and may have no event left that says so."""

import asyncio
from collections.abc import AsyncIterable, Callable

import structlog

from eden_memory.error_text import describe
from eden_memory.formation.consolidation_rules import change_of
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.events import ScopeChanged
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.outcome import Publishing, StoredRecord
from eden_memory.stages.process import State
from eden_memory.task_ending import end
from eden_memory.tracing import traceparent

log = structlog.get_logger()
TOGETHER = 200
AGAIN_SECONDS = 5.0


class Waking:
    """Once, at the start: the scopes that are due are announced; then it waits to be stopped."""

    name = "consolidation-waking"

    def __init__(
        self,
        due: Callable[[], AsyncIterable[Snapshot]],
        publisher: Publishing,
        topic_of: TopicOf,
        source: str,
        memory: str = "",
    ) -> None:
        """`memory` stands before the revision in what is announced: that of another memory says nothing of it."""
        self._due, self._publisher, self._topic_of, self._source = due, publisher, topic_of, source
        self._memory = memory
        self._stopping = asyncio.Event()
        self._announced: int | None = None

    async def run(self) -> None:
        """Until `stop`."""
        work = asyncio.create_task(self._announce())
        await self._stopping.wait()
        await end([work])

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Never in the way of readiness."""
        done = "looks for scopes that are due" if self._announced is None else f"announced {self._announced}"
        return State(True, done)

    async def _announce(self) -> None:
        while self._announced is None:
            try:
                changes = (change_of(one) async for one in self._due())
                self._announced = await announce(
                    changes, self._publisher, self._topic_of, self._source, self._memory
                )
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it tries again
                log.warning("scopes that are due not found", reason=describe(error))
                await asyncio.sleep(AGAIN_SECONDS)


async def announce(
    changes: AsyncIterable[ScopeChanged],
    publisher: Publishing,
    topic_of: TopicOf,
    source: str,
    memory: str = "",
) -> int:
    """Publish a ScopeChanged for each; how many there were.

    The record's id follows from the scope's revision: announced twice, it is decided once.
    """
    waiting: list[StoredRecord] = []
    announced = 0
    async for change in changes:
        waiting.append(_record(change, topic_of, source, memory))
        announced += 1
        if len(waiting) == TOGETHER:
            await publisher.publish(waiting)
            waiting = []
    if waiting:
        await publisher.publish(waiting)
    return announced


def _record(change: ScopeChanged, topic_of: TopicOf, source: str, memory: str) -> StoredRecord:
    event_id = f"due/{memory}{change.scope.key}@{change.revision}"
    return record_of(
        change,
        topic_of,
        identity=event_id,
        source=source,
        time=change.committed_at,
        traceparent=traceparent(change.scope.session_id or change.scope.key, event_id),
    )
