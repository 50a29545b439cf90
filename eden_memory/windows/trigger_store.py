"""formation-trigger's state in MongoDB: messages, sessions, windows, and how far each partition is."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from bson.errors import InvalidDocument
from pymongo import ASCENDING, UpdateMany, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError, PyMongoError

from eden_memory.mongo.shared_reads import SharedReads
from eden_memory.mongo.transactions import Transactions, unstorable
from eden_memory.names import Names
from eden_memory.windows import trigger_documents as documents
from eden_memory.windows.due_session_store import WatermarkReads
from eden_memory.windows.pending_store import PENDING
from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.trigger_documents import Row
from eden_memory.windows.window_request import BatchWrite, SessionWrite, StoredWindow
from eden_memory.windows.window_rule import Limits
from eden_memory.windows.window_text_store import erase_window_texts

log = structlog.get_logger()
DUPLICATE_KEY = 11_000
TOGETHER = 500
"""Sessions that close windows and are stored in one transaction, at most; each could have one of its own."""
TOGETHER_CHARACTERS = 4_000_000
"""Of the texts that one transaction moves, roughly."""
CLAUSES = 200
"""Sessions whose waiting messages one query looks for from a place of their own on."""

NOT_FORGOTTEN: Row = {"$ne": True}
"""Forgetting may have marked a message since it was read."""

Operation = UpdateOne | UpdateMany


class _Changed(Exception):  # noqa: N818 - a direction: read anew
    """Something is no longer as it was read."""


@dataclass(slots=True)
class SessionsTogether:
    """One transaction of a batch."""

    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    sessions: list[Session] = field(default_factory=list[Session])
    new: list[StoredWindow] = field(default_factory=list[StoredWindow])
    requested: list[StoredWindow] = field(default_factory=list[StoredWindow])
    characters: int = 0

    def add(self, one: SessionWrite) -> None:
        """A session that closed windows, or whose windows can be asked for now."""
        self.messages += one.messages
        self.sessions.append(one.session)
        self.new += one.new
        self.requested += one.requested
        self.characters += sum(message.characters for window in one.new for message in window.messages)

    def alone(self) -> list["SessionsTogether"]:
        """Each session on its own, behind the messages of sessions that are not written."""
        parts = {one.session_id: SessionsTogether(sessions=[one]) for one in self.sessions}
        rest = SessionsTogether()
        for message in self.messages:
            parts.get(message.session_id or "", rest).messages.append(message)
        for window in self.new:
            parts[window.session_id].new.append(window)
        for window in self.requested:
            parts[window.session_id].requested.append(window)
        return [*([rest] if rest.messages else []), *parts.values()]


@dataclass(slots=True)
class Writes:
    """What one collection gets in a transaction: new documents, updates, and how many those are to find."""

    new: list[Row] = field(default_factory=list[Row])
    updates: list[Operation] = field(default_factory=list[Operation])
    found: int = 0

    def update(self, operation: Operation, found: int = 1) -> None:
        """One more update."""
        self.updates.append(operation)
        self.found += found


@dataclass(frozen=True, slots=True)
class Step:
    """One collection's part of a transaction."""

    collection: AsyncCollection[Row]
    writes: Writes

    async def take(self, transaction: AsyncClientSession) -> None:
        """Write; _Changed if a new document is there already, or an update found less than it should."""
        new, updates = self.writes.new, self.writes.updates
        try:
            if new:
                await self.collection.insert_many(new, ordered=False, session=transaction)
            if updates:
                done = await self.collection.bulk_write(updates, ordered=False, session=transaction)
                if done.matched_count != self.writes.found:
                    raise _Changed
        except BulkWriteError as error:
            _only_duplicates(error)
            raise _Changed from error


class MongoTriggerStore:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, limits: Limits) -> None:
        self._transactions = Transactions(database.client)
        self._messages: AsyncCollection[Row] = database[names["messages"]]
        self._sessions: AsyncCollection[Row] = database[names["sessions"]]
        self._windows: AsyncCollection[Row] = database[names["windows"]]
        self._partitions: AsyncCollection[Row] = database[names["partitions"]]
        self._limits = limits
        self._reads = WatermarkReads(self._sessions)
        self._window_rows = SharedReads(self._read_windows)

    async def create_indexes(self) -> None:
        """What is looked up: sessions by when they go cold, those with something unpublished; what waits; what is
        forgotten."""
        await self._sessions.create_index(
            [("partition", ASCENDING), ("due_at", ASCENDING)],
            partialFilterExpression={"due_at": {"$exists": True}},
        )
        await self._sessions.create_index(
            [("partition", ASCENDING), ("unpublished", ASCENDING), ("_id", ASCENDING)],
            partialFilterExpression={"unpublished": True},
        )
        await self._messages.create_index([("session_id", ASCENDING), ("place", ASCENDING)])
        await self._messages.create_index([("missing", ASCENDING)], partialFilterExpression={"missing": True})
        await self._messages.create_index([("misread", ASCENDING)], partialFilterExpression={"misread": True})
        await self._messages.create_index(
            [("formation_id", ASCENDING), ("place", ASCENDING)],
            name="pending",
            partialFilterExpression=PENDING,
        )
        await self._messages.create_index([("session_id", ASCENDING), ("_id", ASCENDING)])
        await self._messages.create_index([("user_id", ASCENDING), ("_id", ASCENDING)])
        await self._windows.create_index([("session_id", ASCENDING), ("seq", ASCENDING)])
        await self._windows.create_index([("messages.message_id", ASCENDING)])
        await self._windows.create_index(
            [("erase_after", ASCENDING)], partialFilterExpression={"erased_at": None}
        )
        await self._partitions.create_index("_id")  # so that it is there before a transaction writes to it

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        """The sessions with the messages that wait in them; one that has no document is of `partition`.

        A session whose document cannot be read is left out.
        """
        wanted = list(ids)
        rows = await self._sessions.find({"_id": {"$in": wanted}}).to_list() if wanted else []
        found = {row["_id"]: row for row in rows}
        waiting = await self._waiting(
            {name: found[name].get("formed_to", 0) if name in found else 0 for name in wanted}
        )
        sessions: dict[str, Session] = {}
        for name in wanted:
            try:
                sessions[name] = self._session(name, partition, found.get(name), waiting[name])
            except (KeyError, TypeError, ValueError) as error:
                log.error("a session cannot be read", session=name, error=type(error).__name__)
        return sessions

    async def _waiting(self, formed_to: Mapping[str, int]) -> Mapping[str, list[StoredMessage]]:
        """What waits in sessions, each in order: messages with a place behind the last window's."""
        unformed = [name for name, place in formed_to.items() if place == 0]
        formed = [(name, place) for name, place in formed_to.items() if place]
        clauses: list[Row] = [{"session_id": {"$in": unformed}, "place": {"$gt": 0}}] if unformed else []
        for start in range(0, len(formed), CLAUSES):
            some = formed[start : start + CLAUSES]
            clauses.append({"$or": [{"session_id": name, "place": {"$gt": place}} for name, place in some]})
        found: defaultdict[str, list[StoredMessage]] = defaultdict(list)
        for clause in clauses:
            for row in await self._messages.find(clause).to_list():
                if row["formation_id"] is None:
                    found[row["session_id"]].append(documents.message_of(row))
        for messages in found.values():
            messages.sort(key=_place)
        return found

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        """Sessions of a partition that have gone cold or stale by `time`, the longest ago first."""
        return await self._reads.due(partition, time, most)

    async def unpublished(self, partition: int, after: str, most: int) -> list[str]:
        """Sessions of a partition with something in the outbox, by id, from behind the id `after` on."""
        return await self._reads.unpublished(partition, after, most)

    async def waiting(self, partition: int) -> int:
        """How many sessions of a partition wait for a document."""
        return await self._reads.waiting(partition)

    async def messages(self, ids: Iterable[str]) -> dict[str, StoredMessage]:
        """Those of the messages that are known."""
        wanted = list(dict.fromkeys(ids))
        rows = await self._messages.find({"_id": {"$in": wanted}}).to_list() if wanted else []
        return {row["_id"]: documents.message_of(row) for row in rows}

    async def authors_among(
        self, session_id: str, users: Collection[str], besides: Collection[str]
    ) -> set[str]:
        """Which of the users wrote in a session, messages `besides` left out."""
        wanted: Row = {
            "session_id": session_id,
            "user_id": {"$in": list(users)},
            "_id": {"$nin": list(besides)},
        }
        return set(await self._messages.distinct("user_id", wanted))

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        """Closed windows whose texts are still kept."""
        rows = await self._window_rows.get(formation_ids)
        return {name: documents.window_of(row) for name, row in rows.items() if _kept(row)}

    async def _read_windows(self, formation_ids: list[str]) -> dict[str, Row]:
        """Stages that read windows at the same moment share a query."""
        found = await self._windows.find({"_id": {"$in": formation_ids}}).to_list()
        return {row["_id"]: row for row in found}

    async def place(self, partition: int) -> int:
        """The last place given to a message of a partition."""
        row = await self._partitions.find_one({"_id": partition})
        return 0 if row is None else int(row["place"])

    async def put(self, write: BatchWrite) -> int | None:
        """Store a batch in transactions that each move the partition's place on; its last place now, or None."""
        await erase_window_texts(self._windows, write.forgotten)
        seen: int | None = write.seen
        for part in _parts(write):
            if seen is not None:
                seen = await self._part(write, seen, part)
        return seen

    async def _part(self, write: BatchWrite, seen: int, part: SessionsTogether) -> int | None:
        """Store a part; if one of its documents cannot be stored, its sessions each on their own."""
        place = max(seen, write.last) + 1
        try:
            stored = await self._transaction(_fence(write.partition, seen, place), part)
            return place if stored else None
        except (PyMongoError, InvalidDocument) as error:
            if not unstorable(error):
                raise
            alone = part.alone()
            if len(alone) == 1:
                if not part.sessions:
                    raise
                write.failed.append(part.sessions[0].session_id)
                log.error("a session cannot be stored", session=write.failed[-1], error=type(error).__name__)
                return seen
        reached: int | None = seen
        for one in alone:
            if reached is not None:
                reached = await self._part(write, reached, one)
        return reached

    async def published(self, entries: Sequence[tuple[str, str]]) -> None:
        """Clear (session id, formation id) from the outboxes: they are confirmed."""
        confirmed: dict[str, list[str]] = {}
        for session, name in entries:
            confirmed.setdefault(session, []).append(name)
        names = [name for _, name in entries]
        alone: Row = {"_id": {"$in": list(confirmed)}, "outbox": {"$size": 1}}
        alone["outbox.formation_id"] = {"$in": names}
        cleared = await self._sessions.update_many(
            alone, {"$set": {"outbox": []}, "$unset": {"unpublished": ""}}
        )
        if cleared.modified_count == len(confirmed):
            return
        pulls: list[Operation] = [
            UpdateOne({"_id": session}, {"$pull": {"outbox": {"formation_id": {"$in": of}}}})
            for session, of in confirmed.items()
        ]
        empty: Row = {"_id": {"$in": list(confirmed)}, "outbox": [], "unpublished": True}
        pulls.append(UpdateMany(empty, {"$unset": {"unpublished": ""}}))
        await self._sessions.bulk_write(pulls, ordered=True)

    async def _transaction(self, fence: Writes, part: SessionsTogether) -> bool:
        """One part of a batch, if the partition is where it was seen."""
        steps = (
            Step(self._partitions, fence),
            Step(self._messages, _messages(part)),
            Step(self._sessions, _sessions(part)),
            Step(self._windows, _windows(part)),
        )

        async def put(transaction: AsyncClientSession) -> None:
            for step in steps:
                await step.take(transaction)

        try:
            await self._transactions.run(put)
        except _Changed:
            return False
        return True

    def _session(
        self, name: str, partition: int, row: Row | None, waiting: Sequence[StoredMessage]
    ) -> Session:
        if row is None:
            return Session(name, partition, self._limits, held={one.message_id: one for one in waiting})
        return documents.session_of(row, self._limits, waiting)


def _parts(write: BatchWrite) -> Iterator[SessionsTogether]:
    """What is stored in one transaction each: all that closes nothing; then sessions that close windows."""
    if write.messages or write.sessions:
        yield SessionsTogether(write.messages, write.sessions)
    part = SessionsTogether()
    for one in write.closing:
        part.add(one)
        if len(part.sessions) >= TOGETHER or part.characters >= TOGETHER_CHARACTERS:
            yield part
            part = SessionsTogether()
    if part.sessions:
        yield part


def _only_duplicates(error: BulkWriteError) -> None:
    details: Mapping[str, Any] = error.details or {}
    failed: list[Mapping[str, Any]] = details.get("writeErrors", [])
    if details.get("writeConcernErrors") or any(one["code"] != DUPLICATE_KEY for one in failed):
        raise error


def _fence(partition: int, seen: int, last: int) -> Writes:
    if seen == 0:
        return Writes([{"_id": partition, "place": last}])
    return Writes([], [UpdateOne({"_id": partition, "place": seen}, {"$set": {"place": last}})], 1)


def _messages(part: SessionsTogether) -> Writes:
    """What the batch touched, then what windows took; a new message that a window took is written as taken."""
    writes, rows = Writes(), dict[str, Row]()
    for one in part.messages:
        row = documents.message_row(one)
        if one.replaces is None:
            rows[one.message_id] = row
        else:
            version, formation = one.replaces
            unchanged: Row = {"_id": row["_id"], "version": version, "formation_id": formation}
            if not one.forgotten:
                unchanged["forgotten"] = NOT_FORGOTTEN
            writes.update(UpdateOne(unchanged, {"$set": row}))
    for window in part.new:
        members: list[str] = []
        for one in (*window.messages, *window.left_out):
            if (row := rows.get(one.message_id)) is None:
                members.append(one.message_id)
            else:
                row["formation_id"], row["text"] = window.formation_id, None
        if members:
            writes.update(_claim(window, members), len(members))
    writes.new.extend(rows.values())
    return writes


def _sessions(part: SessionsTogether) -> Writes:
    writes = Writes()
    for one in part.sessions:
        row, removed = documents.session_row(one)
        if not one.stored:
            writes.new.append(row)
            continue
        change: Row = {"$set": row}
        if removed:
            change["$unset"] = dict.fromkeys(removed, "")
        writes.update(UpdateOne({"_id": one.session_id}, change))
    return writes


def _windows(part: SessionsTogether) -> Writes:
    writes = Writes([documents.window_row(one) for one in part.new])
    for one in part.requested:
        writes.update(_put_request(one))
    return writes


def _claim(window: StoredWindow, members: Sequence[str]) -> UpdateMany:
    free = {
        "_id": {"$in": members},
        "session_id": window.session_id,
        "formation_id": None,
        "deleted": False,
        "forgotten": NOT_FORGOTTEN,
    }
    return UpdateMany(free, {"$set": {"formation_id": window.formation_id, "text": None}}, hint={"_id": 1})


def _put_request(one: StoredWindow) -> UpdateOne:
    unwritten = {"_id": one.formation_id, "requested": None}
    change: Row = {"requested": documents.request_text(one), "names": one.names}
    if one.left_out:
        change["left_out"] = documents.left_out_rows(one)
    change["erased_at"] = documents.erased_at(one)
    left_out = [ref.message_id for ref in one.left_out]
    remove: Row = {"$pull": {"messages": {"message_id": {"$in": left_out}}}} if left_out else {}
    return UpdateOne(unwritten, {"$set": change, **remove})


def _kept(row: Row) -> bool:
    """Whether a window still has its texts, or never had any."""
    return row["erased_at"] is None or not row["messages"]


def _place(one: StoredMessage) -> int:
    return one.place or 0
