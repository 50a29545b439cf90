"""Drops a namespace: nothing uses it any more, then its groups, collections and, with its last one, topics go."""

import asyncio
from collections.abc import Sequence

from eden_memory.errors import EdenError
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.kafka.topics import Topics
from eden_memory.names import FORMING, MEMORY, ORIGINAL, SHARED_PROGRAMS, WRITING, Placement
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import WRITER, checked, placement_of, sweeping_of, unknown
from eden_memory.replay.namespaces.switching import keep_original
from eden_memory.replay.reform.reform_settings import STREAMS, OwnStreams, own_topics
from eden_memory.replay.reform.reform_store import MongoReforms, alone
from eden_memory.replay.restore.restored_store import MongoRestored
from eden_memory.schemas.documents import Namespace
from eden_memory.stages.partition_count_store import PartitionCounts

NOTICE_SECONDS = 2.5
"""A command that fills a namespace looks every second whether it is dropped."""
LEAVE_SECONDS = 20.0
"""Running processes notice within a second that they are to leave; one that was killed counts for ten more."""
PAUSE_SECONDS = 0.5


async def drop(at: Installation, name: str) -> None:
    """Safe to repeat. EdenError where it is live, is not there, or somebody goes on reading for it, or forms it."""
    placement, found = await placement_named(at, name), await at.namespaces.get(name)
    if found is not None and found.kind == "reform":
        async with alone(at.database, at.settings.names, name):
            await _drop(at, placement, found)
    else:
        await _drop(at, placement, found)


async def _drop(at: Installation, placement: Placement, found: Namespace | None) -> None:
    filling = found if found is not None and found.state == "filling" else None
    if filling is not None and filling.kind == "rebuild":  # by a command, which is not to be interrupted
        async with at.groups as groups:
            await groups.remove(filling.group)
    if placement.memory == ORIGINAL:
        await keep_original(at)
    await at.live.give_up(placement)
    if filling is not None:  # or it has begun just now, and is in no group yet
        await asyncio.sleep(NOTICE_SECONDS)
    last = placement.pipeline not in await _pipelines(at, placement)
    for group in _groups(at.topics(placement), last=last):
        await _left(at, group)
    if last:
        names = await asyncio.to_thread(_topics_there, at, placement)
        await _delete(at, names)
    collections = placement.names(at.settings.mongodb.prefix)
    for short in sorted({*MEMORY, *(FORMING if last else ())}):
        await at.database.drop_collection(collections[short])
    await at.letters.remove_of(map(placement.group, _programs(at.topics(placement), last=last)))
    await _forget_reform(at, placement)
    # a rebuild of a namespace keeps its pauses under its own prefix
    if placement.memory != placement.pipeline:
        await at.database.drop_collection(at.memory_prefix(placement) + "controls")
    if placement.memory != ORIGINAL:
        await at.namespaces.remove(placement.memory)


async def _delete(at: Installation, topics: Sequence[str]) -> None:
    await asyncio.to_thread(TopicAdmin(at.admin).delete, topics)
    await PartitionCounts(at.database, at.settings.names).forget(topics)


async def clear(at: Installation, placement: Placement) -> None:
    """Away with what a pipeline of this name has left behind, whose document was lost with MongoDB.

    EdenError while somebody reads in one of its groups.
    """
    topics = at.topics(placement)
    if names := await asyncio.to_thread(_topics_there, at, placement):
        for group in _groups(topics, last=True):
            await at.forget_group(group)
        await _delete(at, names)
    await at.letters.remove_of(map(placement.group, _programs(topics, last=True)))
    for short in sorted({*MEMORY, *FORMING}):
        await at.database.drop_collection(placement.names(at.settings.mongodb.prefix)[short])


async def _forget_reform(at: Installation, placement: Placement) -> None:
    """Remove what only reforms have: own streams, options, the note that the state of the trigger is made."""
    prefix = at.settings.mongodb.prefix
    reforms = MongoReforms(at.database, prefix)
    if await reforms.get(placement.memory) is not None:
        own = OwnStreams(placement.memory, placement.pipeline).names(prefix)
        await at.database.drop_collection(own[STREAMS])
        await MongoRestored(at.database, own).forget()
        await reforms.remove(placement.memory)


async def placement_named(at: Installation, name: str) -> Placement:
    """Where it is; an EdenError where there is none of this name."""
    if name == ORIGINAL:
        return Placement()
    found = await at.namespaces.get(checked(name))
    if found is None:
        raise unknown(name)
    return placement_of(found)


async def _pipelines(at: Installation, without: Placement) -> set[str]:
    """Of all other namespaces that are there, live among them."""
    known = await at.namespaces.all()
    there = {placement_of(namespace) for namespace in known if namespace.state != "dropped"} | {
        await at.live.placement()
    }
    if all(namespace.id != ORIGINAL for namespace in known):
        there.add(Placement())
    return {placement.pipeline for placement in there if placement != without}


def _groups(topics: Topics, *, last: bool) -> list[str]:
    return [sweeping_of(topics.group(WRITER)), *map(topics.group, _programs(topics, last=last))]


def _programs(topics: Topics, *, last: bool) -> list[str]:
    """Its own: its writer and its reader; with the pipeline, all of that."""
    programs = [name for name, program in topics.file.programs.items() if not program.later]
    return [name for name in programs if name in WRITING or (last and name not in SHARED_PROGRAMS)]


async def _left(at: Installation, group: str) -> None:
    """Remove a group, once all have left it."""
    clock = asyncio.get_running_loop().time
    until = clock() + LEAVE_SECONDS
    while True:
        try:
            await at.forget_group(group)
        except EdenError:
            if clock() > until:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return


def _topics_there(at: Installation, placement: Placement) -> list[str]:
    """Return those of the placement's own topics that the broker has. Blocking."""
    there = set(TopicAdmin(at.admin).names())
    return [topic.name for topic in own_topics(at.settings.kafka, placement) if topic.name in there]
