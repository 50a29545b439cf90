"""What runs for namespaces beside live: silent writers, forgetting wherever it has to be, and what a switch left."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol

from confluent_kafka import KafkaException
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.placement import Placement
from eden_memory.processors.pipeline import ATLAS_WRITER, FORGETTING
from eden_memory.replay.installation import silent_surroundings, take_away, writer_row
from eden_memory.replay.namespaces.live_store import MongoLive
from eden_memory.replay.namespaces.namespace_names import WRITER, beside, half_formed, sweeping_of
from eden_memory.replay.namespaces.namespace_store import MongoNamespaces
from eden_memory.replay.namespaces.standby_writers import AGAIN_SECONDS, Made, Shadows
from eden_memory.replay.namespaces.tombstone_writer import Undecoded, begin_where, tombstones_alone
from eden_memory.replay.rebuild.memory_topics import Places, behind
from eden_memory.replay.rebuild.rebuilding import Counted, silent_worker
from eden_memory.replay.reform.exclusive_store import at_work
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.schemas.documents import Live, Namespace
from eden_memory.settings import Settings
from eden_memory.stages.process import ProcessPart
from eden_memory.task_ending import end

HANDED_OVER_AFTER = timedelta(seconds=30)
"""By then every process has heard of a switch: no writer is silent any more that should not be."""


class Stages(Protocol):
    """eden_memory.app.system.stage_parts."""

    def __call__(
        self, settings: Settings, names: Collection[str], *, group_of: Callable[[str], str] | None = None
    ) -> AbstractAsyncContextManager[Sequence[ProcessPart]]:
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
    known = await namespaces.all()
    found, left = beside(placement, known), await _left_to_itself(around, known)
    wanted: dict[str, Made] = {
        one.memory: partial(_silent, around, one) for one in found.silent if one.memory not in left
    }
    for one in found.forgetting:
        if one.memory not in left:
            settings = around.settings.placed(one)
            stages = partial(around.stages, settings, (FORGETTING, ATLAS_WRITER))
            wanted[f"{one.memory} with its pipeline"] = stages
    for one in found.sweeping:
        wanted[f"{one.memory} as it was left"] = partial(_sweeping, around, namespaces, one)
    if document is not None and document.memory == placement.memory and document.handover is not None:
        if await _handed_over(around, document, document.handover):
            await live.handed_over(document.handover)
        else:
            wanted[document.handover] = partial(_announcing, around, live, document.handover)
    return wanted


async def _left_to_itself(around: Around, namespaces: Sequence[Namespace]) -> set[str]:
    """Reforms at which a command is at work, which forgets itself; and what has no topics, or no state yet."""
    reforms = [one.id for one in namespaces if half_formed(one)]
    if not reforms:
        return set()
    settings = around.settings
    unrestored = await MongoReforms(around.database, settings.mongodb.prefix).unrestored(reforms)
    return unrestored | await at_work(around.database, settings.names, reforms)


@asynccontextmanager
async def _silent(around: Around, placement: Placement) -> AsyncGenerator[Sequence[ProcessPart]]:
    """Its writer, which says nothing; it does what the sweeping did until now."""
    counted, settings = Counted(), around.settings
    surroundings = silent_surroundings(settings, around.database, placement, around.client, counted)
    row, group = writer_row(settings, around.database, placement), surroundings.group_of(WRITER)
    removing = asyncio.create_task(_removed(around, sweeping_of(group)))
    try:
        yield [silent_worker(row, f"{WRITER}.{placement.memory}", group, counted, surroundings)]
    finally:
        await end([removing])


@asynccontextmanager
async def _sweeping(
    around: Around, namespaces: MongoNamespaces, placement: Placement
) -> AsyncGenerator[Sequence[ProcessPart]]:
    """What is forgotten leaves a rebuild that is not filled to its end; its group goes when it is."""
    counted, settings = Counted(), around.settings
    surroundings = silent_surroundings(settings, around.database, placement, around.client, counted)
    group = surroundings.group_of(WRITER)
    own, topics = sweeping_of(group), load_topics(settings.kafka, placement).read_by(WRITER)
    await begin_where(around.client, around.admin, topics, own, group)
    row = writer_row(settings, around.database, placement)
    row = replace(row, handler=tombstones_alone(row.handler))
    name = sweeping_of(f"{WRITER}.{placement.memory}")
    surroundings = replace(surroundings, registry=Undecoded(surroundings.registry))
    yield [silent_worker(row, name, own, counted, surroundings)]
    found = await namespaces.get(placement.memory)
    if found is None or found.state != "filling":
        with suppress(EdenError):  # another process is in it still, and removes it
            await _remove(around, own)


async def _removed(around: Around, group: str) -> None:
    """Until the group is gone: a member that was killed counts for ten seconds."""
    while True:
        try:
            await _remove(around, group)
        except (EdenError, KafkaException):
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return


async def _remove(around: Around, group: str) -> None:
    await take_away(around.admin, around.database, around.settings.names, group)


@asynccontextmanager
async def _announcing(
    around: Around, live: MongoLive, handover: str
) -> AsyncGenerator[Sequence[ProcessPart]]:
    """The live writer once more, from where the former one had announced everything; its group goes at the end."""
    async with around.stages(around.settings, (ATLAS_WRITER,), group_of=lambda _: handover) as parts:
        yield parts
    document = await live.read()
    if document is None or document.handover != handover:
        with suppress(EdenError):  # another process is in it still, and removes it
            await _remove(around, handover)


async def _handed_over(around: Around, live: Live, handover: str) -> bool:
    if datetime.now(UTC) < live.switched_at + HANDED_OVER_AFTER:
        return False
    topics = load_topics(around.settings.kafka, around.settings.placement)
    async with Places(around.client, topics.read_by(WRITER), handover) as places:
        ends = await places.ends()
        return not behind(await places.reached(), ends, await places.all())
