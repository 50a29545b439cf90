"""Where the tailer goes on after its position was lost together with the application's messages."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.settings import Settings

FIRST_EPOCH = 0
"""Below that of any lease."""


async def follow_from_now(
    database: AsyncDatabase[dict[str, Any]], settings: Settings, source: str, inbox: str
) -> bool:
    """Save a position of this moment if the messages' collection is empty; False: it is not, or one is saved.

    Without it the tailer would merge `chat.messages` against an empty collection, and end every message there.
    """
    client, messages = database.client, settings.messages.collection
    if await client[settings.source_database][messages].find_one({}, {"_id": 1}) is not None:
        return False
    positions = database[settings.names["positions"]]
    if await positions.find_one({"_id": source, "token": {"$exists": True}}) is not None:
        return False
    stream = ChangeStream(client, settings.source_database, {messages: ["_id"], inbox: ["_id"]})
    now = await stream.now()
    position = {"token": now.position, "version": now.version, "phase": "stream", "page": None, "read": 0}
    await positions.update_one({"_id": source}, {"$set": {**position, "epoch": FIRST_EPOCH}}, upsert=True)
    return True
