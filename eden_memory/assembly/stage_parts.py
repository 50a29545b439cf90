"""The stages of one placement, ready to run: workers, the parts that some of them need besides their records, and
what they share (connections, ledger, controls).
"""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.handlers import LIVE, Account, MongoClient, stage_handlers
from eden_memory.context.context_refreshing import ContextKeeping
from eden_memory.directory.secret_store import installation_secret
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.forgetting.ledger_store import ForgottenLedgers
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.formation.due_scope_store import DueScopeAnnouncer, scopes_due
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.memory.upkeep_store import MongoRetirements, RetirementRounds
from eden_memory.mongo.client import connect
from eden_memory.mongo.leases import MongoLease
from eden_memory.processors import pipeline
from eden_memory.processors.context_cache import ContextCacheStage
from eden_memory.schemas.events import REGISTRY
from eden_memory.settings import Settings
from eden_memory.stages.controls import MongoControls, MongoGroupNotes
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.handler_run import USAGE_SOURCE, UsageLog
from eden_memory.stages.lanes import Slots
from eden_memory.stages.leased import Leased
from eden_memory.stages.outcome import Publishing
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.process import ProcessPart
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.stages.stage import Handler
from eden_memory.stages.worker import Bounds, Surroundings, Worker
from eden_memory.usage.budget_store import BudgetKeeping, MongoBudgets
from eden_memory.usage.usage_store import MongoUsage
from eden_memory.webhooks.webhook_sending import PAUSE_SECONDS, ROUND_SECONDS, WebhookSending
from eden_memory.webhooks.webhook_store import TellableMemory, Webhooks

RETIRING, RETIRING_LEASE_SECONDS = "retiring", 30.0
WEBHOOK_SENDING, SENDING_LEASE_SECONDS = "webhook sending", 30.0
RETRY_SECONDS = 60.0
"""The longest pause before a failed attempt is repeated, unless a provider asks for more."""


def surroundings(
    settings: Settings, database: AsyncDatabase[dict[str, Any]], publisher: Publishing, bounds: Bounds
) -> Surroundings:
    """Return what the stages of the placement in `settings` share."""
    topics, names = load_topics(settings.kafka, settings.placement), settings.names
    marks = MongoForgetting(database, names)
    return Surroundings(
        kafka=client_kwargs(settings.kafka, endpoints(settings).kafka),
        topic_of=topics.topic_of,
        group_of=topics.group,
        registry=REGISTRY,
        publisher=publisher,
        ledger=MongoLedger(database, names),
        notes=MongoGroupNotes(database, names),
        controls=MongoControls(database, names),
        slots=Slots(settings.run.at_once),
        letters=DeadLetters(database, names, marks, settings.placement),
        usage=UsageLog(publisher, topics.topic_of, USAGE_SOURCE),
        end_published=ForgottenLedgers(database, names, marks, settings.placement.pipeline).end_published,
        bounds=bounds,
    )


@dataclass(frozen=True, slots=True)
class StageWorkers:
    """The workers of some stages in pipeline order, with their handlers and the surroundings they share."""

    workers: Sequence[Worker]
    handlers: Mapping[str, Handler]
    around: Surroundings


@asynccontextmanager
async def stage_parts(
    settings: Settings, names: Collection[str], *, group_of: Callable[[str], str] | None = None
) -> AsyncGenerator[list[ProcessPart]]:
    """Yield the parts of the named stages; their connections are closed at the end. `group_of`: other groups."""
    servers = endpoints(settings)
    bounds = Bounds(stop_seconds=settings.run.drain_seconds, retry_cap=RETRY_SECONDS)
    async with connect(servers.mongodb) as client:
        used = PartitionCounts(client[settings.mongodb.database], settings.names).used
        publisher = Publisher(partial(new_producer, client_kwargs(settings.kafka, servers.kafka)), used)
        await publisher.start()
        try:
            async with stage_workers(
                settings, client, publisher, names, bounds=bounds, group_of=group_of
            ) as stages:
                yield [*stages.workers, *_companions(settings, client, stages)]
        finally:
            await publisher.stop()


@asynccontextmanager
async def stage_workers(
    settings: Settings,
    client: MongoClient,
    publisher: Publishing,
    names: Collection[str],
    *,
    bounds: Bounds,
    account: Account = LIVE,
    group_of: Callable[[str], str] | None = None,
) -> AsyncGenerator[StageWorkers]:
    """Yield the workers of the named stages on connections that the caller owns."""
    database = client[settings.mongodb.database]
    await MongoLedger(database, settings.names).prepare()
    around = surroundings(settings, database, publisher, bounds)
    await around.letters.prepare()
    around = around if group_of is None else replace(around, group_of=group_of)
    async with stage_handlers(settings, client, names, account) as handlers:
        workers = [Worker(stage, around) for stage in pipeline.stages(handlers)]
        yield StageWorkers(workers, handlers, around)


def _companions(settings: Settings, client: MongoClient, stages: StageWorkers) -> list[ProcessPart]:
    """Return the parts that run beside the workers of some stages."""
    parts: list[ProcessPart] = []
    if isinstance(cache := stages.handlers.get(pipeline.CONTEXT_CACHE), ContextCacheStage):
        parts.append(ContextKeeping(cache, client, settings))
    if pipeline.CONSOLIDATION in stages.handlers:
        memory = settings.placement.revisions
        parts.append(consolidation_wakeups(settings, client, stages.around, memory))
    if pipeline.FACT_DEDUP in stages.handlers:
        parts.append(_retiring(settings, client, stages.around))
    if pipeline.FORMATION_TRIGGER in stages.handlers:
        database, names = client[settings.mongodb.database], settings.names
        budgets, usage = MongoBudgets(database, names), MongoUsage(database, names)
        parts.append(BudgetKeeping(budgets, usage, MongoLedger(database, names)))
    if pipeline.WEBHOOKS in stages.handlers:
        parts.append(_webhook_sending(settings, client, stages.around))
    return parts


def _webhook_sending(settings: Settings, client: MongoClient, around: Surroundings) -> Leased:
    """Return the part that sends to webhooks what their stage has written down."""
    database, names = client[settings.mongodb.database], settings.names
    lease = MongoLease(database[names["leases"]], WEBHOOK_SENDING, SENDING_LEASE_SECONDS)
    memory = TellableMemory(database, names, MongoForgetting(database, names))
    sending = WebhookSending(
        Webhooks(database, names), memory, around.letters, partial(installation_secret, database, names)
    )
    return Leased(WEBHOOK_SENDING, lease, sending.round, ROUND_SECONDS, PAUSE_SECONDS, sending.leave)


def consolidation_wakeups(
    settings: Settings, client: MongoClient, around: Surroundings, memory: str = ""
) -> DueScopeAnnouncer:
    """Return the part that asks for consolidations that have become due by time."""
    database, names = client[settings.mongodb.database], settings.names
    due = partial(scopes_due, database, names, MongoStreams(database, names), settings.limits.formation())
    return DueScopeAnnouncer(due, around.publisher, around.topic_of, pipeline.CONSOLIDATION, memory)


def _retiring(settings: Settings, client: MongoClient, around: Surroundings) -> RetirementRounds:
    """Return the part that retires expired facts, and the oldest facts beyond a limit."""
    database, names = client[settings.mongodb.database], settings.names
    lease = MongoLease(database[names["leases"]], RETIRING, RETIRING_LEASE_SECONDS)
    retirements = MongoRetirements(database, names)
    return RetirementRounds(lease, retirements, around.publisher, around.topic_of, pipeline.FACT_DEDUP)
