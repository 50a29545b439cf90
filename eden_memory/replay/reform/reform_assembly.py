"""What a reform is made of: settings in, stages with their own topics, groups and collections out."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.handlers import Account, MongoClient, models_of, window_limits
from eden_memory.assembly.mongo_setup import dimensions_of, set_up
from eden_memory.assembly.stage_parts import consolidation_wakeups, stage_workers
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.stream_store import Streams, streams_in
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.group_offsets import commit, places_in
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topics import Topics, load_topics
from eden_memory.local.servers import endpoints
from eden_memory.models.asking.answer_forwarding import AnswerStore
from eden_memory.models.asking.capped import Capped
from eden_memory.models.asking.reused import CountedReuse
from eden_memory.placement import Placement
from eden_memory.processors import pipeline
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.reform.feeding import Feeding
from eden_memory.replay.reform.intercepting_publisher import KeepingBack
from eden_memory.replay.reform.own_streams import STREAMS, OwnStreams
from eden_memory.replay.reform.own_topics import own_topics
from eden_memory.replay.reform.reform_budget import Money
from eden_memory.replay.reform.reform_plan import Plan
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.replay.reform.reform_window_store import MongoReformWindows
from eden_memory.replay.reform.reforming import Reforming
from eden_memory.replay.reform.selection import formed_by, takes
from eden_memory.replay.reform.shards import with_streams
from eden_memory.replay.reform.throttling import GivingWay
from eden_memory.replay.restore.restored_store import MongoRestored
from eden_memory.replay.restore.restoring import Restoring
from eden_memory.replay.user_edits.applied_edits import Applied
from eden_memory.replay.user_edits.edited_fact_store import side
from eden_memory.replay.user_edits.reapplying import apply_own_changes
from eden_memory.schemas.documents import Reform
from eden_memory.schemas.events import FormationRequested, MessageRecorded
from eden_memory.settings import Settings
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.stages.slots import Slots
from eden_memory.stages.worker import Bounds
from eden_memory.task_ending import end
from eden_memory.usage.totals_store import MongoTotals
from eden_memory.usage.usage_store import MongoUsage
from eden_memory.windows.trigger_store import MongoTriggerStore

STAGES = (
    pipeline.FORMATION_TRIGGER,
    pipeline.FACT_EXTRACTION,
    pipeline.FACT_DEDUP,
    pipeline.REFLECTION_EXTRACTION,
    pipeline.CONSOLIDATION,
    pipeline.FORGETTING,
    pipeline.ATLAS_WRITER,
)
"""What runs in a reform: all that forms memory. Usage is counted by this process, contexts are built when read."""
LIVE = (
    pipeline.FACT_EXTRACTION,
    pipeline.FACT_DEDUP,
    pipeline.REFLECTION_EXTRACTION,
    pipeline.ATLAS_WRITER,
)
"""Stages of live formation that a window goes through: while they have work, a reform holds back."""
LEAST_SLOTS = 8
"""Even of one window, several scopes are worked on side by side."""
BOUNDS = Bounds(commit_seconds=0.2, poll_seconds=0.1, stop_seconds=10.0)
Row = dict[str, Any]


def own_settings(settings: Settings, name: str, at_once: int, *, own_streams: bool) -> Settings:
    """Overridden settings at the reform's place, with its share of handlers and calls."""
    models = settings.models.model_copy(
        update={"at_once": min(at_once, max(1, settings.models.at_once // 4))}
    )
    run = settings.run.model_copy(update={"at_once": max(LEAST_SLOTS, at_once)})
    changed = settings.model_copy(update={"models": models, "run": run})
    return changed.placed(OwnStreams(name, name) if own_streams else Placement(name, name))


@dataclass(slots=True)
class Work:
    """One reform, ready to run."""

    reform: Reform
    reforming: Reforming
    feeding: Feeding
    keeping: KeepingBack
    answers: list[CountedReuse]
    giving_way: GivingWay
    own: list[Applied] = field(default_factory=list[Applied])
    """What became of people's own changes, when all was formed."""

    @property
    def reused(self) -> int:
        """Answers found kept, by this process."""
        return sum(one.reused for one in self.answers)

    def held(self) -> str:
        """What keeps it from going on, or from going on faster, for people; empty where nothing does."""
        return self.reforming.held() or ("live formation goes first" if self.giving_way.holds else "")


async def prepare(database: AsyncDatabase[Row], own: Settings, streams: Sequence[Row] | None) -> None:
    """Topics, collections and indexes of the namespace; safe to repeat."""
    config = admin_config(own.kafka, endpoints(own).kafka)
    await asyncio.to_thread(apply_topics, config, own_topics(own.kafka, own.placement))
    await set_up(database, own.names, dimensions_of(own))
    await MongoUsage(database, own.names).prepare()
    if streams is not None:
        kept = database[own.names[STREAMS]]
        for one in streams:
            await kept.replace_one({"_id": one["_id"]}, one, upsert=True)


async def restore(
    client: MongoClient, live: Settings, own: Settings, reform: Reform, shown: Callable[[int, int], None]
) -> None:
    """formation-trigger's state, its windows as they were recorded, the texts of those selected; safe to repeat."""
    database = client[own.mongodb.database]
    topics = load_topics(live.kafka, live.placement)
    directory = MongoDirectory(client[own.source_database], database[own.names[STREAMS]], own)

    def selected(asked: FormationRequested, *_: object) -> bool:
        return takes(reform.asked, asked)

    restoring = Restoring(
        client=client_kwargs(own.kafka, endpoints(own).kafka),
        topics=topics,
        store=MongoRestored(database, own.names),
        limits=window_limits(own),
        described=own.sessions.collection is not None,
        forgets=own.messages.on_delete != "keep",
        texts=selected,
        look_up=directory.look_up,
        anew=True,
        shown=shown,
    )
    restored = await restoring.run()
    group = load_topics(own.kafka, own.placement).group(pipeline.FORMATION_TRIGGER)
    ends = places_in(topics.topic_of(MessageRecorded), restored.chat_ends)
    await commit(admin_config(own.kafka, endpoints(own).kafka), group, ends)


@asynccontextmanager
async def reforming(
    client: MongoClient,
    live: Settings,
    own: Settings,
    reform: Reform,
    plan: Plan,
    tick: Callable[["Work"], Awaitable[None]],
) -> AsyncGenerator[Work]:
    """Everything connected; `live` are the settings of the namespace that it began from."""
    database, topics = client[own.mongodb.database], load_topics(own.kafka, own.placement)
    kafka = client_kwargs(own.kafka, endpoints(own).kafka)
    async with AsyncExitStack() as stack:
        publisher = Publisher(partial(new_producer, kafka))
        await publisher.start()
        stack.push_async_callback(publisher.stop)
        work: Work
        keeping = await _keeping(database, own, reform.id, publisher, topics)
        answers: list[CountedReuse] = []
        money = Money(plan.expecting, lambda: keeping.spent, reform.cap_usd)
        keeping.counted = money.counted
        account = Account(reform.id, partial(_counted, answers, f"{reform.id}/", money))
        made = await stack.enter_async_context(
            stage_workers(own, client, keeping, STAGES, bounds=BOUNDS, account=account)
        )
        around, (trigger, *others) = made.around, made.workers
        stages = [worker.name for worker in others]
        formed = await stack.enter_async_context(
            GroupProgress(kafka, {topics.group(one): topics.read_by(one) for one in stages})
        )
        cut, forgotten = [
            await stack.enter_async_context(GroupProgress(kafka, {topics.group(one): topics.read_by(one)}))
            for one in (pipeline.FORMATION_TRIGGER, pipeline.FORGETTING)
        ]
        giving_way = await _giving_way(stack, kafka, live, own, around.slots, reform.at_once)
        feeding = Feeding(
            reform.asked,
            MongoTriggerStore(database, own.names, window_limits(own)),
            around.ledger,
            publisher,
            topics.topic_of,
            money,
            reform.at_once,
            formed.until_quiet,
            room=lambda: giving_way.windows,
        )
        keeping.offer = feeding.offer
        if reform.asked.streams is not None:
            feeding.written = partial(with_streams, streams=await _streams(database, own))
        waking = consolidation_wakeups(own, client, around)
        windows = MongoReformWindows(database, own.names)
        run = Reforming(
            feeding,
            trigger,
            [*others, waking],
            cut,
            forgotten,
            lambda: feeding.know(windows.requested(), plan.times),
            lambda: _own_changes(work, client, live, own, keeping, topics),
            lambda: tick(work),
        )
        work = Work(reform, run, feeding, keeping, answers, giving_way)
        yield work


async def _giving_way(
    stack: AsyncExitStack, kafka: dict[str, Any], live: Settings, own: Settings, slots: Slots, at_once: int
) -> GivingWay:
    """To live formation, from now on until the stack is left."""
    theirs = load_topics(live.kafka, live.placement)
    groups = GroupProgress(kafka, {theirs.group(one): theirs.read_by(one) for one in LIVE})
    look = await stack.enter_async_context(groups)
    giving_way = GivingWay(look.standing, slots, at_once, own.run.reform_beside)
    looking = asyncio.create_task(giving_way.run(), name="giving way")
    stack.push_async_callback(end, [looking])
    return giving_way


async def _own_changes(
    work: Work, client: MongoClient, live: Settings, own: Settings, publisher: KeepingBack, topics: Topics
) -> bool:
    """What people added, edited and retired is applied again; whether anything was."""
    database = client[own.mongodb.database]
    models = await models_of(own, client, Account(work.reform.id))
    try:
        model = models.embedder.model
        before, anew = side(database, live.names, model), side(database, own.names, model)
        wanted = formed_by(work.reform.asked)
        found = await apply_own_changes(
            before, anew, models.embedder, publisher, topics.topic_of, wanted=wanted
        )
    finally:
        await models.close()
    work.own = [found]
    return bool(found.applied)


def _counted(kept: list[CountedReuse], units: str, money: Money, answers: AnswerStore) -> AnswerStore:
    counted = CountedReuse(answers, units)
    kept.append(counted)
    return Capped(counted, f"{units}{pipeline.CONSOLIDATION}:", money.reserve)


async def _keeping(
    database: AsyncDatabase[Row], own: Settings, name: str, publisher: Publisher, topics: Topics
) -> KeepingBack:
    spent, paid = await MongoTotals(database, own.names).of_namespace(name)
    usage = MongoUsage(database, own.names)
    return KeepingBack(publisher, usage, topics.topic_of, spent=spent, paid=paid)


async def _streams(database: AsyncDatabase[Row], own: Settings) -> Mapping[str, Streams]:
    """By agent."""
    rows: defaultdict[str, list[Row]] = defaultdict(list)
    async for row in database[own.names[STREAMS]].find():
        rows[row["agent_id"]].append(row)
    return {agent: streams_in(found) for agent, found in rows.items()}


async def note(reforms: MongoReforms, work: Work, told: int) -> int:
    """Keep how far it is; how many reused answers are told by now."""
    reused = work.reused
    await reforms.note(
        work.reform.id,
        formed=work.feeding.money.formed,
        windows=max(work.feeding.whole, work.feeding.money.formed),
        spent_usd=work.keeping.spent,
        paid=work.keeping.paid,
    )
    await reforms.reused(work.reform.id, reused - told)
    return reused


def now() -> datetime:
    """In UTC."""
    return datetime.now(UTC)
