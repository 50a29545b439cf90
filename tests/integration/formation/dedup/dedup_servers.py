"""fact-dedup and the writer on real servers: proposals in, facts in MongoDB out, a scripted model between."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.forgotten import Mark, Marks
from eden_memory.formation.decided_store import MongoDecided
from eden_memory.formation.near_fact_store import MongoFactSearch
from eden_memory.formation.prompts import Fence
from eden_memory.memory.memory_batch import memory_batch
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.models.question import LanguageModel
from eden_memory.processors import pipeline
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.processors.fact_dedup import FactDedup, Stores
from eden_memory.schemas.events import FactChanged, decode
from eden_memory.settings import MemorySettings
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.stage import Decision, Emit, Handler
from eden_memory.stages.worker import Worker
from tests.integration.stages_on_servers import OnServers, on_servers, running, settings_of
from tests.names import NAMES
from tests.unit.formation.dedup.dedup_kit import WordEmbedder
from tests.unit.memory.memory_histories import delivered

Database = AsyncDatabase[dict[str, Any]]


def handler(database: Database, model: LanguageModel) -> FactDedup:
    """As one process has it: with caches of its own."""
    embedder = WordEmbedder()
    stores = Stores(
        MongoFactSearch(database, NAMES, embedder.model),
        MongoDecided(database, NAMES),
        MongoForgetting(database, NAMES),
        MongoStreams(database, NAMES),
    )
    fence, similar = Fence(b"sixteen bytes or more"), MemorySettings().similar
    return FactDedup(stores, model, embedder, fence, similar=similar)


async def prepared(database: Database) -> Database:
    """With all indexes."""
    await set_up(database, NAMES)
    await MongoLedger(database, NAMES).prepare()
    return database


async def write(database: Database, facts: Sequence[FactChanged], *forgotten: Mark) -> None:
    """The writer applies these, as far as they are not forgotten."""
    deliveries = [delivered(one) for one in facts]
    batch = memory_batch(deliveries, Marks(forgotten))
    for result in (await MongoMemoryStore(database, NAMES).apply(list(batch.scopes.values()))).values():
        if isinstance(result, Exception):
            raise result


def facts_of(decision: Decision) -> list[FactChanged]:
    events = [one.event for one in decision.events if isinstance(one, Emit)]
    return [one for one in events if isinstance(one, FactChanged)]


class Stage(OnServers):
    """The stages of one test."""

    def worker(
        self, model: LanguageModel, *, writer: bool = True, stop_seconds: float = 10.0
    ) -> list[Worker]:
        """fact-dedup (and atlas-writer) as a process of its own has them."""
        handlers: dict[str, Handler] = {pipeline.FACT_DEDUP: handler(self.database, model)}
        if writer:
            store = MongoMemoryStore(self.database, NAMES)
            handlers[pipeline.ATLAS_WRITER] = AtlasWriter(store, MongoForgetting(self.database, NAMES))
        return [self.worker_of(stage, stop_seconds=stop_seconds) for stage in pipeline.stages(handlers)]

    @asynccontextmanager
    async def running(self, *models: LanguageModel) -> AsyncGenerator[None]:
        """One process for each model, for the block; what they raise is raised."""
        async with running(one for model in models for one in self.worker(model)):
            yield

    async def active(self) -> list[dict[str, Any]]:
        """The facts that the writer shows."""
        return await self.database["memory_facts"].find({"active": True}).sort("content").to_list()

    async def until(
        self, condition: Callable[[], Awaitable[bool]], what: str, seconds: float = 120.0
    ) -> None:
        end = time.monotonic() + seconds
        while not await condition():
            assert time.monotonic() < end, f"not within {seconds} s: {what}; {await self.active()}"
            await asyncio.sleep(0.05)

    async def settled(self, proposals: int, seconds: float = 120.0) -> None:
        """All proposals are decided, and all that was decided is in the store."""

        async def done() -> bool:
            outcomes = await self.outcomes()
            decided = sum(len(one["members"]) for one in outcomes)
            versions = {
                name for one in outcomes for name in one.get("writes", ()) if name.startswith("fact:")
            }
            written = {
                f"fact:{row['_id']}@{version}"
                async for row in self.database["memory_facts"].find()
                for version in (row["version"], *(one["version"] for one in row["history"]))
            }
            return decided >= proposals and versions <= written

        await self.until(done, f"{proposals} proposals decided and written", seconds)

    async def outcomes(self) -> list[dict[str, Any]]:
        return await self.database["memory_outcomes"].find({"stage": "fact-dedup"}).to_list()

    async def changes(self) -> list[FactChanged]:
        """All that was ever decided."""
        events = [
            decode(FactChanged.NAME, 1, bytes(record["v"]))
            for one in await self.outcomes()
            for record in one["records"]
            if bytes(dict(record["h"])["ce_type"]).startswith(b"eden.FactChanged")
        ]
        return [one for one in events if isinstance(one, FactChanged)]


async def run_process(mongodb: str, kafka: str, name: str, model: LanguageModel) -> None:
    """Both stages until the process is killed."""
    settings = settings_of(mongodb, kafka, (name, f"{name}.", f"{name}."))
    async with on_servers(Stage, settings, prepare=False) as stage:
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*(one.run() for one in stage.worker(model)))
