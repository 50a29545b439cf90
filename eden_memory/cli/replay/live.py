"""Commands that open a database by themselves work on the namespace that is live."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.replay.live import MongoLive
from eden_memory.settings import Settings


async def live_settings(settings: Settings, database: AsyncDatabase[dict[str, Any]]) -> Settings:
    """The settings of the namespace that is live now."""
    return settings.placed(await MongoLive(database, settings.mongodb.prefix).placement())
