"""The parts of a reform: settings in, stages with their own topics, groups and collections out."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.handlers import Account, MongoClient
from eden_memory.assembly.mongo_setup import dimensions_of, set_up
from eden_memory.assembly.needs import OF_STAGES
from eden_memory.assembly.stage_parts import consolidation_wakeups, stage_workers
from eden_memory.directory.directory_store import MongoAudiences
from eden_memory.housekeeping.topics_check import TopicsCheck
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.groups import GroupAdmin
from eden_memory.kafka.topic_admin import apply_topics
from eden_memory.kafka.topic_reading import places_in
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.models.stored_answers import AnswerStore
from eden_memory.names import Placement
from eden_memory.processors import pipeline
from eden_memory.replay.group_progress import GroupProgress
from eden_memory.replay.reform.feeding import CountedReuse, Feeding, InterceptingPublisher, ReformCap
from eden_memory.replay.reform.reform_plan import ReformPlan, streams_by_agent
from eden_memory.replay.reform.reform_run import ReformProgress, ReformRun, Throttling
from eden_memory.replay.reform.reform_settings import STREAMS, OwnStreams, own_topics, takes, with_streams
from eden_memory.replay.restore.trigger_restore import TriggerRestore
from eden_memory.schemas.documents import Reform
from eden_memory.schemas.events import MessageRecorded
from eden_memory.settings import Settings
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.stages.worker import Bounds
from eden_memory.tasks import end
from eden_memory.usage.usage_store import MongoTotals, MongoUsage
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.window_rule import window_limits

STAGES = (
    pipeline.FORMATION_TRIGGER,
    pipeline.FACT_EXTRACTION,
    pipeline.FACT_DEDUP,
    pipeline.REFLECTION_EXTRACTION,
    pipeline.CONSOLIDATION,
    pipeline.FORGETTING,
    pipeline.ATLAS_WRITER,
)
"""The stages of a reform: all that forms memory. Usage is counted by this process, contexts are built when read."""
LIVE = (
    pipeline.FACT_EXTRACTION,
    pipeline.FACT_DEDUP,
    pipeline.REFLECTION_EXTRACTION,
    pipeline.ATLAS_WRITER,
)
"""Stages of live formation that a window goes through: while they have work, a reform holds back."""
LEAST_SLOTS = 8
"""Even of one window, several scopes are worked on side by side."""
BESIDE_LIVE = 1
"""Windows of a reform in progress while live formation has any."""
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


async def prepare(database: AsyncDatabase[Row], own: Settings, streams: Sequence[Row] | None) -> None:
    """Topics, collections and indexes of the namespace; safe to repeat."""
    config = admin_config(own.kafka, endpoints(own).kafka)
    topics = own_topics(own.kafka, own.placement)
    await asyncio.to_thread(apply_topics, config, topics)
    await TopicsCheck(config, topics, PartitionCounts(database, own.names)).look()
    await set_up(database, own.names, dimensions_of(own))
    await MongoUsage(database, own.names).prepare()
    if streams is not None:
        kept = database[own.names[STREAMS]]
        for stream in streams:
            await kept.replace_one({"_id": stream["_id"]}, stream, upsert=True)


async def restore(
    client: MongoClient, live: Settings, own: Settings, reform: Reform, shown: Callable[[int, int], None]
) -> None:
    """formation-trigger's state, its windows as they were recorded, the texts of those selected; safe to repeat."""
    database = client[own.mongodb.database]
    topics = load_topics(live.kafka, live.placement)
    heard = await MongoAudiences(database, live.names).heard_by(reform.asked.user_id)
    texts = partial(takes, reform.asked, heard=heard)
    restored = await TriggerRestore(own, client, topics, texts, anew=True, shown=shown).run()
    group = load_topics(own.kafka, own.placement).group(pipeline.FORMATION_TRIGGER)
    ends = places_in(topics.topic_of(MessageRecorded), restored.chat_ends)
    async with GroupAdmin(client_kwargs(own.kafka, endpoints(own).kafka)) as groups:
        await groups.commit(group, ends)


@asynccontextmanager
async def reform_run(
    client: MongoClient,
    live: Settings,
    own: Settings,
    reform: Reform,
    plan: ReformPlan,
    on_progress: Callable[[ReformProgress], None],
) -> AsyncGenerator[ReformRun]:
    """Yield a reform with everything connected; `live` are the settings of the namespace that it began from."""
    database, topics = client[own.mongodb.database], load_topics(own.kafka, own.placement)
    kafka = client_kwargs(own.kafka, endpoints(own).kafka)

    def progress(settings: Settings, stages: Iterable[str]) -> GroupProgress:
        named = load_topics(settings.kafka, settings.placement)
        return GroupProgress(kafka, {named.group(stage): named.read_by(stage) for stage in stages})

    async with AsyncExitStack() as stack:
        publisher = Publisher(partial(new_producer, kafka), PartitionCounts(database, own.names).used)
        await publisher.start()
        stack.push_async_callback(publisher.stop)
        spent, paid = await MongoTotals(database, own.names).of_namespace(reform.id)
        usage = MongoUsage(database, own.names)
        intercepting = InterceptingPublisher(publisher, usage, topics.topic_of, spent=spent, paid=paid)
        cap = ReformCap(plan.message_usd, lambda: intercepting.spent, reform.cap_usd)
        answers: list[CountedReuse] = []
        account = Account(reform.id, partial(_counted, answers, f"{reform.id}/"))
        for need in OF_STAGES:
            await need.check(own, client)
        stages = await stack.enter_async_context(
            stage_workers(own, client, intercepting, STAGES, bounds=BOUNDS, account=account)
        )
        around, (trigger, *others) = stages.around, stages.workers
        formed, cut, forgotten, theirs = [
            await stack.enter_async_context(groups)
            for groups in (
                progress(own, [worker.name for worker in others]),
                progress(own, [pipeline.FORMATION_TRIGGER]),
                progress(own, [pipeline.FORGETTING]),
                progress(live, LIVE),
            )
        ]
        throttling = Throttling(theirs.standing, around.slots, reform.at_once, BESIDE_LIVE)
        looking = asyncio.create_task(throttling.run(), name="throttling")
        stack.push_async_callback(end, [looking])
        feeding = Feeding(
            reform.asked,
            MongoTriggerStore(database, own.names, window_limits(own)),
            around.ledger,
            publisher,
            topics.topic_of,
            cap,
            reform.at_once,
            formed.until_quiet,
            room=lambda: throttling.windows,
            heard=await MongoAudiences(database, live.names).heard_by(reform.asked.user_id),
        )
        intercepting.offer = feeding.offer
        if reform.asked.streams is not None:
            rows = await database[own.names[STREAMS]].find().to_list()
            feeding.written = partial(with_streams, streams=streams_by_agent(rows))
        yield ReformRun(
            reform=reform,
            settings=own,
            source=live.names,
            database=database,
            feeding=feeding,
            publisher=intercepting,
            answers=answers,
            throttling=throttling,
            trigger=trigger,
            stages=[*others, consolidation_wakeups(own, client, around)],
            cut=cut,
            forgotten=forgotten,
            times=plan.times,
            on_progress=on_progress,
        )


def _counted(kept: list[CountedReuse], units: str, answers: AnswerStore) -> AnswerStore:
    counted = CountedReuse(answers, units)
    kept.append(counted)
    return counted
