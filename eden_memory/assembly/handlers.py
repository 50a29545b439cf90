"""The handlers of the stages with their dependencies: functions from records to events, made from settings."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from pymongo import AsyncMongoClient

from eden_memory.assembly.model_factory import Models
from eden_memory.context.ready_context_store import MongoContexts, MongoContextSource
from eden_memory.context.recent_message_store import RecentMessages
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import ROOM_CHOICES
from eden_memory.directory.secret_store import installation_secret
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgetting.mark_store import MongoBatchMarks, MongoForgetting, of_pipeline
from eden_memory.formation import prompts
from eden_memory.formation.decided_store import MongoDecided
from eden_memory.formation.near_fact_store import MongoFactSearch
from eden_memory.formation.prompts import Fence
from eden_memory.formation.sharing_store import MongoSharing, learning, rooms_without_facts
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_index_store import settle_sharing
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.memory.snapshot_store import MongoSnapshots
from eden_memory.metrics import DEDUP_INCOMPARABLE, CallMetrics
from eden_memory.models.call_accounts import Prices
from eden_memory.models.model_servers import with_only_model
from eden_memory.models.stored_answers import AnswerStore, MongoAnswers
from eden_memory.names import ORIGINAL
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.processors.consolidation import Consolidation
from eden_memory.processors.context_cache import ContextCacheStage
from eden_memory.processors.fact_dedup import FactDedup, Stores
from eden_memory.processors.fact_extraction import FactExtraction
from eden_memory.processors.forgetting import ForgettingStage
from eden_memory.processors.formation_trigger import FormationTrigger
from eden_memory.processors.pipeline import (
    ATLAS_WRITER,
    CONSOLIDATION,
    CONTEXT_CACHE,
    FACT_DEDUP,
    FACT_EXTRACTION,
    FORGETTING,
    FORMATION_TRIGGER,
    PROPAGATION,
    REFLECTION_EXTRACTION,
    USAGE,
    WEBHOOKS,
)
from eden_memory.processors.propagation import Propagation
from eden_memory.processors.reflection_extraction import ReflectionExtraction
from eden_memory.processors.usage import Usage
from eden_memory.processors.webhooks import WebhookStage
from eden_memory.search.ranking import unrelated_similarity
from eden_memory.settings import Settings
from eden_memory.stages.gathering import Gathering
from eden_memory.stages.stage import Handler
from eden_memory.usage.budget_store import AverageCosts, MongoBudgets, MongoWindowBudgets, RecentBudgets
from eden_memory.usage.costs import start_values
from eden_memory.usage.usage_store import MongoUsage
from eden_memory.webhooks.webhook_store import Webhooks
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.window_rule import window_limits

log = LibraryLogger()
ACTIVE = timedelta(hours=1)
"""For so long a session's context is kept fresh after a change."""

ASK_MODELS = frozenset({FACT_EXTRACTION, FACT_DEDUP, REFLECTION_EXTRACTION, CONSOLIDATION, PROPAGATION})
GATHER_SECONDS, MOST_GATHERED = 5.0, 50
"""Seconds that messages may wait for more of their partition, and how many messages wait no longer."""
CALLS_SECONDS, MOST_CALLS = 2.0, 20
"""The same of model calls, which count against a budget once they are counted."""
MongoClient = AsyncMongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Account:
    """The account to which calls are charged; budgets apply to live formation alone."""

    namespace: str = "live"
    kept: Callable[[AnswerStore], AnswerStore] = lambda answers: answers
    """Wraps the store of answers."""

    @property
    def is_live(self) -> bool:
        """Whether windows wait for room in budgets, and propagated reflections are withdrawn."""
        return self.namespace == "live"


LIVE = Account()


@asynccontextmanager
async def stage_handlers(
    settings: Settings,
    client: MongoClient,
    names: Collection[str],
    account: Account = LIVE,
) -> AsyncGenerator[dict[str, Handler]]:
    """The handlers of the stages named; models are loaded only where one of them asks a model.

    EdenError if a role has no model, and its endpoint has none or several.
    """
    if ASK_MODELS & set(names):
        settings = await asyncio.to_thread(with_only_model, settings)
    made = Handlers(settings, client, is_live=account.is_live)
    async with AsyncExitStack() as stack:
        handlers = await made.plain(names)
        if ASK_MODELS & set(names):
            models = await models_of(settings, client, account)
            stack.push_async_callback(models.close)
            models.introduce()
            models.prepare()
            handlers |= await made.asking(models)
        yield {name: handler for name, handler in handlers.items() if name in names}


async def models_of(settings: Settings, client: MongoClient, account: Account = LIVE) -> Models:
    """The models that the settings name, with the store of their answers."""
    answers = MongoAnswers(client[settings.mongodb.database], settings.names)
    await answers.prepare()
    return Models(
        settings,
        account.kept(answers),
        Prices().cost,
        calls=CallMetrics(),
        namespace=account.namespace,
    )


class Handlers:
    """Makes handlers; nothing is read or written before one of its methods is called."""

    def __init__(self, settings: Settings, client: MongoClient, *, is_live: bool = True) -> None:
        self._settings, self._client, self._is_live = settings, client, is_live
        self._database, self._names = client[settings.mongodb.database], settings.names
        self._forgotten = MongoForgetting(self._database, self._names)
        self.streams = MongoStreams(self._database, self._names)
        self._snapshots = MongoSnapshots(self._database, self._names)
        self._sharing = MongoSharing(client[settings.source_database], self._database, settings)
        self._trigger = MongoTriggerStore(self._database, self._names, window_limits(settings))

    async def plain(self, names: Collection[str]) -> dict[str, Handler]:
        """The stages that ask no model."""
        if FORMATION_TRIGGER in names:
            await self._trigger.create_indexes()
            await self._settle_sharing()
        usage = MongoUsage(self._database, self._names)
        if {USAGE, FORMATION_TRIGGER} & set(names):
            await usage.prepare()
        database, called = self._database, self._names
        webhooks = Webhooks(database, called)
        if WEBHOOKS in names:
            await webhooks.prepare()
        pipeline = self._settings.placement.pipeline
        revisions = self._settings.placement.revisions
        writer = AtlasWriter(MongoMemoryStore(database, called), self._forgotten, memory=revisions)
        return {
            CONTEXT_CACHE: self.context_cache(),
            FORMATION_TRIGGER: await self.formation_trigger(Gathering(GATHER_SECONDS, MOST_GATHERED)),
            FORGETTING: of_pipeline(await self._forgetting(), pipeline),
            ATLAS_WRITER: writer if pipeline == ORIGINAL else of_pipeline(writer, pipeline),
            USAGE: Usage(usage, Gathering(CALLS_SECONDS, MOST_CALLS)),
            WEBHOOKS: WebhookStage(webhooks, lambda: datetime.now(UTC)),
        }

    async def _forgetting(self) -> ForgettingStage:
        store = MongoForgettingStore(self._database, self._names, self._settings.placement.pipeline)
        budgets = MongoBudgets(self._database, self._names).all
        secret = await installation_secret(self._database, self._names)
        return ForgettingStage(store, self._forgotten, budgets=budgets, secret=secret)

    async def _settle_sharing(self) -> None:
        """Decide once whether agents learn from sessions with users, and log it."""
        chosen = await settle_sharing(self._database, self._names, self._settings.memory.sharing)
        memory = self._settings.memory.model_copy(update={"sharing": chosen})
        self._settings = self._settings.model_copy(update={"memory": memory})
        source = self._client[self._settings.source_database]
        found = await learning(source, self._database, self._settings, chosen)
        log.info("memory of sessions with users", sharing=chosen, means=found.says)
        for reason in found.lacking:
            log.warning(
                "a model shares nothing of what users said: run `eden models check --sharing`", reason=reason
            )
        if rooms := await rooms_without_facts(source, self._database, self._settings, chosen):
            log.warning("sessions of several users keep no facts", sessions=rooms, choices=ROOM_CHOICES)

    async def asking(self, models: Models) -> dict[str, Handler]:
        """The stages that ask models."""
        fence = Fence(await installation_secret(self._database, self._names))
        return {
            FACT_EXTRACTION: FactExtraction(
                self._trigger,
                self.streams,
                self._snapshots,
                models.language_model,
                self._forgotten,
                fence,
                self._sharing,
                demote_names=self._settings.memory.demote_names,
                shared_roles=frozenset(self._settings.memory.shared_roles),
                limits=self._settings.formation_limits,
            ),
            FACT_DEDUP: self._fact_dedup(models, fence),
            REFLECTION_EXTRACTION: ReflectionExtraction(
                self._trigger,
                self.streams,
                self._snapshots,
                models.language_model,
                models.kept_answers,
                self._forgotten,
                fence,
                self._sharing,
                demote_names=self._settings.memory.demote_names,
                shared_roles=frozenset(self._settings.memory.shared_roles),
                limits=self._settings.formation_limits,
            ),
            CONSOLIDATION: Consolidation(
                self._snapshots,
                MongoDecided(self._database, self._names),
                self.streams,
                models.language_model,
                self._forgotten,
                fence,
                settings_version(self._settings),
                self._directory().tier_of,
                limits=self._settings.formation_limits,
                is_live=self._is_live,
            ),
            PROPAGATION: self._propagation(models, fence),
        }

    def _propagation(self, models: Models, fence: Fence) -> Propagation:
        directory = self._directory()
        return Propagation(
            MongoDecided(self._database, self._names),
            directory,
            self.streams,
            models.language_model,
            self._forgotten,
            fence,
            self._sharing,
            directory.tier_of,
            on=self._settings.memory.propagation,
            limits=self._settings.formation_limits,
        )

    def context_cache(self) -> ContextCacheStage:
        """Build the stage; ContextKeeping (eden_memory.context.context_refreshing) tells it what no event says."""
        settings, memory = self._settings, self._settings.memory
        source = self._client[settings.source_database]
        return ContextCacheStage(
            MongoContextSource(
                source,
                self._database,
                settings,
                MongoStreams(self._database, self._names, keep_seconds=0),  # built by what has just changed
            ),
            MongoContexts(self._database, self._names),
            memory,
            ACTIVE,
            lambda: datetime.now(UTC),
            recent=RecentMessages(
                source, self._database, settings, self._forgotten, lambda: datetime.now(UTC)
            ),
        )

    async def formation_trigger(self, gathering: Gathering | None = None) -> FormationTrigger:
        """Return the trigger; without `gathering`, it processes every batch at once."""
        settings = self._settings
        return FormationTrigger(
            self._trigger,
            self._directory(),
            settings_version(settings),
            MongoBatchMarks(self._database, self._names),
            forgets=settings.messages.forgets,
            budgets=self._window_budgets() if self._is_live else None,
            gathering=gathering,
            grace=timedelta(seconds=settings.messages.delete_grace_seconds),
            secret=await installation_secret(self._database, self._names),
        )

    def _directory(self) -> MongoDirectory:
        source, streams = self._client[self._settings.source_database], self._names["streams"]
        return MongoDirectory(source, self._database[streams], self._settings)

    def _window_budgets(self) -> MongoWindowBudgets:
        budgets = MongoBudgets(self._database, self._names)
        averages = AverageCosts(self._database, self._names, budgets.now)
        return MongoWindowBudgets(
            RecentBudgets(budgets), averages, start_values(self._settings, Prices().cost)
        )

    def _fact_dedup(self, models: Models, fence: Fence) -> FactDedup:
        embedder, memory = models.embedder, self._settings.memory
        unrelated = self._settings.search.unrelated
        search = MongoFactSearch(self._database, self._names, embedder.model, skipped=DEDUP_INCOMPARABLE.set)
        decided = MongoDecided(self._database, self._names)
        return FactDedup(
            Stores(search, decided, self._forgotten, self.streams),
            models.language_model,
            embedder,
            fence,
            similar=memory.similar,
            unrelated=unrelated_similarity(embedder.model) if unrelated is None else unrelated,
            dedup=memory.dedup,
            limits=self._settings.formation_limits,
        )


def settings_version(settings: Settings) -> str:
    """A hash of the settings that decide what is formed."""
    decides = "".join(
        (
            settings.windows.model_dump_json(),
            settings.models.model_dump_json(exclude={"timeout_seconds", "at_once", "log_prompts", "prompts"}),
            settings.memory.model_dump_json(
                include={"dedup", "similar", "demote_names", "without_users", "propagation", "shared_roles"}
            ),
            settings.limits.model_dump_json(),
            settings.llm,
            settings.formation_calls,
            settings.embedder or "",
            *prompts.versions(short=settings.models.prompts == "short"),
        )
    )
    return sha256(decides.encode()).hexdigest()[:12]
