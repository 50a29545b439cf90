"""Both extractions on real servers: windows in MongoDB, requests in, what they publish out."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from eden_memory.directory.stream_store import MongoStreams
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.memory.snapshot_store import MongoSnapshots
from eden_memory.models.question import LanguageModel
from eden_memory.processors import pipeline
from eden_memory.processors.fact_extraction import FactExtraction
from eden_memory.processors.reflection_extraction import ReflectionExtraction
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FormationRequested
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.stage import Stage
from eden_memory.stages.worker import Worker
from eden_memory.windows.formation_requests import StoredWindow
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.trigger_write_store import window_row
from eden_memory.windows.window_rule import Limits
from tests.integration.stages_on_servers import OnServers, Topic, on_servers, running, settings_of
from tests.tried_models import EVERY_MODEL_TRIED
from tests.unit.formation.extraction.windows import FENCE, NOTHING_KEPT, Talk, talk

OUT = ("memory.extractions", "memory.candidates", "memory.reflections")


def window(number: int, *texts: str, **fields: Any) -> StoredWindow:
    """The one window of session `s.talk<number>`."""
    told: Talk = talk(*texts, **fields)
    session = f"s.talk{number}"
    asked = told.requested.model_copy(update={"formation_id": f"{session}/1-aa", "session_id": session})
    stored = told.stored
    stored.formation_id, stored.session_id, stored.requested = asked.formation_id, session, asked
    return stored


def requested(one: StoredWindow) -> StoredRecord:
    """As formation-trigger publishes it."""
    event = one.requested
    assert event is not None
    envelope = Envelope(
        id=f"formation/{one.formation_id}",
        name=event.NAME,
        version=1,
        source="formation-trigger",
        time=event.closed_at,
        subject=event.subject(),
        ordering_key=event.ordering_key(),
    )
    ordering = event.ordering_key().encode()
    return StoredRecord("", ordering, event.key().encode(), event.json_bytes(), tuple(envelope.headers()))


class Kit(OnServers):
    """Both stages of a test."""

    async def close_windows(self, windows: Sequence[StoredWindow], *, keep_texts: bool = True) -> None:
        """Store the windows and ask for their formation."""
        if keep_texts:
            await self.database["memory_windows"].insert_many([window_row(one) for one in windows])
        await self.ask_for(windows)

    async def ask_for(self, windows: Sequence[StoredWindow]) -> None:
        """Publish the requests, again if need be."""
        topic = self.topics.topic_of(FormationRequested)
        await self.publisher.publish([replace(requested(one), topic=topic) for one in windows])

    def stages(self, model: LanguageModel) -> list[Stage]:
        """Both, as a process has them."""
        prefix = self.settings.names
        forgetting = MongoForgetting(self.database, prefix)
        windows = MongoTriggerStore(self.database, prefix, Limits())
        streams, shots = MongoStreams(self.database, prefix), MongoSnapshots(self.database, prefix)
        facts = FactExtraction(windows, streams, shots, model, forgetting, FENCE, EVERY_MODEL_TRIED)
        reflections = ReflectionExtraction(
            windows, streams, shots, model, NOTHING_KEPT, forgetting, FENCE, EVERY_MODEL_TRIED
        )
        handlers = {
            pipeline.FACT_EXTRACTION: facts,
            pipeline.REFLECTION_EXTRACTION: reflections,
        }
        return list(pipeline.stages(handlers))

    async def workers(self, model: LanguageModel) -> list[Worker]:
        """Both stages, ready to run."""
        return [self.worker_of(stage) for stage in self.stages(model)]

    @asynccontextmanager
    async def running(self, model: LanguageModel) -> AsyncGenerator[None]:
        """Both stages in this process, for the block; what they raise is raised."""
        async with running(await self.workers(model)):
            yield

    @asynccontextmanager
    async def published(self) -> AsyncGenerator[Topic]:
        """All that the stages publish, from the beginning."""
        async with self.topic(*OUT) as topic:
            yield topic


async def run_process(mongodb: str, kafka: str, names: tuple[str, str, str], model: LanguageModel) -> None:
    """Both stages until the process is killed; `names`: database, topic prefix, group prefix."""
    async with on_servers(Kit, settings_of(mongodb, kafka, names), prepare=False) as kit:
        workers = await kit.workers(model)
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*(worker.run() for worker in workers))
