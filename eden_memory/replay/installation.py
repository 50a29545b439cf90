"""What stages stand on, and what a rebuild is made of: settings in, a writer with its own collections out."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError
from eden_memory.forgetting.mark_store import MongoBatchMarks
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topic_reading import refuse_missing
from eden_memory.kafka.topics import Topics, load_topics
from eden_memory.local.servers import endpoints
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.mongo.client import connect
from eden_memory.names import Names
from eden_memory.placement import Placement, collections_of
from eden_memory.processors import pipeline
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.replay.namespaces.live_store import MongoLive
from eden_memory.replay.namespaces.namespace_names import (
    WRITER,
    checked,
    placement_of,
    prefix_of,
    stage_of,
    sweeping_of,
    unknown,
)
from eden_memory.replay.namespaces.namespace_store import MongoNamespaces
from eden_memory.replay.rebuild.memory_topics import Places, remove_group
from eden_memory.replay.rebuild.rebuilding import Counted, Progress, Rebuilding
from eden_memory.schemas.documents import Namespace
from eden_memory.schemas.events import REGISTRY
from eden_memory.settings import Settings
from eden_memory.stages.controls import MongoControls, MongoGroupNotes
from eden_memory.stages.outcome import Publishing
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.slots import Slots
from eden_memory.stages.stage import Stage
from eden_memory.stages.usage_log import USAGE_SOURCE, UsageLog
from eden_memory.stages.worker import Bounds, Surroundings, Worker

Row = dict[str, Any]
SLOTS = 12


@dataclass(frozen=True, slots=True)
class Installation:
    """The servers of one command; `settings` are those of what was live when it began."""

    settings: Settings
    database: AsyncDatabase[Row]
    namespaces: MongoNamespaces
    live: MongoLive

    @property
    def prefix(self) -> str:
        """Of the live memory's collections."""
        return self.memory_prefix(self.settings.placement)

    def memory_prefix(self, placement: Placement) -> str:
        """Of a memory's collections."""
        return self.settings.mongodb.prefix + collections_of(placement.memory)

    def topics(self, placement: Placement) -> Topics:
        """Of a namespace."""
        return load_topics(self.settings.kafka, placement)

    @property
    def client(self) -> dict[str, Any]:
        """Connection arguments of aiokafka."""
        return client_kwargs(self.settings.kafka, endpoints(self.settings).kafka)

    @property
    def admin(self) -> dict[str, Any]:
        """Connection arguments of librdkafka."""
        return admin_config(self.settings.kafka, endpoints(self.settings).kafka)

    async def named(self, name: str) -> Namespace:
        """The namespace; an EdenError where there is none of this name."""
        found = await self.namespaces.get(name)
        if found is None:
            raise unknown(name)
        return found


@asynccontextmanager
async def installation(settings: Settings) -> AsyncGenerator[Installation]:
    """A connection to MongoDB, closed at the end."""
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        database, prefix = client[settings.mongodb.database], settings.mongodb.prefix
        live = MongoLive(database, prefix)
        placed = settings.placed(await live.placement())
        yield Installation(placed, database, MongoNamespaces(database, prefix), live)


@asynccontextmanager
async def rebuilding(
    at: Installation, name: str, shown: Callable[[Progress], None]
) -> AsyncGenerator[tuple[Rebuilding, Worker]]:
    """The namespace, made if it is new, and the writer that fills it."""
    known = await at.namespaces.get(checked(name))
    if known is not None and known.kind != "rebuild":
        raise EdenError(f"{name} is a {known.kind}, no rebuild", "Give another name.")
    placement = placement_of(known) if known is not None else Placement(name, at.settings.placement.pipeline)
    if placement == at.settings.placement:
        raise EdenError(f"{name} is live: its writer is part of `eden run`", "Give another name.")
    topics, group = at.topics(placement), at.topics(placement).group(WRITER)
    async with Places(at.client, topics.read_by(WRITER), group) as places:
        if known is None:
            # One of this name may have been lost with MongoDB: its group would begin where that ended.
            for one in (group, sweeping_of(group)):
                await forget_group(at, placement, one)
        namespace = known or await _new(at, placement, group, places)
        if namespace.state == "dropped":
            raise EdenError(f"{name} is being dropped", f"eden namespace drop {name}")
        namespace = await at.namespaces.made(namespace)
        work = Rebuilding(namespace, places, at.namespaces, shown)
        around = silent_surroundings(at.settings, at.database, placement, at.client, work.counted)
        yield work, work.worker(writer_row(at.settings, at.database, placement), stage_of(name), around)


async def forget_group(at: Installation, of: Placement, group: str) -> None:
    """A namespace's group as if there had never been one; EdenError while somebody is in it."""
    await take_away(at.admin, at.database, of.names(at.settings.mongodb.prefix), group)


async def take_away(admin: dict[str, Any], database: AsyncDatabase[Row], names: Names, group: str) -> None:
    """Remove a group and what is noted of it under `names`; EdenError while somebody is in it."""
    await asyncio.to_thread(remove_group, admin, group)
    await MongoGroupNotes(database, names).forget(group)


async def _new(at: Installation, placement: Placement, group: str, places: Places) -> Namespace:
    found = await places.all()
    refuse_missing(at.topics(placement).read_by(WRITER), (one.topic for one in found))
    return Namespace(
        id=placement.memory,
        kind="rebuild",
        prefix=prefix_of(at.settings.mongodb.prefix, placement.memory),
        group=group,
        source=at.prefix,
        pipeline=placement.pipeline,
        places=found,
        state="filling",
        created_at=datetime.now(UTC),
    )


def writer_row(settings: Settings, database: AsyncDatabase[Row], placement: Placement) -> Stage:
    """The writer's row in the table of the system: its code, other collections, its pipeline's marks."""
    names = placement.names(settings.mongodb.prefix)
    writer = AtlasWriter(MongoMemoryStore(database, names), MongoBatchMarks(database, names), sleep=_at_once)
    (row,) = pipeline.stages({WRITER: writer})
    return row


async def _at_once(seconds: float) -> None:
    """Nobody listens: announcements need no spacing."""
    del seconds


def silent_surroundings(
    settings: Settings,
    database: AsyncDatabase[Row],
    placement: Placement,
    client: dict[str, Any],
    counted: Counted,
) -> Surroundings:
    """What a writer that publishes nothing stands on; `client`: connection arguments of aiokafka."""
    own = Names(settings.mongodb.prefix + collections_of(placement.memory))
    around = surroundings(settings.placed(placement), database, client, counted)
    return replace(around, controls=MongoControls(database, own), slots=Slots(SLOTS))


def surroundings(
    settings: Settings,
    database: AsyncDatabase[Row],
    client: dict[str, Any],
    publisher: Publishing,
    bounds: Bounds | None = None,
) -> Surroundings:
    """What stages stand on in the namespace that `settings` are placed in; `client`: arguments of aiokafka."""
    topics, names = load_topics(settings.kafka, settings.placement), settings.names
    return Surroundings(
        client=client,
        topic_of=topics.topic_of,
        group_of=topics.group,
        registry=REGISTRY,
        publisher=publisher,
        ledger=MongoLedger(database, names),
        notes=MongoGroupNotes(database, names),
        controls=MongoControls(database, names),
        slots=Slots(settings.run.at_once),
        usage=UsageLog(publisher, topics.topic_of, USAGE_SOURCE),
        bounds=bounds or Bounds(),
    )
