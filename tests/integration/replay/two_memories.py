"""Two namespaces of one installation on real servers, each with its own fact-dedup and writer."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.formation.decided_store import MongoDecided
from eden_memory.formation.near_fact_store import MongoFactSearch
from eden_memory.formation.prompts import Fence
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import Topics, load_topics
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.names import Names, Placement
from eden_memory.processors import pipeline
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.processors.fact_dedup import FactDedup, Stores
from eden_memory.replay.user_edits.reapplying import EditedMemory
from eden_memory.schemas.events import REGISTRY
from eden_memory.settings import MemorySettings
from eden_memory.stages.controls import MongoControls, MongoGroupNotes
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.lanes import Slots
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.stage import Delivery
from eden_memory.stages.worker import Bounds, Surroundings, Worker
from tests.integration.stages.harness import until
from tests.integration.stages_on_servers import PREFIX, OnServers, running
from tests.unit.formation.dedup.dedup_kit import ScriptedModel, WordEmbedder

LIVE, TRIAL = Placement(), Placement("trial", "trial")


class TwoMemories(OnServers):
    """Live memory, and a shadow called `trial`."""

    async def prepared(self) -> None:
        """The shadow's topics and collections; live's are there."""
        config = admin_config(self.settings.kafka, str(self.settings.kafka.bootstrap))
        await asyncio.to_thread(apply_topics, config, self.topics_of(TRIAL))
        await set_up(self.database, self.names(TRIAL))
        await MongoLedger(self.database, self.names(TRIAL)).prepare()

    def topics_of(self, placement: Placement) -> Topics:
        return load_topics(self.settings.kafka, placement)

    def names(self, placement: Placement) -> Names:
        return placement.names(PREFIX)

    def side(self, placement: Placement) -> EditedMemory:
        return EditedMemory.of(self.database, self.names(placement), WordEmbedder().model)

    @asynccontextmanager
    async def forming(self, placement: Placement, model: ScriptedModel) -> AsyncGenerator[None]:
        """fact-dedup and atlas-writer of one of them, for the block."""
        names = self.names(placement)
        stores = Stores(
            MongoFactSearch(self.database, names, WordEmbedder().model),
            MongoDecided(self.database, names),
            MongoForgetting(self.database, names),
            MongoStreams(self.database, names),
        )
        fence, similar = Fence(b"sixteen bytes or more"), MemorySettings().similar
        dedup = FactDedup(stores, model, WordEmbedder(), fence, similar=similar)
        writer = AtlasWriter(MongoMemoryStore(self.database, names), MongoForgetting(self.database, names))
        handlers = {pipeline.FACT_DEDUP: dedup, pipeline.ATLAS_WRITER: writer}
        around = self.around(placement)
        async with running(Worker(stage, around) for stage in pipeline.stages(handlers)):
            yield

    def around(self, placement: Placement) -> Surroundings:
        names, topics = self.names(placement), self.topics_of(placement)
        return Surroundings(
            kafka=self.client,
            topic_of=topics.topic_of,
            group_of=topics.group,
            registry=REGISTRY,
            publisher=self.publisher,
            ledger=MongoLedger(self.database, names),
            notes=MongoGroupNotes(self.database, names),
            controls=MongoControls(self.database, names),
            slots=Slots(100),
            letters=DeadLetters(self.database, names, MongoForgetting(self.database, names), placement),
            bounds=Bounds(commit_seconds=0.1, stop_seconds=5.0),
        )

    async def publish(self, placement: Placement, deliveries: Sequence[Delivery]) -> None:
        """Into the memory.candidates of one of them."""
        self.topics = self.topics_of(placement)
        await self.put(deliveries)

    async def active(self, placement: Placement) -> dict[str, dict[str, Any]]:
        """Facts by text."""
        facts = self.database[self.names(placement)["facts"]]
        return {row["content"]: row async for row in facts.find({"active": True})}

    async def until_active(self, placement: Placement, *texts: str) -> dict[str, dict[str, Any]]:
        """Once exactly these are."""

        async def there() -> bool:
            return (await self.active(placement)).keys() == set(texts)

        try:
            await until(there, "the facts", 120)
        except AssertionError as error:
            raise AssertionError(f"{sorted(await self.active(placement))}") from error
        return await self.active(placement)
