"""Inserts of many tasks, sent together while the previous group is on its way: one journal flush for all of them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from bson.errors import InvalidDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DocumentTooLarge, WriteConcernError, WriteError

from eden_memory.errors import describe
from eden_memory.mongo.refusals import DUPLICATE_KEY

MOST = 500
Document = dict[str, Any]
_Waiting = tuple[Document, "asyncio.Future[str | None]"]


class GroupedInserts:
    """Groups only the round trip: each document is inserted, or not, on its own."""

    def __init__(self, collection: AsyncCollection[Document]) -> None:
        self._collection = collection
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def insert(self, document: Document) -> str | None:
        """Insert a document; if a unique key is taken, return that key. Other failures are raised."""
        return await self._begin(document)

    async def insert_all(self, documents: Sequence[Document]) -> list[bool]:
        """Insert them; which of them were: the others are to be inserted again, to see what is wrong."""
        done = await asyncio.gather(*map(self._begin, documents), return_exceptions=True)
        return [taken is None for taken in done]

    def _begin(self, document: Document) -> "asyncio.Future[str | None]":
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((document, future))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())
        return future

    async def _send_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            try:
                await self._send(group)
            except (InvalidDocument, DocumentTooLarge) as error:
                await self._send_alone(group, error)
            except Exception as error:  # noqa: BLE001 - handed to those who wait
                _refuse(group, error)

    async def _send_alone(self, group: Sequence[_Waiting], error: Exception) -> None:
        """A document that cannot be written refuses the whole group, so it is retried alone."""
        if len(group) == 1:
            _refuse(group, error)
            return
        for waiting in group:
            try:
                await self._send([waiting])
            except Exception as alone:  # noqa: BLE001 - handed to the task that waits
                _refuse([waiting], alone)

    async def _send(self, group: Sequence[_Waiting]) -> None:
        wrong: dict[int, Document] = {}
        try:
            await self._collection.insert_many([document for document, _ in group], ordered=False)
        except BulkWriteError as error:
            details: Any = error.details
            if details["writeConcernErrors"]:
                raise WriteConcernError(describe(error)) from error
            wrong = {detail["index"]: detail for detail in details["writeErrors"]}
        for index, (_, future) in enumerate(group):
            if not future.done():
                _settle(future, wrong.get(index))


def _settle(future: "asyncio.Future[str | None]", wrong: Document | None) -> None:
    if wrong is None:
        future.set_result(None)
    elif wrong["code"] == DUPLICATE_KEY:
        future.set_result(", ".join(wrong.get("keyPattern", ["a unique key"])))
    else:
        future.set_exception(WriteError(str(wrong["errmsg"]), wrong["code"], wrong))


def _refuse(group: Sequence[_Waiting], error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)
