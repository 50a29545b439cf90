"""Transactions that are not delayed by those of a killed process, which the server ends after a minute."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from bson.binary import Binary
from bson.errors import InvalidDocument
from pymongo import AsyncMongoClient, ReadPreference
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import DocumentTooLarge, OperationFailure
from pymongo.read_concern import ReadConcern

from eden_memory.errors import describe, refused_for_good
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.client import APP_NAME, CLIENT

log = LibraryLogger()
T = TypeVar("T")
Row = dict[str, Any]
LOCKED_SECONDS = 1.0
"""Seconds of conflicts after which a process may have been killed in the middle of a transaction."""


def unstorable(error: BaseException) -> bool:
    """Whether MongoDB refuses a document itself: too large or invalid, however often it is tried."""
    if isinstance(error, OperationFailure):
        return refused_for_good(error.code, error.details)
    return isinstance(error, DocumentTooLarge | InvalidDocument)


class Transactions:
    """Runs an operation at once; conflicts are retried, as the driver does."""

    def __init__(self, client: AsyncMongoClient[dict[str, Any]]) -> None:
        self._client, self._orphans = client, Orphans(client)

    async def run(self, put: Callable[[AsyncClientSession], Awaitable[T]]) -> T:
        """Return the result of `put` once it is committed; `put` may be called several times."""
        begun = time.monotonic()

        async def unlocked(session: AsyncClientSession) -> T:
            if time.monotonic() - begun > LOCKED_SECONDS:
                await self._orphans.end()
            return await put(session)

        async with self._client.start_session() as session:
            return await session.with_transaction(unlocked)


class Orphans:
    """Ends transactions of this program whose client has no connection left, at two looks one after the other.

    A client that lives, however slow, has one: its transactions are left alone. `older`: seconds after which a
    transaction is looked at, `every`: how often the server is asked at most.
    """

    def __init__(self, client: AsyncMongoClient[Row], older: float = 3.0, every: float = 1.0) -> None:
        self._admin = client.get_database(
            "admin", read_concern=ReadConcern(), read_preference=ReadPreference.PRIMARY
        )
        self._older, self._every = older, every
        self._asked = -every
        self._asking = asyncio.Lock()
        self._seen = set[Any]()
        """Sessions without an owner at the last check."""

    async def end(self) -> int:
        """Return how many were ended; 0 where the server does not let us, and its own limit has to be waited for."""
        async with self._asking:
            if time.monotonic() < self._asked + self._every:
                return 0
            self._asked = time.monotonic()
            try:
                return await self._end()
            except OperationFailure as error:
                log.info("open transactions not looked up: they end after a minute", error=describe(error))
                return 0

    async def _end(self) -> int:
        stages: list[Row] = [
            {"$currentOp": {"allUsers": False, "idleSessions": True, "idleConnections": True}},
            {"$match": {"appName": APP_NAME}},
            {"$project": {"type": 1, "lsid.id": 1, "clientMetadata.platform": 1, "transaction": 1}},
        ]
        rows = [row async for row in await self._admin.aggregate(stages)]
        ownerless = _ownerless(rows, self._older)
        left, self._seen = ownerless & self._seen, ownerless
        if left:
            log.warning("transactions that a killed process left open are ended", count=len(left))
            await self._admin.command("killSessions", [{"id": Binary.from_uuid(session)} for session in left])
        return len(left)


def _ownerless(rows: Sequence[Mapping[str, Any]], older: float) -> set[Any]:
    """Return the sessions with a transaction open for longer whose client, known by name, has no connection."""
    connected = {_client(row) for row in rows if row["type"] != "idleSession"}
    return {
        row["lsid"]["id"]
        for row in rows
        if row["type"] == "idleSession"
        and row.get("transaction", {}).get("timeOpenMicros", 0) > older * 1e6
        and (client := _client(row)) is not None
        and client not in connected
    }


def _client(row: Mapping[str, Any]) -> str | None:
    """Return the client's name; None if it gives none."""
    _, named, name = row.get("clientMetadata", {}).get("platform", "").rpartition(CLIENT)
    return name if named else None


K = TypeVar("K")
V = TypeVar("V")
MOST = 1_000


class _Round(Generic[K, V]):
    """Keys that are looked up together, and the values found."""

    def __init__(self) -> None:
        self.keys: dict[K, None] = {}
        self.found: asyncio.Future[Mapping[K, V]] = asyncio.get_running_loop().create_future()
        self.found.add_done_callback(_heard)


class SharedReads(Generic[K, V]):
    """`read` finds those of some keys (at most 1,000) that exist; it always begins after the keys were asked for."""

    def __init__(self, read: Callable[[list[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._read = read
        self._next: _Round[K, V] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def get(self, keys: Iterable[K]) -> dict[K, V]:
        """Return the values found of these keys; errors of the read are raised."""
        asked = dict.fromkeys(keys)
        if not asked:
            return {}
        if self._next is None:
            self._next = _Round()
        together = self._next
        together.keys.update(asked)
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._work())
        found = await asyncio.shield(together.found)  # the error concerns the other waiting tasks, too
        return {key: found[key] for key in asked if key in found}

    async def _work(self) -> None:
        while (together := self._next) is not None:
            self._next = None
            try:
                together.found.set_result(await self._all(list(together.keys)))
            except Exception as error:  # noqa: BLE001 - handed to all who asked
                together.found.set_exception(error)

    async def _all(self, keys: list[K]) -> Mapping[K, V]:
        found: dict[K, V] = {}
        for start in range(0, len(keys), MOST):
            found.update(await self._read(keys[start : start + MOST]))
        return found


def shared_writes(outcomes: AsyncCollection[dict[str, Any]]) -> SharedReads[str, bool]:
    """Return which of some `writes` have stored outcomes."""

    async def read(writes: list[str]) -> dict[str, bool]:
        rows = await outcomes.find({"writes": {"$in": writes}}, {"writes": 1}).to_list()
        return {name: True for row in rows for name in row["writes"]}

    return SharedReads(read)


def _heard(future: "asyncio.Future[Any]") -> None:
    """Mark an error as seen: there may be no task left that waits for it."""
    if not future.cancelled():
        future.exception()
