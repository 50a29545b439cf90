"""atlas-writer as a stage on real servers: records into the memory topics, documents and announcements out."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.processors import pipeline
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.schemas.events import FactCommanded, ScopeChanged
from eden_memory.stages.stage import RetryPolicy, Stage
from eden_memory.stages.worker import Worker
from tests.integration.stages_on_servers import OnServers, Topic, running
from tests.names import NAMES


class StageKit(OnServers):
    """Both sides of the stage."""

    def worker(self, readers: str = "", **stage: Any) -> Worker:
        """The stage; `readers` names another consumer group, which reads everything anew."""
        return self.worker_of(self.stage(**stage), readers=readers)

    def stage(self, **fields: Any) -> Stage:
        writer = AtlasWriter(MongoMemoryStore(self.database, NAMES), MongoForgetting(self.database, NAMES))
        (row,) = pipeline.stages({pipeline.ATLAS_WRITER: writer})
        return replace(row, retry=RetryPolicy(first=0.02, cap=0.1, attempts=3), dead_share=1.0, **fields)

    @asynccontextmanager
    async def running(self, *workers: Worker) -> AsyncGenerator[None]:
        """Workers that run for the block; what they raise is raised."""
        async with running(workers, 10.0):
            yield


def changes(topic: Topic) -> list[ScopeChanged]:
    """Everything that was announced, repeats included."""
    found = [_value(ScopeChanged, one) for one in topic.records]
    return [one for one in found if isinstance(one, ScopeChanged)]


def commands(topic: Topic) -> list[FactCommanded]:
    found = [_value(FactCommanded, one) for one in topic.records]
    return [one for one in found if isinstance(one, FactCommanded)]


def _value(kind: type[Any], record: Any) -> Any:
    return kind.model_validate_json(record.value)
