"""The chat application of the demo: it writes to MongoDB and knows nothing of memory."""

import asyncio
import time
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.demo.conversation import Conversation, PlayedChange, PlayedMessage, PlayedStep, plain_text
from eden_memory.demo.journey import ApplicationWrite, DeliveryLog
from eden_memory.errors import EdenError
from eden_memory.mongo.document_fields import cut
from eden_memory.settings import Settings
from eden_memory.source.configured_mapping import inbox_name

MARKER = "made_by_eden_demo"


class ChatApplication:
    """Plays a conversation into a database of its own (`here`), noting every write in a journey."""

    def __init__(
        self, client: AsyncMongoClient[dict[str, Any]], here: Settings, journey: DeliveryLog
    ) -> None:
        self._client, self._journey, self._text_limit = client, journey, here.tailer.text_limit
        self._database: AsyncDatabase[dict[str, Any]] = client[here.source_database]
        self._inbox = self._database[inbox_name(here)]

    async def prepare(self, conversation: Conversation) -> None:
        """Create an empty database with people and sessions; never touch one that the demo did not create."""
        await self.remove()
        await self._database[MARKER].insert_one({"_id": "eden demo"})
        await self._database.create_collection("messages", changeStreamPreAndPostImages={"enabled": True})
        await self._database["messages"].create_index([("created_at", 1), ("_id", 1)])
        for name, documents in conversation.people.items():
            if documents:
                await self._database[name].insert_many(documents)

    async def remove(self) -> None:
        """Drop the demo's database; an EdenError if there is one of that name that is not the demo's."""
        name = self._database.name
        collections = await self._database.list_collection_names()
        if collections and MARKER not in collections:
            raise EdenError(
                f"the database {name} exists and was not made by the demo", "Rename or drop it first."
            )
        await self._client.drop_database(name)

    async def play(self, conversation: Conversation, rate: float) -> None:
        """Write everything at about `rate` messages a second, a few at once."""
        started, done = time.monotonic(), 0
        for step in conversation.steps():
            await self._do(step)
            done += len(step.messages) or 1
            await asyncio.sleep(max(0.0, started + done / rate - time.monotonic()))

    async def end_sessions(self, conversation: Conversation) -> None:
        """End every session as an application would: with a document in the inbox."""
        sessions = dict.fromkeys(message.session for message in conversation.messages)
        asked = [{"kind": "session_ended", "session_id": session, "asked_by": "demo"} for session in sessions]
        await self._inbox.insert_many(asked)

    async def _do(self, step: PlayedStep) -> None:
        if step.change is not None:
            await self._change(step.change)
            return
        for message in step.messages:
            text = cut(plain_text(message.content), self._text_limit)
            self._journey.wrote(ApplicationWrite("message", message.id, message.session, text, time.time()))
        await self._database["messages"].insert_many([_document(message) for message in step.messages])

    async def _change(self, change: PlayedChange) -> None:
        session = self._journey.writes[change.id][0].session
        text = None if change.change == "delete" else cut(plain_text(change.content or ""), self._text_limit)
        self._journey.wrote(ApplicationWrite(change.change, change.id, session, text, time.time()))
        messages = self._database["messages"]
        if change.change == "delete":
            await messages.delete_one({"_id": change.id})
        else:
            await messages.update_one({"_id": change.id}, {"$set": {"content": change.content}})


def _document(message: PlayedMessage) -> dict[str, Any]:
    return {
        "_id": message.id,
        "session_id": message.session,
        "role": message.role,
        "content": message.content,
        "user_id": message.user,
        "created_at": message.created_at,
    }
