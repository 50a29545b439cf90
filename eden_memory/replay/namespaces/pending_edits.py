"""Edits that people asked for and a memory does not have yet: among the commands, or not yet written."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import TopicPartition

from eden_memory.names import Placement
from eden_memory.processors.pipeline import ATLAS_WRITER, CONSOLIDATION, FACT_DEDUP
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.installation import Installation
from eden_memory.replay.recorded_events import recorded
from eden_memory.replay.user_edits.user_edits import PEOPLE
from eden_memory.schemas.documents import InboxFactCommand
from eden_memory.schemas.events import FactCommanded, MemoryCommanded
from eden_memory.stages.outcome_store import MongoLedger

PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.2
DECIDE: Mapping[str, type[FactCommanded | MemoryCommanded]] = {
    FACT_DEDUP: FactCommanded,
    CONSOLIDATION: MemoryCommanded,
}
REQUESTS: dict[str, Any] = {"kind": {"$in": ["fact_command", "memory_command"]}}


async def pending_edits(at: Installation, of: Placement, seconds: float | None = None) -> str:
    """Return what keeps edits that were asked for by now from a memory, in words; empty as soon as nothing does.

    Only `eden run` carries them out, and only while the memory's pipeline is live. Waits for `seconds` at most (None:
    `PATIENCE_SECONDS`), also for what is in the inbox; what then is still there goes to the memory that is live next.
    """
    until = asyncio.get_running_loop().time() + (PATIENCE_SECONDS if seconds is None else seconds)
    inbox = at.source[at.settings.names[InboxFactCommand.COLLECTION]]
    if asked := [row["_id"] async for row in inbox.find(REQUESTS, {"_id": 1})]:
        await _none_left(partial(inbox.count_documents, {"_id": {"$in": asked}}), until)
    for stage, command in DECIDE.items():
        if left := await _undecided(at, of, stage, command, until):
            return f"{left:,} changes that people asked for wait for {stage}"
    if left := await _unwritten(at, of, until):
        return f"changes on {left:,} offsets of its topics are not written yet"
    return ""


async def _none_left(count: Callable[[], Awaitable[int]], until: float) -> int:
    """Return what is left at `until`, or 0 as soon as nothing is."""
    while left := await count():
        if asyncio.get_running_loop().time() > until:
            break
        await asyncio.sleep(LOOK_SECONDS)
    return left


@dataclass(frozen=True, slots=True)
class _Command:
    """A command behind the committed offset of the stage that decides it."""

    place: TopicPartition
    offset: int
    event_id: str


async def _undecided(
    at: Installation,
    of: Placement,
    stage: str,
    command: type[FactCommanded | MemoryCommanded],
    until: float,
) -> int:
    topics = at.topics(of)
    group, topic = topics.group(stage), topics.topic_of(command)
    ledger = MongoLedger(at.database, at.settings.placed(of).names)
    async with GroupProgress(at.kafka, {group: [topic]}) as progress:
        waiting = await _commands(at, topic, await progress.committed(group))

        async def left() -> int:
            reached = await progress.committed(group)
            behind_it = [found for found in waiting if reached.get(found.place, 0) <= found.offset]
            names = [found.event_id for found in behind_it]
            return len(names) - len(await ledger.decided(stage, names))

        return await _none_left(left, until) if waiting else 0


async def _commands(at: Installation, topic: str, since: Mapping[TopicPartition, int]) -> Sequence[_Command]:
    """Return the commands of people from these offsets on."""
    found: list[_Command] = []
    async with aclosing(recorded(at.kafka, topic, since)) as batches:
        async for batch in batches:
            for event, envelope, record in batch:
                if isinstance(event, FactCommanded | MemoryCommanded) and event.by in PEOPLE:
                    place = TopicPartition(record.topic, record.partition)
                    found.append(_Command(place, record.offset, envelope.id))
    return found


async def _unwritten(at: Installation, of: Placement, until: float) -> int:
    topics = at.topics(of)
    read = {topics.group(ATLAS_WRITER): topics.read_by(ATLAS_WRITER)}
    async with GroupProgress(at.kafka, read) as progress:
        return await _none_left(partial(progress.behind, await progress.ends()), until)
