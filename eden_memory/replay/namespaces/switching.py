"""Make another namespace live: ready in every respect, then one write that all who follow hear of, then edits.

Edits that people asked for and that the live memory does not have yet keep it from being left."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

from aiokafka import TopicPartition

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.errors import EdenError, describe
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_reading import TopicOffsets
from eden_memory.memory.upkeep_store import refuse_another_model
from eden_memory.models.catalogue import vectors_of
from eden_memory.names import ORIGINAL, Placement
from eden_memory.processors.pipeline import ATLAS_WRITER, CONSOLIDATION, FACT_DEDUP, FORGETTING, WEBHOOKS
from eden_memory.replay.group_progress import GroupProgress, recorded
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import READY, WRITER, placed, placement_of, unknown
from eden_memory.replay.reform.reform_settings import covers_everything
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.replay.user_edits.reapplying import carry, edits_to_apply
from eden_memory.replay.user_edits.user_edits import PEOPLE, AppliedEdits
from eden_memory.schemas.documents import Fact, InboxFactCommand, Namespace
from eden_memory.schemas.events import FactCommanded, MemoryCommanded
from eden_memory.schemas.scopes import Scope
from eden_memory.search import atlas_list_store as search_indexes
from eden_memory.stages.outcome_store import MongoLedger

PATIENCE_SECONDS = 30.0
LOOK_SECONDS = 0.1
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


LEVEL_SECONDS = 0.3
"""The writer has what was there this many seconds ago: nothing is left at the moment of the switch."""

BUSY_SECONDS, BUSY_LEVEL_SECONDS = 10.0, 2.0
"""Where new records come all the time it is never quite so: after these seconds, this much is let pass."""

INDEX_SECONDS = 600.0


async def switch(at: Installation, name: str, *, part: bool = False, leave_edits: bool = False) -> Placement:
    """Make a namespace live; what was live before. EdenError where it is filling, dropped, behind, or live already,
    where its vectors are of another model than is configured, where something else was made live meanwhile, and where
    what is live does not have all that people asked of it: with another pipeline, nobody would carry that out. For a
    reform, also where it holds only a part, or where what people took back matches nothing in it; `part`: not these.
    `leave_edits`: also without the edits that wait."""
    expected = await at.live.placement()
    to = await _usable(at, name, expected)
    await _refuse_other_vectors(at, to)
    if not part:
        await _refuse_doubtful(at, name, expected, to)
    await keep_original(at)
    await _prepare(at, expected, to)
    handover = await _handover(at, expected, to)
    try:
        if expected.pipeline != to.pipeline:
            if not leave_edits:
                await _refuse_pending(at, expected)
            # What live has been told to forget is no longer there when it is live.
            await _level(at, to, FORGETTING)
        await _level(at, to, WRITER)
        if expected.pipeline != to.pipeline:
            await _tell_from_here(at, to)
        await at.live.switch(to, expected, handover)
    except BaseException:
        if handover is not None:
            async with at.groups as groups:
                await groups.remove(handover)
        raise
    return expected


async def rollback(at: Installation) -> tuple[Placement, Placement]:
    """Make live again what was live before: what was live until now, and what is. Errors as of :func:`switch`; not
    for edits that are not carried out, because a memory that does not work has to be left."""
    live = await at.live.read()
    if live is None or live.previous is None:
        raise EdenError("nothing else was ever live", "eden namespace list")
    was = await switch(at, live.previous.memory, part=True, leave_edits=True)
    return was, await at.live.placement()


async def keep_original(at: Installation) -> None:
    """A document for the original: from now on it is a namespace like the others."""
    await at.namespaces.made(original_of(at))


def original_of(at: Installation) -> Namespace:
    """As it is described while it is live, or was never left."""
    prefix, placement = at.settings.mongodb.prefix, Placement()
    return Namespace(
        id=ORIGINAL,
        kind="original",
        prefix=prefix,
        group=at.topics(placement).group(WRITER),
        source=prefix,
        state="caught_up",
        created_at=datetime.now(UTC),
    )


async def with_original(at: Installation) -> list[Namespace]:
    """Return the namespaces, the original first, even if it has no document."""
    known = await at.namespaces.all()
    original = next((namespace for namespace in known if namespace.id == ORIGINAL), None) or original_of(at)
    return [original, *(namespace for namespace in known if namespace.id != ORIGINAL)]


async def _usable(at: Installation, name: str, live: Placement) -> Placement:
    found = await at.namespaces.get(name)
    if found is None and name != ORIGINAL:
        raise unknown(name)
    to = Placement() if found is None else placement_of(found)
    if to == live:
        raise EdenError(f"{name} is live already", "eden namespace list")
    if found is not None and found.state not in READY:
        raise EdenError(f"{name} is {found.state}", f"eden namespace show {name}")
    return to


async def _refuse_doubtful(at: Installation, name: str, live: Placement, to: Placement) -> None:
    """Refuse a reform of a part, and one that may say in other words what somebody retired or marked as private."""
    reform = await MongoReforms(at.database, at.settings.mongodb.prefix).get(name)
    if reform is None:
        return
    if not covers_everything(reform.asked):
        raise EdenError(
            f"{name} holds nothing but what was formed of a part of all conversations",
            f"All other memory would be missing. Switch all the same: eden reform {name} --switch --accept.",
        )
    refuse_blocking(name, await edits_to_apply(at.settings, at.database, live, to, reform))


def refuse_blocking(name: str, edits: AppliedEdits) -> None:
    """Raise an EdenError if retirements or private marks match nothing in the reform."""
    if edits.blocking:
        raise EdenError(
            f"{edits.blocking} retirements and private marks of people match nothing in {name}: "
            "what they took back may stand there in other words",
            f"Look with `eden reform report {name}`; switch all the same: eden reform {name} --switch --accept.",
        )


async def refuse_behind(at: Installation, name: str) -> None:
    """An EdenError for a reform: what came since it was formed is caught up by its own command."""
    reform = await MongoReforms(at.database, at.settings.mongodb.prefix).get(name)
    if reform is not None:
        since = "" if reform.caught_up_at is None else f" after {reform.caught_up_at:%Y-%m-%d %H:%M} UTC"
        raise EdenError(
            f"{name} is a reform: what was written and changed{since} is not in it yet",
            f"Catch up and switch: eden reform {name} --switch. As it is, chat formed later: --as-it-is.",
        )


async def _refuse_other_vectors(at: Installation, to: Placement) -> None:
    """Its fact-dedup would refuse to run: nothing more would be formed."""
    names = to.names(at.settings.mongodb.prefix)
    try:
        await refuse_another_model(at.database, names, vectors_of(at.settings))
    except EdenError as error:
        raise EdenError(
            f"{to.memory}: {error.what}",
            "Stop `eden run`, set EDEN_EMBEDDER and EDEN_MODELS_EMBEDDINGS to what made its vectors, switch with "
            "the same settings, and start it again.",
        ) from None


async def _refuse_pending(at: Installation, live: Placement) -> None:
    if waiting := await pending_edits(at, live):
        raise EdenError(
            f"{live.memory}: {waiting}; nobody would carry them out after a switch: nothing was switched",
            "Have them carried out: `eden run`, and resume what is paused (`eden status`).",
        )


async def _prepare(at: Installation, live: Placement, to: Placement) -> None:
    """Collections, indexes and validators; search indexes where live has them."""
    settings = at.settings.placed(to)
    await set_up(at.database, settings.names)
    theirs = await search_indexes.found(at.database[live.names(settings.mongodb.prefix)[Fact.COLLECTION]])
    if dimensions := search_indexes.dimensions_of(theirs or ()):
        facts = at.database[settings.names[Fact.COLLECTION]]
        await search_indexes.make(facts, dimensions)
        await search_indexes.wait_until_queryable(facts, INDEX_SECONDS)


async def _handover(at: Installation, live: Placement, to: Placement) -> str | None:
    """Commit what live's writer has announced for a new group, and return it (invariant announced-over-a-switch)."""
    if live.pipeline != to.pipeline:
        return None  # its writer announces what it writes
    topics = at.topics(live)
    group = f"{topics.group(WRITER)}.until-{uuid4().hex[:8]}"
    async with TopicOffsets(at.kafka, topics.read_by(WRITER)) as offsets, at.groups as groups:
        begun, reached = await offsets.begins(), await _announced(at, groups, topics.group(WRITER))
        await at.set_group(groups, group, {tp: reached.get(tp, begin) for tp, begin in begun.items()})
    return group


async def _tell_from_here(at: Installation, to: Placement) -> None:
    """Have webhooks told of what another pipeline forms from now on; where they were told of it, they go on there."""
    topics = at.topics(to)
    async with TopicOffsets(at.kafka, topics.read_by(WEBHOOKS)) as offsets, at.groups as groups:
        group = topics.group(WEBHOOKS)
        if not await groups.committed(group):
            await at.set_group(groups, group, await offsets.ends())


async def _announced(at: Installation, groups: GroupAdmin, group: str) -> dict[TopicPartition, int]:
    """Up to where live's writer has announced everything: where it stands, or what an earlier switch left does."""
    reached, live = await groups.committed(group), await at.live.read()
    if live is None or live.handover is None:
        return reached
    left = await groups.committed(live.handover)
    return {tp: min(offset, left.get(tp, offset)) for tp, offset in reached.items()}


async def _level(at: Installation, to: Placement, stage: str) -> None:
    """Until a stage of it has everything that is in its topics; an EdenError where it does not get there."""
    topics = at.topics(to)
    clock = asyncio.get_running_loop().time
    async with GroupProgress(at.kafka, {topics.group(stage): topics.read_by(stage)}) as progress:
        begun_at = clock()
        while True:
            allowed = LEVEL_SECONDS if clock() < begun_at + BUSY_SECONDS else BUSY_LEVEL_SECONDS
            left = await _left(progress, clock() + allowed)
            if not left:
                return
            if clock() > begun_at + PATIENCE_SECONDS:
                break
    raise EdenError(
        f"{to.memory}: {stage} is behind its topics by {left:,} offsets: nothing was switched",
        f"Have it run: `eden run`, or `eden rebuild {to.memory} --follow`.",
    )


async def _left(progress: GroupProgress, until: float) -> int:
    """How much is still to be written, at `until` by the loop's clock, of what is there now."""
    ends = await progress.ends()
    while True:
        left = await progress.behind(ends)
        if not left or asyncio.get_running_loop().time() > until:
            return left
        await asyncio.sleep(LOOK_SECONDS)


ROLLBACK_SECONDS = 3.0
"""How long a rollback waits for edits that are not carried out yet."""


@dataclass(frozen=True, slots=True)
class Switchover:
    """The memories that were live, and are; `edits` None: none had to be applied, or `failed` says why none were.

    `pending`: what kept edits from the memory that was live; empty for nothing.
    """

    was: Placement
    now: Placement
    edits: AppliedEdits | None = None
    failed: Exception | None = None
    pending: str = ""


async def switch_to_reform(
    at: Installation, name: str, reapplied: AppliedEdits, wanted: Callable[[Scope], bool], *, part: bool
) -> Switchover:
    """Make a reform live, with the edits that came after those that it has reapplied; errors as of `switch`.

    All edits of the `wanted` scopes are looked at again: what was asked for before may have been carried out after.
    """
    was = await switch(at, name, part=part)
    done = await _with_edits(at, was, await at.live.placement(), None, wanted)
    return done if done.edits is None else replace(done, edits=done.edits.without(reapplied))


async def roll_back(at: Installation) -> Switchover:
    """Roll back; errors as of :func:`rollback`. Edits that are not carried out in time do not keep it."""
    live, pending = await at.live.read(), ""
    if live is not None and live.previous is not None and live.previous.pipeline != live.pipeline:
        try:
            pending = await pending_edits(at, placed(live), ROLLBACK_SECONDS)
        except Exception as error:  # noqa: BLE001 - a memory that does not work has to be left
            pending = f"what people changed last is not known: {describe(error)}"
    was, now = await rollback(at)
    if live is None or was.pipeline == now.pipeline:
        return Switchover(was, now)  # one pipeline: both had every command
    return replace(await _with_edits(at, was, now, live.switched_at), pending=pending)


async def _with_edits(
    at: Installation,
    was: Placement,
    now: Placement,
    since: datetime | None,
    wanted: Callable[[Scope], bool] = lambda _: True,
) -> Switchover:
    """Apply user edits; those that could not be applied do not undo the switch."""
    try:
        return Switchover(was, now, edits=await carry(at, was, now, since, wanted))
    except Exception as error:  # noqa: BLE001 - the edge of a command: what it was called for is done
        return Switchover(was, now, failed=error)
