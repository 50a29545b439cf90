"""What a rebuild is made of: settings in, a writer with its own collections and group out."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.domain.errors import EdenError
from eden_memory.domain.names import Names
from eden_memory.domain.replay.namespaces import WRITER, checked, placement_of, prefix_of, stage_of
from eden_memory.domain.stage import Stage
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.controls import MongoControls, MongoGroupNotes
from eden_memory.mongo.memory.memory_store import MongoMemoryStore
from eden_memory.mongo.outcomes import MongoLedger
from eden_memory.mongo.replay.marks import MongoMarks
from eden_memory.mongo.replay.namespaces import MongoNamespaces
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.runtime.kafka import admin_config, client_kwargs
from eden_memory.runtime.replay.places import Places, remove_group
from eden_memory.runtime.replay.rebuilding import Progress, Rebuilding
from eden_memory.runtime.stages.slots import Slots
from eden_memory.runtime.stages.worker import Surroundings, Worker
from eden_memory.settings import Settings
from processors import pipeline
from processors.atlas_writer import AtlasWriter
from schemas.documents import Namespace
from schemas.events import REGISTRY

Row = dict[str, Any]
SLOTS = 12


@dataclass(frozen=True, slots=True)
class Installation:
    """The servers of one command."""

    settings: Settings
    database: AsyncDatabase[Row]
    namespaces: MongoNamespaces

    @property
    def prefix(self) -> str:
        """Of the live collections."""
        return self.settings.mongodb.prefix

    async def named(self, name: str) -> Namespace:
        """The namespace; an EdenError where there is none of this name."""
        found = await self.namespaces.get(checked(name))
        if found is None:
            raise EdenError(f"there is no namespace {name}", "eden namespace list")
        return found

    async def drop(self, namespace: Namespace) -> None:
        """Its group first: while somebody reads for it, it is not dropped."""
        config = admin_config(self.settings.kafka, endpoints(self.settings).kafka)
        await asyncio.to_thread(remove_group, config, namespace.group)
        await self.namespaces.drop(namespace.id)


@asynccontextmanager
async def installation(settings: Settings) -> AsyncGenerator[Installation]:
    """A connection to MongoDB, closed at the end."""
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        database = client[settings.mongodb.database]
        yield Installation(settings, database, MongoNamespaces(database, settings.mongodb.prefix))


@asynccontextmanager
async def rebuilding(
    at: Installation, name: str, shown: Callable[[Progress], None]
) -> AsyncGenerator[tuple[Rebuilding, Worker]]:
    """The namespace, made if it is new, and the writer that fills it."""
    topics = load_topics(at.settings.kafka, at.settings.placement)
    client = client_kwargs(at.settings.kafka, endpoints(at.settings).kafka)
    group = topics.group_prefix + stage_of(name)
    async with Places(client, topics.read_by(WRITER), group) as places:
        namespace = await at.namespaces.get(name) or await _new(at, name, group, places)
        if namespace.state == "dropped":
            raise EdenError(f"{name} is being dropped", f"eden namespace drop {name}")
        await at.namespaces.made(namespace)
        work = Rebuilding(namespace, places, at.namespaces, shown)
        yield work, work.worker(_row(at, namespace), stage_of(name), _around(at, namespace, client, work))


async def _new(at: Installation, name: str, group: str, places: Places) -> Namespace:
    found = await places.all()
    if not found:
        raise EdenError("there are no memory topics to rebuild from", "eden topics apply")
    return Namespace(
        id=checked(name),
        kind="rebuild",
        prefix=prefix_of(at.prefix, name),
        group=group,
        source=at.prefix,
        places=found,
        state="filling",
        created_at=datetime.now(UTC),
    )


def _row(at: Installation, namespace: Namespace) -> Stage:
    """The writer's row in the table of the system: its code, other collections, the installation's marks."""
    writer = AtlasWriter(
        MongoMemoryStore(at.database, placement_of(namespace).names(at.prefix)),
        MongoMarks(at.database, at.prefix),
        sleep=_at_once,
    )
    (row,) = pipeline.stages({WRITER: writer})
    return row


async def _at_once(seconds: float) -> None:
    """Nobody listens: announcements need no spacing."""
    del seconds


def _around(at: Installation, namespace: Namespace, client: dict[str, Any], work: Rebuilding) -> Surroundings:
    topics = load_topics(at.settings.kafka, at.settings.placement)
    return Surroundings(
        client=client,
        topic_of=topics.topic_of,
        group_of=topics.group,
        registry=REGISTRY,
        publisher=work.counted,
        ledger=MongoLedger(at.database, at.settings.names),
        notes=MongoGroupNotes(at.database, at.settings.names),
        controls=MongoControls(at.database, Names(namespace.prefix)),
        slots=Slots(SLOTS),
    )
