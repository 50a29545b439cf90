"""What runs for namespaces beside live: silent writers, the forgetting of other pipelines, and what a switch left."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.domain.errors import EdenError
from eden_memory.domain.placement import Placement
from eden_memory.domain.replay.namespaces import WRITER, beside
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.controls import MongoGroupNotes
from eden_memory.mongo.replay.live import MongoLive
from eden_memory.mongo.replay.namespaces import MongoNamespaces
from eden_memory.namespaces.wiring import silent_surroundings, writer_row
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.runtime.kafka import admin_config, client_kwargs
from eden_memory.runtime.process import Part
from eden_memory.runtime.replay.places import Places, behind, remove_group
from eden_memory.runtime.replay.rebuilding import Counted, silent_worker
from eden_memory.runtime.replay.shadows import Made, Shadows
from eden_memory.settings import Settings
from processors.pipeline import ATLAS_WRITER, FORGETTING
from schemas.documents import Live

HANDED_OVER_AFTER = timedelta(seconds=30)
"""By then every process has heard of a switch: no writer is silent any more that should not be."""


class Stages(Protocol):
    """eden_memory.app.stage_parts."""

    def __call__(
        self, settings: Settings, names: Collection[str], *, group_of: Callable[[str], str] | None = None
    ) -> AbstractAsyncContextManager[Sequence[Part]]:
        """The stages named, ready to run."""
        ...


@asynccontextmanager
async def shadowing(settings: Settings, stages: Stages) -> AsyncGenerator[Shadows]:
    """The part that runs them; `settings` are those of the live namespace."""
    servers = endpoints(settings)
    async with connect(settings.mongodb, servers.mongodb) as client:
        database, prefix = client[settings.mongodb.database], settings.mongodb.prefix
        kafka = client_kwargs(settings.kafka, servers.kafka)
        admin = admin_config(settings.kafka, servers.kafka)
        around = Around(settings, database, kafka, admin, stages)
        live, namespaces = MongoLive(database, prefix), MongoNamespaces(database, prefix)
        yield Shadows(partial(_wanted, around, live, namespaces), settings.run.drain_seconds)


@dataclass(frozen=True, slots=True)
class Around:
    """What all of them stand on."""

    settings: Settings
    database: AsyncDatabase[dict[str, Any]]
    client: dict[str, Any]
    admin: dict[str, Any]
    stages: Stages


async def _wanted(around: Around, live: MongoLive, namespaces: MongoNamespaces) -> Mapping[str, Made]:
    """By name what is to run now; nothing new while the process is behind a switch."""
    document, placement = await live.read(), around.settings.placement
    found = beside(placement, await namespaces.all())
    wanted: dict[str, Made] = {one.memory: partial(_silent, around, one) for one in found.silent}
    for one in found.forgetting:
        settings = around.settings.placed(one)
        wanted[one.memory] = partial(around.stages, settings, (FORGETTING, ATLAS_WRITER))
    if document is not None and document.memory == placement.memory and document.handover is not None:
        if await _handed_over(around, document, document.handover):
            await live.handed_over(document.handover)
        else:
            wanted[document.handover] = partial(_announcing, around, live, document.handover)
    return wanted


@asynccontextmanager
async def _silent(around: Around, placement: Placement) -> AsyncGenerator[Sequence[Part]]:
    """Its writer, which says nothing."""
    counted, settings = Counted(), around.settings
    surroundings = silent_surroundings(settings, around.database, placement, around.client, counted)
    row, group = writer_row(settings, around.database, placement), surroundings.group_of(WRITER)
    yield [silent_worker(row, f"{WRITER}.{placement.memory}", group, counted, surroundings)]


@asynccontextmanager
async def _announcing(around: Around, live: MongoLive, handover: str) -> AsyncGenerator[Sequence[Part]]:
    """The live writer once more, from where the former one had announced everything; its group goes at the end."""
    async with around.stages(around.settings, (ATLAS_WRITER,), group_of=lambda _: handover) as parts:
        yield parts
    document = await live.read()
    if document is None or document.handover != handover:
        with suppress(EdenError):  # another process is in it still, and removes it
            await asyncio.to_thread(remove_group, around.admin, handover)
            await MongoGroupNotes(around.database, around.settings.names).forget(handover)


async def _handed_over(around: Around, live: Live, handover: str) -> bool:
    if datetime.now(UTC) < live.switched_at + HANDED_OVER_AFTER:
        return False
    topics = load_topics(around.settings.kafka, around.settings.placement)
    async with Places(around.client, topics.read_by(WRITER), handover) as places:
        ends = await places.ends()
        return not behind(await places.reached(), ends, await places.all())
