"""formation-trigger's state in MongoDB: `memory_messages`, `memory_sessions`, `memory_windows`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pymongo import ASCENDING, InsertOne, UpdateMany, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from eden_memory.domain.trigger import OutboxEntry, Session, StoredMessage
from eden_memory.domain.window_request import StoredWindow
from eden_memory.domain.windows import Closed, Limits, Waiting
from schemas.events import FormationRequested

DUPLICATE_KEY = 11_000

Row = dict[str, Any]
Operation = InsertOne[Row] | UpdateOne | UpdateMany


class MongoTriggerStore:
    """`prefix` stands before the collections' names."""

    def __init__(self, database: AsyncDatabase[Row], prefix: str, limits: Limits) -> None:
        self._messages: AsyncCollection[Row] = database[prefix + "messages"]
        self._sessions: AsyncCollection[Row] = database[prefix + "sessions"]
        self._windows: AsyncCollection[Row] = database[prefix + "windows"]
        self._limits = limits

    async def create_indexes(self) -> None:
        """What `due` looks up: sessions by the time they go cold, and those with something unpublished."""
        await self._sessions.create_index([("partition", ASCENDING), ("due_at", ASCENDING)], sparse=True)
        await self._sessions.create_index(
            [("partition", ASCENDING), ("unpublished", ASCENDING)],
            partialFilterExpression={"unpublished": True},
        )
        await self._messages.create_index([("session_id", ASCENDING), ("time", ASCENDING)])

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        """The sessions, new ones included."""
        wanted = list(ids)
        found = (
            {row["_id"]: row async for row in self._sessions.find({"_id": {"$in": wanted}})} if wanted else {}
        )
        return {name: self._session(name, partition, found.get(name)) for name in wanted}

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        """Sessions of a partition that have gone cold or stale by `time`, or have something unpublished."""
        cold = self._sessions.find({"partition": partition, "due_at": {"$lte": time}}, {"_id": 1}, limit=most)
        unpublished = self._sessions.find(
            {"partition": partition, "unpublished": True}, {"_id": 1}, limit=most
        )
        rows = [*await cold.to_list(), *await unpublished.to_list()]
        return list(dict.fromkeys(row["_id"] for row in rows))

    async def messages(self, ids: Iterable[str]) -> dict[str, StoredMessage]:
        """Those of the messages that are known."""
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return {}
        rows = await self._messages.find({"_id": {"$in": wanted}}).to_list()
        return {row["_id"]: _message(row) for row in rows}

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        """Closed windows with their texts."""
        wanted = list(formation_ids)
        if not wanted:
            return {}
        rows = await self._windows.find({"_id": {"$in": wanted}}).to_list()
        return {row["_id"]: _window(row) for row in rows}

    async def put_messages(self, messages: Iterable[StoredMessage]) -> None:
        """Store, unless a higher version is stored; a formation that is borne stays."""
        await self._bulk(self._messages, [_put_message(one) for one in messages])

    async def put_windows(self, windows: Sequence[StoredWindow]) -> None:
        """Store new windows and requests of waiting ones; a request that is there stays, and is taken over."""
        if not windows:
            return
        there = await self._bulk(self._windows, [InsertOne(_window_row(one)) for one in windows])
        again = [windows[index] for index in there]
        waiting = [one for one in again if one.requested is not None]
        await self._bulk(self._windows, [_put_request(one) for one in waiting])
        stored = await self.windows([one.formation_id for one in again])
        for one in again:
            one.requested = stored[one.formation_id].requested

    async def put_sessions(self, sessions: Sequence[Session]) -> bool:
        """Store each if nobody else has since it was read; False if one of them was not stored."""
        operations = [_put_session(one) for one in sessions]
        if not operations:
            return True
        try:
            result = await self._sessions.bulk_write(operations, ordered=False)
        except BulkWriteError as error:
            _only_duplicates(error)
            return False
        return result.matched_count + result.inserted_count == len(sessions)

    async def claim(self, entries: Sequence[tuple[str, OutboxEntry]]) -> None:
        """Let the members of outbox entries bear their formation; their text leaves the message."""
        await self._bulk(self._messages, [_claim(session, entry) for session, entry in entries])
        done = [
            UpdateOne(
                {"_id": session, "outbox.formation_id": entry.formation_id},
                {"$set": {"outbox.$.members": []}},
            )
            for session, entry in entries
        ]
        await self._bulk(self._sessions, done)
        for _, entry in entries:
            entry.members = ()

    async def published(self, entries: Sequence[tuple[str, str]]) -> None:
        """Clear (session id, formation id) from the outboxes: they are confirmed."""
        pulls: list[Operation] = [
            UpdateOne({"_id": session}, {"$pull": {"outbox": {"formation_id": name}}})
            for session, name in entries
        ]
        ids = list(dict.fromkeys(session for session, _ in entries))
        pulls.append(UpdateMany({"_id": {"$in": ids}, "outbox": []}, {"$unset": {"unpublished": ""}}))
        await self._sessions.bulk_write(pulls, ordered=True)

    async def _bulk(self, collection: AsyncCollection[Row], operations: Sequence[Operation]) -> list[int]:
        """All of them, in any order; returns the places of those that met a document that was there already."""
        if not operations:
            return []
        try:
            await collection.bulk_write(operations, ordered=False)
        except BulkWriteError as error:
            return _only_duplicates(error)
        return []

    def _session(self, name: str, partition: int, row: Row | None) -> Session:
        if row is None:
            return Session(name, partition, self._limits)
        return Session(
            session_id=name,
            partition=row["partition"],
            limits=self._limits,
            rev=row["rev"],
            seq=row["seq"],
            waiting=tuple(
                Waiting(one["message_id"], one["version"], _aware(one["time"]), one["tokens"])
                for one in row["pending"]
            ),
            outbox=[
                OutboxEntry(one["formation_id"], one["seq"], tuple(one["members"]))
                for one in row.get("outbox", ())
            ],
            waits_for=row.get("waits_for"),
            controls=list(row["controls"]),
            audiences=[list(one) for one in row["audiences"]],
            users=tuple(row["users"]),
        )


def _only_duplicates(error: BulkWriteError) -> list[int]:
    details: Mapping[str, Any] = error.details or {}
    failed: list[Mapping[str, Any]] = details.get("writeErrors", [])
    if details.get("writeConcernErrors") or any(one["code"] != DUPLICATE_KEY for one in failed):
        raise error
    return [one["index"] for one in failed]


def _put_message(one: StoredMessage) -> Operation:
    fields = asdict(one)
    name = fields.pop("message_id")
    formation = fields.pop("formation_id")
    not_newer = {"_id": name, "version": {"$lte": one.version}, "formation_id": formation}
    return UpdateOne(not_newer, {"$set": fields}, upsert=True)


def _put_session(one: Session) -> Operation:
    new_entries = [asdict(entry) for entry in one.outbox]
    unpublished = bool(new_entries) or one.waits_for is not None
    fields: Row = {
        "rev": one.rev + 1,
        "partition": one.partition,
        "seq": one.seq,
        "pending": [waiting._asdict() for waiting in one.pending.waiting],
        "outbox": new_entries,
        "waits_for": one.waits_for,
        "controls": one.controls,
        "audiences": one.audiences,
        "users": list(one.users),
    }
    removed: Row = {}
    for name, value in (("due_at", one.pending.due()), ("unpublished", unpublished or None)):
        (removed if value is None else fields)[name] = value if value is not None else ""
    if one.rev == 0:
        return InsertOne({"_id": one.session_id, **fields})
    change: Row = {"$set": fields}
    if removed:
        change["$unset"] = removed
    return UpdateOne({"_id": one.session_id, "rev": one.rev}, change)


def _claim(session_id: str, entry: OutboxEntry) -> Operation:
    free = {"_id": {"$in": list(entry.members)}, "session_id": session_id, "formation_id": None}
    return UpdateMany(free, {"$set": {"formation_id": entry.formation_id, "text": None}})


def _put_request(one: StoredWindow) -> Operation:
    assert one.requested is not None
    unwritten = {"_id": one.formation_id, "requested": None}
    return UpdateOne(
        unwritten, {"$set": {"requested": one.requested.json_bytes().decode(), "names": one.names}}
    )


def _window_row(one: StoredWindow) -> Row:
    closed = asdict(one.closed)
    del closed["messages"]
    return {
        "_id": one.formation_id,
        "session_id": one.session_id,
        "seq": one.seq,
        "messages": [
            {
                "message_id": message.message_id,
                "version": message.version,
                "role": message.role,
                "user_id": message.user_id,
                "text": message.text,
                "characters": message.characters,
                "truncated": message.truncated,
                "time": message.time,
            }
            for message in one.messages
        ],
        "closed": closed,
        "traceparent": one.traceparent,
        "names": one.names,
        "requested": one.requested.json_bytes().decode() if one.requested is not None else None,
        "completed_at": None,
        "erase_after": None,
    }


def _window(row: Row) -> StoredWindow:
    closed, requested = row["closed"], row["requested"]
    return StoredWindow(
        formation_id=row["_id"],
        session_id=row["session_id"],
        seq=row["seq"],
        messages=tuple(_window_message(row["session_id"], one) for one in row["messages"]),
        closed=Closed((), closed["because"], _aware(closed["at"]), closed["control_id"], closed["asked_by"]),
        traceparent=row["traceparent"],
        names=row["names"],
        requested=FormationRequested.model_validate_json(requested, extra="ignore") if requested else None,
    )


def _window_message(session_id: str, row: Row) -> StoredMessage:
    fields: Row = {**row, "time": _aware(row["time"])}
    return StoredMessage(session_id=session_id, **fields)


def _message(row: Row) -> StoredMessage:
    fields: Row = {("message_id" if name == "_id" else name): value for name, value in row.items()}
    fields |= {"time": _aware(row["time"]), "formation_id": row.get("formation_id")}
    return StoredMessage(**fields)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
