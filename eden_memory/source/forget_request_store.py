"""Requests to forget, written to the inbox by what a person names, and for messages that are missing."""

from typing import Any, Literal

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import NotFound
from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.schemas.documents import Fact, InboxForget, Message, Reflection, StoredBlob
from eden_memory.settings import Settings
from eden_memory.source.flagged_message_store import missing_messages
from eden_memory.source.inbox_store import message_of, named_session, user_of

ForgetKind = Literal["message", "session", "user", "fact", "reflection", "blob"]
STORED = {"fact": Fact.COLLECTION, "reflection": Reflection.COLLECTION, "blob": StoredBlob.COLLECTION}
Database = AsyncDatabase[dict[str, Any]]


class ForgetRequests:
    """`source`: the application's database, with the inbox; `memory`: that of memory; `by`: who asks."""

    def __init__(self, source: Database, memory: Database, settings: Settings, by: str | None) -> None:
        self._source, self._memory, self._settings = source, memory, settings
        self._asked = {"kind": "forget", "asked_by": by}
        self._inbox = source[settings.names[InboxForget.COLLECTION]]

    async def ask(self, kind: ForgetKind, name: str) -> str:
        """Request that it is forgotten, and return the typed id of the request.

        Raises NotFound if there is none: a typing error would look like success.
        """
        target = await self._target(kind, name)
        asked = await self._inbox.insert_one({**self._asked, "what": kind, "target": target})
        return encode_id(asked.inserted_id)

    async def missing(self) -> list[Message]:
        """Return the messages whose document was missing after a lost position, and still is."""
        messages = self._source[self._settings.messages.collection]
        return await missing_messages(self._memory, self._settings.names, messages)

    async def ask_for(self, messages: list[Message]) -> None:
        """Request that these messages are forgotten."""
        asked = {**self._asked, "what": "message"}
        await self._inbox.insert_many([{**asked, "target": decode_id(message.id)} for message in messages])

    async def _target(self, kind: ForgetKind, name: str) -> Any:
        source, paths = self._source, self._settings.messages
        match kind:
            case "session":
                return await named_session(source, self._memory, self._settings, name)
            case "user":
                return await user_of(source, paths.collection, paths.user_id, name)
            case "message":
                return await message_of(source, paths.collection, name)
            case "fact" | "reflection" | "blob":
                return await self._stored(kind, name)

    async def _stored(self, kind: str, name: str) -> str:
        documents = self._memory[self._settings.names[STORED[kind]]]
        if await documents.find_one({"_id": name}, {"_id": 1}) is None:
            raise NotFound(
                f"there is no {kind} {name!r}", f"Or no more; `eden {kind}s` lists those that a user may see."
            )
        return name
