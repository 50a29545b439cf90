"""Transactions that a killed process left open: the server keeps them, and what they wrote locked, for a minute."""

import asyncio
import time
from typing import Any

import structlog
from bson.binary import Binary
from pymongo import AsyncMongoClient, ReadPreference
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from eden_memory.mongo.client import APP_NAME

log = structlog.get_logger()
Row = dict[str, Any]


class Orphans:
    """Ends transactions of this program that nobody has gone on with; a process that still lives tries again.

    `older`: seconds after which a transaction counts as left, `every`: how often the server is asked at most.
    """

    def __init__(self, client: AsyncMongoClient[Row], older: float = 3.0, every: float = 1.0) -> None:
        self._admin = client.get_database(
            "admin", read_concern=ReadConcern(), read_preference=ReadPreference.PRIMARY
        )
        self._older, self._every = older, every
        self._asked = -every
        self._asking = asyncio.Lock()

    async def end(self) -> int:
        """How many were ended; 0 where the server does not let us, and its own limit has to be waited for."""
        async with self._asking:
            if time.monotonic() < self._asked + self._every:
                return 0
            self._asked = time.monotonic()
            try:
                return await self._end()
            except OperationFailure as error:
                log.info("open transactions not looked up: they end after a minute", error=str(error)[:200])
                return 0

    async def _end(self) -> int:
        stages: list[Row] = [
            {"$currentOp": {"allUsers": False, "idleSessions": True}},
            {"$match": self._left()},
            {"$project": {"lsid.id": 1}},
        ]
        left = [
            {"id": Binary.from_uuid(row["lsid"]["id"])} async for row in await self._admin.aggregate(stages)
        ]
        if left:
            log.warning("transactions that a killed process left open are ended", count=len(left))
            await self._admin.command("killSessions", left)
        return len(left)

    def _left(self) -> Row:
        return {
            "type": "idleSession",
            "appName": APP_NAME,
            "transaction.timeOpenMicros": {"$gt": int(self._older * 1e6)},
        }
