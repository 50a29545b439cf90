"""Convert formation-trigger's state to documents and back, and write a batch in one transaction."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from pymongo import UpdateMany, UpdateOne
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError

from eden_memory.directory.participants import AudienceDelta, Audiences
from eden_memory.mongo.documents import stored
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.mongo.transactions import Transactions
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.provenance import MessageRef
from eden_memory.schemas.scopes import LISTED_USERS
from eden_memory.windows.formation_requests import (
    BatchWrite,
    EarlierWindow,
    SessionWrite,
    StoredWindow,
    WindowAudience,
)
from eden_memory.windows.session_state import Edit, PendingDeletion, Session, StoredMessage, UnpublishedWindow
from eden_memory.windows.window_rule import Closed, Control, Limits

Row = dict[str, Any]


def message_row(message: StoredMessage) -> Row:
    """Return the document of `memory_messages`, field by field: this runs for every message."""
    return {
        "_id": message.message_id,
        "session_id": message.session_id,
        "version": message.version,
        "time": message.time,
        "role": message.role,
        "user_id": message.user_id,
        "text": message.text,
        "characters": message.characters,
        "truncated": message.truncated,
        "formation_id": message.formation_id,
        "deleted": message.deleted,
        "changed_after_formation": message.changed_after_formation,
        "opted_out": message.opted_out,
        "forgotten": message.forgotten,
        "place": message.place,
        "since": message.since,
        "created_at": message.created_at,
        "edited_at": message.edited_at,
        "missing": message.missing,
        "mapping": message.mapping,
        "misread": message.misread,
        "same": message.same,
        **({"alias_of": message.alias_of} if message.alias_of is not None else {}),
        "digest": message.digest,
        "edit": None if message.edit is None else message.edit._asdict(),
        "formed_again": list(message.formed_again),
    }


def message_of(row: Row) -> StoredMessage:
    """Return a message as stored."""
    return StoredMessage(
        message_id=row["_id"],
        session_id=row["session_id"],
        version=row["version"],
        time=_aware(row["time"]),
        role=row["role"],
        user_id=row["user_id"],
        text=row["text"],
        characters=row["characters"],
        truncated=row["truncated"],
        formation_id=row["formation_id"],
        deleted=row["deleted"],
        changed_after_formation=row["changed_after_formation"],
        opted_out=row["opted_out"],
        forgotten=row["forgotten"],
        place=row["place"],
        since=_moment(row["since"]),
        created_at=_moment(row["created_at"]),
        edited_at=_moment(row["edited_at"]),
        missing=row["missing"],
        mapping=row["mapping"],
        misread=row["misread"],
        same=row.get("same"),
        alias_of=row.get("alias_of"),
        digest=row["digest"],
        edit=None if row["edit"] is None else Edit(**row["edit"]),
        formed_again=tuple(map(_aware, row["formed_again"])),
    )


def session_row(session: Session) -> tuple[Row, list[str]]:
    """Return the document of `memory_sessions`, and the fields that it loses."""
    row: Row = {
        "_id": session.session_id,
        "partition": session.partition,
        "seq": session.seq,
        "formed_to": session.formed_to,
        "outbox": [
            {"formation_id": entry.formation_id, "seq": entry.seq, "requested": entry.requested}
            for entry in session.outbox
        ],
        "waits_for": session.waits_for,
        "controls": session.controls,
        "audience_changes": [_change_row(change) for change in session.audiences.changes],
        "users": list(session.users),
    }
    due = session.due()
    unpublished = bool(session.outbox) or any(deletion.asked for deletion in session.deletions)
    if session.deletions:
        row["deletions"] = [asdict(deletion) for deletion in session.deletions]
    if due is not None:
        row["due_at"] = due
    if unpublished:
        row["unpublished"] = True
    if session.late:
        row["late"] = True
    if session.last_control is not None:
        row["last_control"] = session.last_control._asdict()
    return row, [name for name in ("due_at", "unpublished", "late", "deletions") if name not in row]


def _change_row(change: AudienceDelta) -> Row:
    if change.large is not None:
        return {"large": change.large.model_dump()}
    return {name: list(users) for name, users in (("joined", change.joined), ("left", change.left)) if users}


def session_of(row: Row, limits: Limits, waiting: Iterable[StoredMessage]) -> Session:
    """Return a session as stored, with the messages that wait in it, in order."""
    due = row.get("due_at")
    return Session(
        session_id=row["_id"],
        partition=row["partition"],
        limits=limits,
        stored=True,
        seq=row["seq"],
        formed_to=row["formed_to"],
        held={message.message_id: message for message in waiting},
        outbox=[
            UnpublishedWindow(entry["formation_id"], entry["seq"], entry["requested"])
            for entry in row["outbox"]
        ],
        waits_for=row["waits_for"],
        controls=row["controls"],
        last_control=_control_of(row.get("last_control")),
        late=row.get("late", False),
        audiences=Audiences.of_row(row),
        users=tuple(row["users"]),
        due_at=None if due is None else _aware(due),
        deletions=[_deletion_of(deletion) for deletion in row.get("deletions", ())],
    )


def _deletion_of(row: Row) -> PendingDeletion:
    fields: Row = {**row, "due": _aware(row["due"])}
    return PendingDeletion(**fields)


def _control_of(row: Row | None) -> Control | None:
    return None if row is None else Control(**row)._replace(time=_aware(row["time"]))


def window_row(window: StoredWindow) -> Row:
    """Return the document of `memory_windows`."""
    closed = window.closed
    return {
        "_id": window.formation_id,
        "session_id": window.session_id,
        "seq": window.seq,
        "messages": member_rows(window.messages),
        "before": member_rows(window.before),
        "left_out": left_out_rows(window),
        "closed": {
            "because": closed.because,
            "at": closed.at,
            "control_id": closed.control_id,
            "asked_by": closed.asked_by,
            "users": list(closed.users[: LISTED_USERS + 1]),
        },
        "traceparent": window.traceparent,
        "names": window.names,
        "requested": request_text(window),
        "completed_at": None,
        "erase_after": None,
        "erased_at": erased_at(window),
        **in_flight_row(window),
    }


def in_flight_row(window: StoredWindow) -> Row:
    """Return the field that says what a window is expected to cost; none where no budget concerns it."""
    cost = window.in_flight
    if cost is None:
        return {}
    return {"in_flight": {"agent_id": cost.agent_id, "user_id": cost.user_id, "usd": stored(cost.usd)}}


def erased_at(window: StoredWindow) -> datetime | None:
    """Return when the texts were erased: at once where nothing is requested, else not yet."""
    return window.closed.at if window.settled and window.requested is None else None


def member_rows(messages: Sequence[StoredMessage]) -> list[Row]:
    """Return messages with their texts, as a window holds them."""
    return [
        {
            "message_id": message.message_id,
            "version": message.version,
            "role": message.role,
            "user_id": message.user_id,
            "text": message.text,
            "characters": message.characters,
            "truncated": message.truncated,
            "time": message.time,
            "created_at": message.created_at,
            "edited_at": message.edited_at,
        }
        for message in messages
    ]


def left_out_rows(window: StoredWindow) -> list[Row]:
    """Return the messages of a window of which nothing is kept."""
    return [{"message_id": ref.message_id, "version": ref.version} for ref in window.left_out]


def window_of(row: Row) -> StoredWindow:
    """Return a closed window as stored."""
    closed, requested = row["closed"], row["requested"]
    return StoredWindow(
        formation_id=row["_id"],
        session_id=row["session_id"],
        seq=row["seq"],
        messages=tuple(_member_of(row["session_id"], member) for member in row["messages"]),
        before=tuple(_member_of(row["session_id"], member) for member in row["before"]),
        closed=Closed(
            (),
            closed["because"],
            _aware(closed["at"]),
            closed["control_id"],
            closed["asked_by"],
            tuple(closed["users"]),
            more=len(closed["users"]) > LISTED_USERS,
        ),
        traceparent=row["traceparent"],
        names=row["names"],
        requested=FormationRequested.model_validate_json(requested, extra="ignore") if requested else None,
        value=requested.encode() if requested else None,
        left_out=tuple(MessageRef(**reference) for reference in row["left_out"]),
        settled=requested is not None,
    )


def earlier_window_of(row: Row) -> EarlierWindow:
    """Return what may explain the next window of a session."""
    requested = row["requested"]
    return EarlierWindow(
        messages=tuple(_member_of(row["session_id"], member) for member in row["messages"]),
        requested=WindowAudience.model_validate_json(requested, extra="ignore") if requested else None,
        edited=row["closed"]["because"] == "edited",
    )


def _member_of(session_id: str, row: Row) -> StoredMessage:
    moments = {name: _moment(row[name]) for name in ("created_at", "edited_at")}
    fields: Row = {**row, **moments, "time": _aware(row["time"])}
    return StoredMessage(session_id=session_id, **fields)


def request_text(window: StoredWindow) -> str | None:
    """Return the value of a window's FormationRequested, byte for byte; None while there is none."""
    return None if window.value is None else window.value.decode()


def _moment(value: datetime | None) -> datetime | None:
    return None if value is None else _aware(value)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


TOGETHER = 500
"""Sessions that close windows and are stored in one transaction, at most; each could have one of its own."""
TOGETHER_CHARACTERS = 4_000_000
"""Of the texts that one transaction moves, roughly."""
NOT_FORGOTTEN: Row = {"$ne": True}
"""Forgetting may have marked a message since it was read."""
TAKEN: Row = {"text": None}
LEFT_OUT: Row = {**TAKEN, "digest": None, "same": None, "opted_out": True}
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
            only_duplicates(error)
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
        row = message_row(message)
        if message.replaces is None:
            rows[message.message_id] = row
        else:
            version, formation = message.replaces
            unchanged: Row = {"_id": row["_id"], "version": version, "formation_id": formation}
            if not message.forgotten:
                unchanged["forgotten"] = NOT_FORGOTTEN
            writes.update(UpdateOne(unchanged, {"$set": row}))
    for window in part.new:
        _claim(writes, rows, window, window.messages, {**TAKEN, **_again(window)})
        _claim(writes, rows, window, window.left_out, LEFT_OUT)
    for window in part.requested:
        if window.left_out:
            left_out = [reference.message_id for reference in window.left_out]
            taken: Row = {"_id": {"$in": left_out}, "formation_id": window.formation_id, "deleted": False}
            writes.besides.append(UpdateMany(taken, {"$set": LEFT_OUT}))
    writes.new.extend(rows.values())
    return writes


def _again(window: StoredWindow) -> Row:
    """Return what a message that forms again remembers of when it did."""
    if window.closed.because != "edited" or not window.messages:
        return {}
    (message,) = window.messages
    return {"formed_again": list(message.formed_again)}


def session_writes(sessions: AsyncCollection[Row], part: SessionsTogether) -> CollectionWrites:
    """Write the documents of sessions, new or changed."""
    writes = CollectionWrites(sessions)
    for session in part.sessions:
        row, removed = session_row(session)
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
    writes = CollectionWrites(windows, [window_row(window) for window in part.new])
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
    change: Row = {"requested": request_text(window), "names": window.names}
    change["before"] = member_rows(window.before)
    if window.left_out:
        change["left_out"] = left_out_rows(window)
    change["erased_at"] = erased_at(window)
    change |= in_flight_row(window)
    left_out = [ref.message_id for ref in window.left_out]
    remove: Row = {"$pull": {"messages": {"message_id": {"$in": left_out}}}} if left_out else {}
    return UpdateOne(unwritten, {"$set": change, **remove})
