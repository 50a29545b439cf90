"""What must hold before memory is formed: `eden run` refuses to start where it does not, `eden doctor` reports it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from pymongo import AsyncMongoClient

from eden_memory.assembly.handlers import ASK_MODELS
from eden_memory.assembly.mongo_setup import check
from eden_memory.assembly.tailer import refuse_wrong_source
from eden_memory.errors import EdenError
from eden_memory.housekeeping.topics_check import TopicsCheck
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_admin import topics_exist
from eden_memory.kafka.topic_reading import first_records
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.memory.memory_index_store import another_format, refuse_other_versions
from eden_memory.memory.snapshot_store import refuse_unhiding
from eden_memory.memory.upkeep_store import refuse_another_model
from eden_memory.models.catalogue import (
    LOCAL_MODELS,
    asked_for,
    demand_models,
    embedder_of,
    said,
    uses,
    vectors_of,
)
from eden_memory.models.local_embedder import LocalEmbedder
from eden_memory.models.model_servers import with_only_model
from eden_memory.mongo.client import hosts
from eden_memory.processors import pipeline
from eden_memory.schemas.envelope import STORE_FORMAT, store_format_of
from eden_memory.schemas.events import REGISTRY
from eden_memory.settings import Settings
from eden_memory.source.position_store import named
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.patience import until_there

MongoClient = AsyncMongoClient[dict[str, Any]]
TAILER = "tailer"
SERVERS_HINT = "Check EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP, or start the local servers with `eden up`."
KNOWN_EVENTS = {name: event.VERSION for name, event in REGISTRY.events.items()}
"""The version of each event that this program writes."""


@dataclass(frozen=True, slots=True)
class Need:
    """Something that parts of `eden run` cannot work without."""

    name: str
    check: Callable[[Settings, MongoClient], Awaitable[str]]
    """Return what holds in the placement of the settings; EdenError for what does not, with the way out."""
    parts: Collection[str] | None = None
    """The parts that need it; None: all."""

    async def demand(self, settings: Settings, client: MongoClient) -> str:
        """Check it once the servers answer; EdenError where they do not within `run.start_seconds`."""
        if self is TOPICS:  # waits for Kafka itself, and asks only once where Kafka refuses the account
            return await self.check(settings, client)
        seconds = settings.run.start_seconds
        return await until_there(
            lambda: self.check(settings, client), servers_of(settings), seconds, SERVERS_HINT
        )

    def concerns(self, parts: Collection[str]) -> bool:
        """Tell whether one of the parts needs it."""
        return self.parts is None or not set(self.parts).isdisjoint(parts)


def servers_of(settings: Settings) -> str:
    """Name both servers for people."""
    found = endpoints(settings)
    return f"MongoDB at {hosts(found.mongodb)}, or Kafka at {found.kafka},"


def topics_check(settings: Settings, client: MongoClient) -> TopicsCheck:
    """Ends the process when a topic is changed so that keys would move or records be lost."""
    counts = PartitionCounts(client[settings.mongodb.database], settings.names)
    topics = load_topics(settings.kafka, settings.placement)
    return TopicsCheck(admin_config(settings.kafka, endpoints(settings).kafka), topics, counts)


async def _versions(settings: Settings, client: MongoClient) -> str:
    await refuse_other_versions(client[settings.mongodb.database], settings.names, KNOWN_EVENTS)
    return f"store format {STORE_FORMAT}, no newer events"


async def _source(settings: Settings, client: MongoClient) -> str:
    await refuse_wrong_source(settings, client)
    return f"memory is formed from {named(settings.source_name)}, and from no other collection"


async def _topics(settings: Settings, client: MongoClient) -> str:
    """Find topics that are missing, were changed, or begin with a record of another format."""
    bootstrap = endpoints(settings).kafka
    names = [topic.name for topic in load_topics(settings.kafka, settings.placement)]
    await topics_exist(admin_config(settings.kafka, bootstrap), names, settings.run.start_seconds)

    async def look() -> None:
        await topics_check(settings, client).look(record=False)
        for record in await first_records(client_kwargs(settings.kafka, bootstrap), names):
            written = store_format_of(record.headers)
            if written not in (None, STORE_FORMAT):  # all of them would become dead letters
                raise another_format(f"records in {record.topic}", written)

    await until_there(look, servers_of(settings), settings.run.start_seconds, SERVERS_HINT)
    return "all as topics.yaml says"


async def _collections(settings: Settings, client: MongoClient) -> str:
    problems = await check(client[settings.mongodb.database], settings.names)
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise EdenError(f"MongoDB is not set up for memory:\n{listed}", "Run `eden setup`.")
    return "collections, indexes and validators are there"


async def _hidden(settings: Settings, client: MongoClient) -> str:
    await refuse_unhiding(client[settings.mongodb.database], settings.names, settings.memory.sharing)
    return "nothing that is hidden would be shown again"


async def _models(settings: Settings, client: MongoClient) -> str:  # noqa: ARG001 - as every need
    """Find roles without a model, missing keys and missing SDKs; no model is called."""
    settings = await asyncio.to_thread(with_only_model, settings)
    demand_models(settings)
    if asked_for(settings):
        from eden_memory.models.providers import Providers  # noqa: PLC0415 - the SDKs take seconds to load

        await Providers(settings).close()
    return ", ".join(dict.fromkeys(f"{said(role, tier)} {choice}" for choice, role, tier in uses(settings)))


async def _embedder(settings: Settings, client: MongoClient) -> str:
    """Find an embedder that is not installed, and stored vectors of another model; no provider is called."""
    model = vectors_of(settings)
    await refuse_another_model(client[settings.mongodb.database], settings.names, model)
    if embedder_of(settings) in LOCAL_MODELS:
        embedder = LocalEmbedder(threads=1, model=model)
        try:
            await embedder.embed(["works"])
        finally:
            await embedder.close()
    return model


SOURCE, TOPICS = Need("source", _source, {TAILER}), Need("topics", _topics)
OF_STAGES = (
    Need("hidden memory", _hidden, {pipeline.FORMATION_TRIGGER}),
    Need("models", _models, ASK_MODELS),
    Need("embedder", _embedder, {pipeline.FACT_DEDUP}),
)
"""What stages need beside their topics and collections, those of a reform too."""
NEEDS = (
    Need("versions", _versions),
    SOURCE,
    TOPICS,
    Need("memory collections", _collections, pipeline.NAMES),
    *OF_STAGES,
)
