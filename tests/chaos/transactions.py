"""Several changes of one message in one MongoDB transaction: they share a cluster time.

Every function may be repeated: a transaction that was committed, and whose answer was lost, does no harm again.
"""

from collections.abc import Mapping
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection

Document = Mapping[str, Any]
Messages = AsyncCollection[dict[str, Any]]
LIFETIME_SECONDS = 5
"""What a transaction that lost its client may hold up."""


async def bound_transactions(client: AsyncMongoClient[Any]) -> None:
    """Have the server end a transaction that nobody ends; until its next start."""
    await client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=LIFETIME_SECONDS)


class Transactions:
    """Changes of `messages` that are committed together."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]], messages: Messages) -> None:
        self._client, self._messages = client, messages

    async def insert_and_update(self, document: Document, content: Any) -> None:
        """A new message (often a placeholder) that has other content before anybody sees it."""
        async with self._client.start_session() as session, await session.start_transaction():
            await self._messages.insert_one(dict(document), session=session)
            await self._set(session, document["_id"], content=content)

    async def insert_and_delete(self, document: Document) -> None:
        """A message that nobody ever sees."""
        async with self._client.start_session() as session, await session.start_transaction():
            await self._messages.insert_one(dict(document), session=session)
            await self._messages.delete_one({"_id": document["_id"]}, session=session)

    async def delete_and_insert(self, document: Document) -> None:
        """Another message under the same `_id`."""
        async with self._client.start_session() as session, await session.start_transaction():
            await self._messages.delete_one({"_id": document["_id"]}, session=session)
            await self._messages.insert_one(dict(document), session=session)

    async def insert_delete_and_insert(self, document: Document, draft: Any) -> None:
        """A new message under the `_id` of a draft that nobody ever sees."""
        async with self._client.start_session() as session, await session.start_transaction():
            await self._messages.insert_one({**document, "content": draft}, session=session)
            await self._messages.delete_one({"_id": document["_id"]}, session=session)
            await self._messages.insert_one(dict(document), session=session)

    async def insert_and_move(self, document: Document, *by_way_of: Any) -> None:
        """A new message that comes to its session by way of others."""
        async with self._client.start_session() as session, await session.start_transaction():
            first, *others = by_way_of
            await self._messages.insert_one({**document, "session_id": first}, session=session)
            for one in (*others, document["session_id"]):
                await self._set(session, document["_id"], session_id=one)

    async def there_and_back(self, identity: Any, other: Any) -> None:
        """A message that is moved to another session, and back; nothing if it went with the lost position."""
        async with self._client.start_session() as session, await session.start_transaction():
            found = await self._messages.find_one({"_id": identity}, session=session)
            if found is not None:
                await self._set(session, identity, session_id=other)
                await self._set(session, identity, session_id=found["session_id"])

    async def _set(self, session: AsyncClientSession, identity: Any, **fields: Any) -> None:
        await self._messages.update_one({"_id": identity}, {"$set": fields}, session=session)
