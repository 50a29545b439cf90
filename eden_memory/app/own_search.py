"""Search with the components that the settings name: embedder, store of facts, ranking and reranker."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.assembly.model_factory import Models
from eden_memory.errors import OverBudget
from eden_memory.metrics import SEARCH_UNCOUNTED, CallMetrics, count_cached
from eden_memory.models.cached_embedders import SearchEmbedder, Unstored
from eden_memory.models.call_accounts import Prices
from eden_memory.models.local_embedder import LocalEmbedder
from eden_memory.models.question import Asking, Embedder
from eden_memory.models.rerankers import reranker_of
from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.redaction import without_secrets
from eden_memory.search.plain_list_store import PlainFactLists, fact_lists, searches_by_atlas
from eden_memory.search.ranking import Ranking, unrelated_similarity
from eden_memory.search.search_count_store import AccessCounting, MongoAccesses, SearchUsage
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.unindexed_list_store import ReflectionLists
from eden_memory.settings import SearchSettings, Settings
from eden_memory.usage.budget_rules import Spending, first_without_room
from eden_memory.usage.budget_store import MongoBudgets, RecentBudgets
from eden_memory.usage.usage_store import MongoUsage

CALL_SECONDS = 10.0
"""Seconds after which a search abandons its call of a provider, so that calls of a hanging one do not pile up."""
READ_SECONDS = 1.0
AWAY_SECONDS = 2.0
"""Between two attempts to read budgets while MongoDB does not answer; what was known is used meanwhile."""


class SearchModels:
    """Made in the event loop that searches; a model is loaded, or a provider asked, with the first query."""

    def __init__(self, settings: Settings, database: AsyncDatabase[dict[str, Any]]) -> None:
        """EdenError if the embedder is a provider that has no key, or the reranker's folder holds no model."""
        names, limit = settings.names, min(CALL_SECONDS, settings.models.timeout_seconds)
        bounded = settings.models.model_copy(update={"timeout_seconds": limit})
        self.reranker = reranker_of(settings.search)
        self._usage = SearchUsage(MongoUsage(database, names), CallMetrics())
        self._models = Models(
            settings.model_copy(update={"models": bounded}),
            Unstored(MongoAnswers(database, names)),
            Prices().cost,
            calls=self._usage,
        )
        self._budgets = SearchBudgets(MongoBudgets(database, names))
        asked = self._models.embedder
        self.embedder: Embedder = (
            asked if isinstance(asked, LocalEmbedder) else SearchEmbedder(asked, self._budgets.admit)
        )

    async def close(self) -> None:
        """Write the counts, and release threads and connections."""
        if self.reranker is not None:
            await self.reranker.close()
        if isinstance(self.embedder, SearchEmbedder):
            await self.embedder.close()
        await self._models.close()
        await self._usage.close()


class SearchBudgets:
    """Refuses calls that a budget has no room for, as formation-trigger counts it."""

    def __init__(self, budgets: MongoBudgets) -> None:
        self._budgets = RecentBudgets(budgets)
        self._known: Mapping[str, Spending] | None = None
        self._away_until = 0.0

    async def admit(self, asking: Asking | None) -> None:
        """Return if a call may be made for this agent and user; OverBudget if not."""
        if self._known is None or time.monotonic() > self._away_until:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    self._known = await self._budgets.read()
            except Exception:
                if self._known is None:
                    raise
                self._away_until = time.monotonic() + AWAY_SECONDS
        agent_id, user_id = (asking.agent_id, asking.user_id) if asking else (None, None)
        if (full := first_without_room(self._known, agent_id, user_id)) is not None:
            raise OverBudget(full.id)


class OwnSearch:
    """Made in the event loop that uses it; a model is loaded, or a provider asked, with the first query."""

    def __init__(
        self,
        settings: Settings,
        database: AsyncDatabase[dict[str, Any]],
        models: SearchModels | None = None,
        *,
        atlas: bool,
    ) -> None:
        """EdenError if the embedder is a provider that has no key, or the reranker's folder holds no model."""
        names = settings.names
        self._database, self._owns_models = database, True
        self._models = models or SearchModels(settings, database)
        embedder = self._models.embedder
        self._lists = fact_lists(settings, database, embedder, count_cached, atlas=atlas)
        self.cache = self._lists if isinstance(self._lists, PlainFactLists) else None
        """What a change feed has to refresh; None if Atlas searches."""
        self._counting = AccessCounting(MongoAccesses(database, names), lost=SEARCH_UNCOUNTED.inc)
        self.engine = SearchEngine(
            self._lists,
            embedder,
            ranking_of(settings.search, embedder.model),
            reranker=self._models.reranker,
            reflections=ReflectionLists(database, names, embedder),
            found=self._counting.found,
            redact=partial(without_secrets, settings=settings),
        )

    @classmethod
    async def opened(cls, settings: Settings, database: AsyncDatabase[dict[str, Any]]) -> "OwnSearch":
        """Return the search of one namespace; asks MongoDB whether it has search indexes, unless settings say."""
        return cls(settings, database, atlas=await searches_by_atlas(settings, database))

    async def moved(self, settings: Settings) -> "OwnSearch":
        """Return the search of another namespace, which owns these models from now on."""
        atlas = await searches_by_atlas(settings, self._database)
        self._owns_models = False
        return OwnSearch(settings, self._database, self._models, atlas=atlas)

    async def close(self) -> None:
        """Write the access counts; end threads and background tasks, and close connections."""
        await self._counting.close()
        if self.cache is not None:
            await self.cache.close()
        if self._owns_models:
            await self._models.close()


def ranking_of(settings: SearchSettings, model: str) -> Ranking:
    """Return the ranking's figures, with what the settings or the embedding model say of unrelated texts."""
    unrelated = unrelated_similarity(model) if settings.unrelated is None else settings.unrelated
    return Ranking(unrelated=unrelated)
