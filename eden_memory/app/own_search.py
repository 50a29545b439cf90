"""Search over what the settings name: their embedder, store of facts, ranking and reranker."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.app.search_models import SearchModels
from eden_memory.metrics import SearchMetrics
from eden_memory.search.access_count_store import AccessCounting, MongoAccesses
from eden_memory.search.chosen_list_store import ChosenFactLists
from eden_memory.search.ranking import Ranking, unrelated_similarity
from eden_memory.search.search_engine import SearchEngine
from eden_memory.settings import SearchSettings, Settings


class OwnSearch:
    """Made in the event loop that uses it; a model is loaded, or a provider asked, with the first query."""

    def __init__(
        self,
        settings: Settings,
        database: AsyncDatabase[dict[str, Any]],
        models: SearchModels | None = None,
    ) -> None:
        """EdenError if the embedder is a provider that has no key, or the reranker's folder holds no model."""
        names, metrics = settings.names, SearchMetrics()
        self._database, self._owns_models = database, True
        self._models = models or SearchModels(settings, database)
        embedder = self._models.embedder
        # kept fresh by the change stream of the contexts (Contexts.follow)
        self.lists = ChosenFactLists(settings, database, embedder, kept=metrics.kept)
        self._counting = AccessCounting(MongoAccesses(database, names), lost=metrics.uncounted)
        self.engine = SearchEngine(
            self.lists,
            embedder,
            ranking_of(settings.search, embedder.model),
            reranker=self._models.reranker,
            metrics=metrics,
            found=self._counting.found if settings.search.count_access else lambda _: None,
        )

    def moved(self, settings: Settings) -> "OwnSearch":
        """The search of another namespace, with these models, which are its own from now on."""
        self._owns_models = False
        return OwnSearch(settings, self._database, self._models)

    async def close(self) -> None:
        """Write what was counted; let go of threads, connections and the change stream."""
        await self._counting.close()
        await self.lists.close()
        if self._owns_models:
            await self._models.close()


def ranking_of(settings: SearchSettings, model: str) -> Ranking:
    """As the settings say; what they leave open by the embedding model."""
    return Ranking(
        fusion=settings.fusion,
        k=settings.k,
        text_weight=settings.text_weight,
        unrelated=unrelated_similarity(model) if settings.unrelated is None else settings.unrelated,
        list_size=settings.list_size,
        semantic_least=settings.semantic_least,
        text_least=settings.text_least,
        fused_least=settings.fused_least,
        siblings=settings.siblings,
        times=settings.times,
        newer=settings.newer,
        rerank_pool=settings.rerank_pool,
        rerank_least=settings.rerank_least,
        recency_weight=settings.recency_weight,
        recency_days=settings.recency_days,
        diversity=settings.diversity,
    )
