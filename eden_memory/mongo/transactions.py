"""Transactions that are not held up for a minute by one that a killed process has left open."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bson.errors import InvalidDocument
from pymongo import AsyncMongoClient
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import DocumentTooLarge, OperationFailure

from eden_memory.failures import refused_for_good
from eden_memory.mongo.orphaned_transactions import Orphans

T = TypeVar("T")
LOCKED_SECONDS = 1.0
"""After so long somebody may have been killed in the middle."""


def unstorable(error: BaseException) -> bool:
    """Whether MongoDB refuses a document itself: too large or invalid, however often it is tried."""
    if isinstance(error, OperationFailure):
        return refused_for_good(error.code, error.details)
    return isinstance(error, DocumentTooLarge | InvalidDocument)


class Transactions:
    """Runs what is to be done at once; conflicts are tried again, as the driver does."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        self._client, self._orphans = client, Orphans(client)

    async def run(self, put: Callable[[AsyncClientSession], Awaitable[T]]) -> T:
        """What `put` returns once it is committed; it may be called several times."""
        begun = time.monotonic()

        async def unlocked(session: AsyncClientSession) -> T:
            if time.monotonic() - begun > LOCKED_SECONDS:
                await self._orphans.end()
            return await put(session)

        async with self._client.start_session() as session:
            return await session.with_transaction(unlocked)
