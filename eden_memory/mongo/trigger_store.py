"""formation-trigger's state in MongoDB: `memory_messages`, `memory_sessions`, `memory_windows`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import ASCENDING, InsertOne, UpdateMany, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from eden_memory.domain.trigger import Session, StoredMessage
from eden_memory.domain.window_request import SessionWrite, StoredWindow
from eden_memory.domain.windows import Limits
from eden_memory.mongo import trigger_documents as documents
from eden_memory.mongo.trigger_documents import Row

DUPLICATE_KEY = 11_000
TOGETHER = 100
"""Sessions whose windows are stored in one transaction; each could have one of its own."""

Operation = InsertOne[Row] | UpdateOne | UpdateMany


class _Changed(Exception):  # noqa: N818 - a direction: read anew
    """Something is no longer as it was read."""


class MongoTriggerStore:
    """`prefix` stands before the collections' names."""

    def __init__(self, database: AsyncDatabase[Row], prefix: str, limits: Limits) -> None:
        self._client = database.client
        self._messages: AsyncCollection[Row] = database[prefix + "messages"]
        self._sessions: AsyncCollection[Row] = database[prefix + "sessions"]
        self._windows: AsyncCollection[Row] = database[prefix + "windows"]
        self._limits = limits

    async def create_indexes(self) -> None:
        """What is looked up: sessions by when they go cold, those with something unpublished; by session."""
        await self._sessions.create_index(
            [("partition", ASCENDING), ("due_at", ASCENDING)],
            partialFilterExpression={"due_at": {"$exists": True}},
        )
        await self._sessions.create_index(
            [("partition", ASCENDING), ("unpublished", ASCENDING), ("_id", ASCENDING)],
            partialFilterExpression={"unpublished": True},
        )
        await self._messages.create_index([("session_id", ASCENDING), ("time", ASCENDING)])
        await self._windows.create_index([("session_id", ASCENDING), ("seq", ASCENDING)])

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        """The sessions, new ones included."""
        wanted = list(ids)
        rows = await self._sessions.find({"_id": {"$in": wanted}}).to_list() if wanted else []
        found = {row["_id"]: row for row in rows}
        return {name: self._session(name, partition, found.get(name)) for name in wanted}

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        """Sessions of a partition that have gone cold or stale by `time`, the longest ago first."""
        cold = {"partition": partition, "due_at": {"$lte": time}}
        rows = await self._sessions.find(cold, {"_id": 1}, sort={"due_at": 1}, limit=most).to_list()
        return [row["_id"] for row in rows]

    async def unpublished(self, partition: int, after: str, most: int) -> list[str]:
        """Sessions of a partition with something in the outbox, by id, from behind the id `after` on."""
        left = {"partition": partition, "unpublished": True, "_id": {"$gt": after}}
        rows = await self._sessions.find(left, {"_id": 1}, sort={"_id": 1}, limit=most).to_list()
        return [row["_id"] for row in rows]

    async def waiting(self, partition: int) -> int:
        """How many sessions of a partition wait for a document."""
        return await self._sessions.count_documents(
            {"partition": partition, "unpublished": True, "waits_for": {"$ne": None}}
        )

    async def messages(self, ids: Iterable[str]) -> dict[str, StoredMessage]:
        """Those of the messages that are known."""
        wanted = list(dict.fromkeys(ids))
        rows = await self._messages.find({"_id": {"$in": wanted}}).to_list() if wanted else []
        return {row["_id"]: documents.message_of(row) for row in rows}

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        """Closed windows with their texts."""
        wanted = list(formation_ids)
        rows = await self._windows.find({"_id": {"$in": wanted}}).to_list() if wanted else []
        return {row["_id"]: documents.window_of(row) for row in rows}

    async def put_messages(self, messages: Iterable[StoredMessage]) -> bool:
        """Store each if it is as it was when it was read; False if one of them was not stored."""
        return await _all_apply(self._messages, [_put_message(one) for one in messages])

    async def put_sessions(self, writes: Sequence[SessionWrite]) -> bool:
        """Store each if nobody else has since it was read, a session together with its windows."""
        alone = [_put_session(one.session) for one in writes if not (one.new or one.requested)]
        if not await _all_apply(self._sessions, alone):
            return False
        together = [one for one in writes if one.new or one.requested]
        for start in range(0, len(together), TOGETHER):
            if not await self._put_together(together[start : start + TOGETHER]):
                return False
        return True

    async def published(self, entries: Sequence[tuple[str, str]]) -> None:
        """Clear (session id, formation id) from the outboxes: they are confirmed."""
        confirmed: dict[str, list[str]] = {}
        for session, name in entries:
            confirmed.setdefault(session, []).append(name)
        pulls: list[Operation] = [
            UpdateOne({"_id": session}, {"$pull": {"outbox": {"formation_id": {"$in": names}}}})
            for session, names in confirmed.items()
        ]
        empty: Row = {"_id": {"$in": list(confirmed)}, "outbox": [], "unpublished": True}
        pulls.append(UpdateMany(empty, {"$unset": {"unpublished": ""}}))
        await self._sessions.bulk_write(pulls, ordered=True)

    async def _put_together(self, writes: Sequence[SessionWrite]) -> bool:
        async def put(transaction: AsyncClientSession) -> None:
            await self._put_all(writes, transaction)

        try:
            async with self._client.start_session() as session:
                await session.with_transaction(put)
        except _Changed:
            return False
        return True

    async def _put_all(self, writes: Sequence[SessionWrite], transaction: AsyncClientSession) -> None:
        new = [window for one in writes for window in one.new]
        steps: list[tuple[AsyncCollection[Row], list[Operation], int]] = [
            (self._sessions, [_put_session(one.session) for one in writes], len(writes)),
            (self._messages, [_claim(one) for one in new if one.messages], sum(len(w.messages) for w in new)),
            (
                self._windows,
                [
                    *(InsertOne(documents.window_row(one)) for one in new),
                    *(_put_request(window) for one in writes for window in one.requested),
                ],
                sum(len(one.new) + len(one.requested) for one in writes),
            ),
        ]
        for collection, operations, count in steps:
            if operations and await _applied(collection, operations, transaction) != count:
                raise _Changed

    def _session(self, name: str, partition: int, row: Row | None) -> Session:
        if row is None:
            return Session(name, partition, self._limits)
        return documents.session_of(row, self._limits)


async def _all_apply(collection: AsyncCollection[Row], operations: Sequence[Operation]) -> bool:
    return not operations or await _applied(collection, operations) == len(operations)


async def _applied(
    collection: AsyncCollection[Row],
    operations: Sequence[Operation],
    transaction: AsyncClientSession | None = None,
) -> int:
    """How many documents the operations found or made; -1 if one was there already."""
    try:
        result = await collection.bulk_write(operations, ordered=False, session=transaction)
    except BulkWriteError as error:
        _only_duplicates(error)
        return -1
    return result.matched_count + result.inserted_count


def _only_duplicates(error: BulkWriteError) -> None:
    details: Mapping[str, Any] = error.details or {}
    failed: list[Mapping[str, Any]] = details.get("writeErrors", [])
    if details.get("writeConcernErrors") or any(one["code"] != DUPLICATE_KEY for one in failed):
        raise error


def _put_message(one: StoredMessage) -> Operation:
    row = documents.message_row(one)
    if one.replaces is None:
        return InsertOne(row)
    unchanged = {"_id": row["_id"], "version": one.replaces, "formation_id": row["formation_id"]}
    return UpdateOne(unchanged, {"$set": row})


def _put_session(one: Session) -> Operation:
    """Its next revision; messages that only joined those that wait are appended, so a write stays small."""
    row, removed = documents.session_row(one)
    waiting, before = one.pending.waiting, list(one.waiting)
    if one.rev == 0:
        return InsertOne({**row, "pending": documents.pending_rows(waiting)})
    change: Row = {"$set": row}
    if before and waiting[: len(before)] == before:
        change["$push"] = {"pending": {"$each": documents.pending_rows(waiting[len(before) :])}}
    else:
        row["pending"] = documents.pending_rows(waiting)
    if removed:
        change["$unset"] = dict.fromkeys(removed, "")
    return UpdateOne({"_id": one.session_id, "rev": one.rev}, change)


def _claim(window: StoredWindow) -> Operation:
    free = {
        "_id": {"$in": [one.message_id for one in window.messages]},
        "session_id": window.session_id,
        "formation_id": None,
        "deleted": False,
    }
    return UpdateMany(free, {"$set": {"formation_id": window.formation_id, "text": None}}, hint={"_id": 1})


def _put_request(one: StoredWindow) -> Operation:
    unwritten = {"_id": one.formation_id, "requested": None}
    return UpdateOne(unwritten, {"$set": {"requested": documents.request_text(one), "names": one.names}})
