"""Search over what the settings name: their embedder, and vectors kept side by side in this process."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.api.facts import FactFinder
from eden_memory.models.factory import Models
from eden_memory.models.providers.prices import Prices
from eden_memory.mongo.answers import MongoAnswers
from eden_memory.mongo.memory.fact_search import MongoFactSearch
from eden_memory.settings import Settings


class OwnSearch:
    """Made in the event loop that uses it; a model is loaded, or a provider asked, with the first query."""

    def __init__(self, settings: Settings, database: AsyncDatabase[dict[str, Any]]) -> None:
        """EdenError if the embedder is a provider that has no key."""
        prefix = settings.mongodb.prefix
        self._models = Models(settings, MongoAnswers(database, prefix), Prices().cost)
        embedder = self._models.embedder
        self.engine = FactFinder(MongoFactSearch(database, prefix, embedder.model), embedder)

    async def close(self) -> None:
        """Let go of threads and connections."""
        await self._models.close()
