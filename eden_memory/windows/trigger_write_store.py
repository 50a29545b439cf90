"""Write formation-trigger's batches: the part that one transaction puts into each collection."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo import UpdateMany, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError

from eden_memory.mongo.transactions import Transactions
from eden_memory.schemas.provenance import MessageRef
from eden_memory.windows import trigger_documents as documents
from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.trigger_documents import Row
from eden_memory.windows.window_request import BatchWrite, SessionWrite, StoredWindow

DUPLICATE_KEY = 11_000
TOGETHER = 500
"""Sessions that close windows and are stored in one transaction, at most; each could have one of its own."""
TOGETHER_CHARACTERS = 4_000_000
"""Of the texts that one transaction moves, roughly."""
NOT_FORGOTTEN: Row = {"$ne": True}
"""Forgetting may have marked a message since it was read."""
TAKEN: Row = {"text": None}
LEFT_OUT: Row = {**TAKEN, "opted_out": True}
"""Fields of a message that a window takes, and of one that it leaves out because somebody is switched off."""

Operation = UpdateOne | UpdateMany


class _Changed(Exception):  # noqa: N818 - a direction: read again
    """A document is no longer as it was read."""


@dataclass(slots=True)
class SessionsTogether:
    """Sessions and messages that one transaction of a batch stores."""

    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    sessions: list[Session] = field(default_factory=list[Session])
    new: list[StoredWindow] = field(default_factory=list[StoredWindow])
    requested: list[StoredWindow] = field(default_factory=list[StoredWindow])
    characters: int = 0

    def add(self, session_write: SessionWrite) -> None:
        """Add a session that closed windows, or whose windows can be requested now."""
        self.messages += session_write.messages
        self.sessions.append(session_write.session)
        self.new += session_write.new
        self.requested += session_write.requested
        self.characters += sum(
            message.characters
            for window in (*session_write.new, *session_write.requested)
            for message in (*window.messages, *window.before)
        )

    def alone(self) -> list["SessionsTogether"]:
        """Return each session on its own, behind the messages of sessions that are not written."""
        parts = {session.session_id: SessionsTogether(sessions=[session]) for session in self.sessions}
        rest = SessionsTogether()
        for message in self.messages:
            parts.get(message.session_id or "", rest).messages.append(message)
        for window in self.new:
            parts[window.session_id].new.append(window)
        for window in self.requested:
            parts[window.session_id].requested.append(window)
        return [*([rest] if rest.messages else []), *parts.values()]


@dataclass(slots=True)
class CollectionWrites:
    """The part of a transaction that goes to one collection."""

    collection: AsyncCollection[Row]
    new: list[Row] = field(default_factory=list[Row])
    updates: list[Operation] = field(default_factory=list[Operation])
    matched: int = 0
    """How many documents the updates have to match."""
    besides: list[Operation] = field(default_factory=list[Operation])
    """Updates that may match nothing, written after the others."""

    def update(self, operation: Operation, matched: int = 1) -> None:
        """Add an update."""
        self.updates.append(operation)
        self.matched += matched

    async def put(self, transaction: AsyncClientSession) -> None:
        """Write; _Changed if a new document is there already, or an update matches less than it should."""
        try:
            if self.new:
                await self.collection.insert_many(self.new, ordered=False, session=transaction)
            if self.updates:
                done = await self.collection.bulk_write(self.updates, ordered=False, session=transaction)
                if done.matched_count != self.matched:
                    raise _Changed
            if self.besides:
                await self.collection.bulk_write(self.besides, ordered=False, session=transaction)
        except BulkWriteError as error:
            _only_duplicates(error)
            raise _Changed from error


def transactions_of(write: BatchWrite) -> Iterator[SessionsTogether]:
    """Yield what one transaction each stores: all that closes nothing; then sessions that close windows."""
    if write.messages or write.sessions:
        yield SessionsTogether(write.messages, write.sessions)
    part = SessionsTogether()
    for session_write in write.closing:
        part.add(session_write)
        if len(part.sessions) >= TOGETHER or part.characters >= TOGETHER_CHARACTERS:
            yield part
            part = SessionsTogether()
    if part.sessions:
        yield part


async def write_together(transactions: Transactions, writes: Sequence[CollectionWrites]) -> bool:
    """Write in one transaction; False if a document is no longer as it was read."""

    async def put(transaction: AsyncClientSession) -> None:
        for collection in writes:
            await collection.put(transaction)

    try:
        await transactions.run(put)
    except _Changed:
        return False
    return True


def _only_duplicates(error: BulkWriteError) -> None:
    details: Mapping[str, Any] = error.details or {}
    failed: list[Mapping[str, Any]] = details.get("writeErrors", [])
    if details.get("writeConcernErrors") or any(failure["code"] != DUPLICATE_KEY for failure in failed):
        raise error


def partition_writes(
    partitions: AsyncCollection[Row], partition: int, seen: int, last: int
) -> CollectionWrites:
    """Move a partition's place on from where it was seen."""
    writes = CollectionWrites(partitions)
    if seen == 0:
        writes.new.append({"_id": partition, "place": last})
    else:
        writes.update(UpdateOne({"_id": partition, "place": seen}, {"$set": {"place": last}}))
    return writes


def message_writes(messages: AsyncCollection[Row], part: SessionsTogether) -> CollectionWrites:
    """Write messages that the batch touched or a window took; one that is new and taken is written as taken."""
    writes, rows = CollectionWrites(messages), dict[str, Row]()
    for message in part.messages:
        row = documents.message_row(message)
        if message.replaces is None:
            rows[message.message_id] = row
        else:
            version, formation = message.replaces
            unchanged: Row = {"_id": row["_id"], "version": version, "formation_id": formation}
            if not message.forgotten:
                unchanged["forgotten"] = NOT_FORGOTTEN
            writes.update(UpdateOne(unchanged, {"$set": row}))
    for window in part.new:
        _claim(writes, rows, window, window.messages, TAKEN)
        _claim(writes, rows, window, window.left_out, LEFT_OUT)
    for window in part.requested:
        if window.left_out:
            left_out = [reference.message_id for reference in window.left_out]
            taken: Row = {"_id": {"$in": left_out}, "formation_id": window.formation_id, "deleted": False}
            writes.besides.append(UpdateMany(taken, {"$set": LEFT_OUT}))
    writes.new.extend(rows.values())
    return writes


def session_writes(sessions: AsyncCollection[Row], part: SessionsTogether) -> CollectionWrites:
    """Write the documents of sessions, new or changed."""
    writes = CollectionWrites(sessions)
    for session in part.sessions:
        row, removed = documents.session_row(session)
        if not session.stored:
            writes.new.append(row)
            continue
        change: Row = {"$set": row}
        if removed:
            change["$unset"] = dict.fromkeys(removed, "")
        writes.update(UpdateOne({"_id": session.session_id}, change))
    return writes


def window_writes(windows: AsyncCollection[Row], part: SessionsTogether) -> CollectionWrites:
    """Write windows that were closed, and requests for those that waited."""
    writes = CollectionWrites(windows, [documents.window_row(window) for window in part.new])
    for window in part.requested:
        writes.update(_put_request(window))
    return writes


def _claim(
    writes: CollectionWrites,
    rows: Mapping[str, Row],
    window: StoredWindow,
    members: Sequence[StoredMessage | MessageRef],
    become: Row,
) -> None:
    """Let a window take messages; those that are new stand in `rows`."""
    become = {"formation_id": window.formation_id, **become}
    stored: list[str] = []
    for member in members:
        if (row := rows.get(member.message_id)) is None:
            stored.append(member.message_id)
        else:
            row.update(become)
    if stored:
        free = {
            "_id": {"$in": stored},
            "session_id": window.session_id,
            "formation_id": None,
            "deleted": False,
            "forgotten": NOT_FORGOTTEN,
        }
        writes.update(UpdateMany(free, {"$set": become}, hint={"_id": 1}), len(stored))


def _put_request(window: StoredWindow) -> UpdateOne:
    unwritten = {"_id": window.formation_id, "requested": None}
    change: Row = {"requested": documents.request_text(window), "names": window.names}
    change["before"] = documents.member_rows(window.before)
    if window.left_out:
        change["left_out"] = documents.left_out_rows(window)
    change["erased_at"] = documents.erased_at(window)
    change |= documents.in_flight_row(window)
    left_out = [ref.message_id for ref in window.left_out]
    remove: Row = {"$pull": {"messages": {"message_id": {"$in": left_out}}}} if left_out else {}
    return UpdateOne(unwritten, {"$set": change, **remove})
