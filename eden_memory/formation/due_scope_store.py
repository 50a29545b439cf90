"""The due scan of consolidation: scopes that are over their threshold and may have no event left that says so."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from typing import Any

from pydantic import ValidationError
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.participants import Streams
from eden_memory.errors import describe
from eden_memory.formation.consolidation_rules import change_of, due
from eden_memory.limits import STANDARD, FormationLimits, limits_of
from eden_memory.logs import LibraryLogger, scope_in_logs
from eden_memory.names import Names, traceparent
from eden_memory.schemas.documents import Snapshot, Stream
from eden_memory.schemas.events import ScopeChanged
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.outcome import Publishing, StoredRecord
from eden_memory.stages.process import State
from eden_memory.tasks import run_until_first

log = LibraryLogger()
Row = dict[str, Any]
TOGETHER = 200
AGAIN_SECONDS = 5.0


class DueScopeAnnouncer:
    """Announce the scopes that are due once, at the start of a process; then wait to be stopped."""

    name = "consolidation-waking"

    def __init__(
        self,
        due: Callable[[], AsyncIterable[Snapshot]],
        publisher: Publishing,
        topic_of: TopicOf,
        source: str,
        memory: str = "",
    ) -> None:
        """`memory` stands before the revision in the id of an announcement: two memories number theirs alike."""
        self._due, self._publisher, self._topic_of, self._source = due, publisher, topic_of, source
        self._memory = memory
        self._stopping = asyncio.Event()
        self._announced: int | None = None

    async def run(self) -> None:
        """Run until `stop`."""
        await run_until_first(self._announce(), self._stopping)

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Report how far the scan is; the process is ready whatever it says."""
        done = "looks for scopes that are due" if self._announced is None else f"announced {self._announced}"
        return State(True, done)

    async def _announce(self) -> None:
        while self._announced is None:
            try:
                changes = (change_of(snapshot) async for snapshot in self._due())
                self._announced = await announce(
                    changes, self._publisher, self._topic_of, self._source, self._memory
                )
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it tries again
                log.warning("failed to read the due scopes", reason=describe(error))
                await asyncio.sleep(AGAIN_SECONDS)
        await self._stopping.wait()


async def announce(
    changes: AsyncIterable[ScopeChanged],
    publisher: Publishing,
    topic_of: TopicOf,
    source: str,
    memory: str = "",
) -> int:
    """Publish the changes and return how many there were.

    A record's id follows from the scope's revision, so what is announced twice is decided once.
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


async def scopes_due(
    database: AsyncDatabase[Row], names: Names, streams: Streams, limits: FormationLimits = STANDARD
) -> AsyncGenerator[Snapshot]:
    """Yield the snapshots of scopes that are to consolidate now, in one pass over all snapshots."""
    found = database[names[Snapshot.COLLECTION]].find({"$or": await _candidates(database, names, limits)})
    async for row in found:
        try:
            snapshot = Snapshot.model_validate(row, strict=False, extra="ignore")
            scope = Scope.of_key(snapshot.scope_key, snapshot.agent_id, snapshot.audience)
        except (ValidationError, ValueError):
            log.warning("a snapshot cannot be read", scope=scope_in_logs(str(row.get("_id"))))
            continue
        if due(snapshot, limits_of(scope, await streams.of(scope.agent_id), limits)) is not None:
            yield snapshot


async def _candidates(
    database: AsyncDatabase[Row], names: Names, limits: FormationLimits
) -> list[Mapping[str, Any]]:
    """Return queries: at or above the lowest threshold of their kind, closed, or with a blob taken back."""
    lowest = {kind: scope_limits.threshold for kind, scope_limits in limits.scopes.items()}
    own = database[names[Stream.COLLECTION]].find(
        {"threshold": {"$type": "number"}}, {"scope": 1, "threshold": 1}
    )
    async for row in own:
        if row.get("scope") in lowest:
            lowest[row["scope"]] = min(lowest[row["scope"]], max(int(row["threshold"]), 1))
    return [
        *({"scope": kind, f"buffer.{least - 1}": {"$exists": True}} for kind, least in lowest.items()),
        {"closed": True, "buffer.0": {"$exists": True}},
        {"$expr": {"$gt": ["$highest_blob_version", "$blob_version"]}, "buffer.0": {"$exists": True}},
    ]
