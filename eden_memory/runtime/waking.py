"""Announces scopes again that are over their threshold and may have no event left that says so."""

from collections.abc import AsyncIterable

from eden_memory.domain.outcome import StoredRecord
from eden_memory.runtime.codec import TopicOf
from eden_memory.runtime.tools import Publishing
from schemas.envelope import Envelope
from schemas.events import ScopeChanged

TOGETHER = 200


async def announce(
    changes: AsyncIterable[ScopeChanged], publisher: Publishing, topic_of: TopicOf, source: str
) -> int:
    """Publish a ScopeChanged for each; how many there were.

    The record's id follows from the scope's revision: announced twice, it is decided once.
    """
    waiting: list[StoredRecord] = []
    announced = 0
    async for change in changes:
        waiting.append(_record(change, topic_of, source))
        announced += 1
        if len(waiting) == TOGETHER:
            await publisher.publish(waiting)
            waiting = []
    if waiting:
        await publisher.publish(waiting)
    return announced


def _record(change: ScopeChanged, topic_of: TopicOf, source: str) -> StoredRecord:
    envelope = Envelope(
        id=f"due/{change.scope.key}@{change.revision}",
        name=change.NAME,
        version=change.VERSION,
        source=source,
        time=change.committed_at,
        subject=change.subject(),
        ordering_key=change.ordering_key(),
    )
    return StoredRecord(
        topic_of(ScopeChanged),
        envelope.ordering_key.encode(),
        change.key().encode(),
        change.json_bytes(),
        tuple(envelope.headers()),
    )
