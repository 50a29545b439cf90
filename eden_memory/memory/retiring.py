"""Asks for the retirement of facts that have expired or are beyond a limit: one process among all, in rounds.

The commands go to the facts' scope, in order with what is proposed there; each expects the version that was found,
so a fact that is stated again meanwhile stays.
"""

from collections.abc import AsyncIterable, Callable

from eden_memory.mongo.leases import MongoLease
from eden_memory.schemas.events import FactCommanded
from eden_memory.stages.codec import TopicOf, record_of
from eden_memory.stages.leased import Leased
from eden_memory.stages.outcome import Publishing, StoredRecord
from eden_memory.tracing import traceparent

ROUND_SECONDS = 10.0
PAUSE_SECONDS = 10.0
TOGETHER = 200


class Retiring(Leased):
    """`due` says which facts are to be retired now; `source` is the stage in whose name they are asked for."""

    def __init__(
        self,
        lease: MongoLease,
        due: Callable[[], AsyncIterable[FactCommanded]],
        publisher: Publishing,
        topic_of: TopicOf,
        source: str,
    ) -> None:
        super().__init__("retiring", lease, self.round, ROUND_SECONDS, PAUSE_SECONDS)
        self._due, self._publisher = due, publisher
        self._topic_of, self._source = topic_of, source
        self._asked: set[str] = set()
        """Commands on their way: what is found again because it is not carried out yet is not asked for again."""

    async def round(self) -> None:
        """Publish the commands that are new; one published again, after a restart, is decided once."""
        found, waiting = set[str](), list[StoredRecord]()
        async for command in self._due():
            found.add(command.command_id)
            if command.command_id in self._asked:
                continue
            waiting.append(self._record(command))
            if len(waiting) == TOGETHER:
                await self._publisher.publish(waiting)
                waiting = []
        if waiting:
            await self._publisher.publish(waiting)
        self._asked = found

    def _record(self, command: FactCommanded) -> StoredRecord:
        return record_of(
            command,
            self._topic_of,
            identity=command.command_id,
            source=self._source,
            time=command.asked_at,
            traceparent=traceparent(command.scope.key, command.command_id),
        )
