"""Convert formation-trigger's state to documents (schemas/documents/formation.py) and back."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from eden_memory.directory.participants import AudienceDelta, Audiences
from eden_memory.mongo.documents import stored
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.provenance import MessageRef
from eden_memory.schemas.scopes import LISTED_USERS
from eden_memory.windows.session_state import Session, StoredMessage, UnpublishedWindow
from eden_memory.windows.window_request import EarlierWindow, StoredWindow, WindowAudience
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
    due, unpublished = session.due(), bool(session.outbox)
    if due is not None:
        row["due_at"] = due
    if unpublished:
        row["unpublished"] = True
    if session.late:
        row["late"] = True
    if session.last_control is not None:
        row["last_control"] = session.last_control._asdict()
    return row, [name for name in ("due_at", "unpublished", "late") if name not in row]


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
    )


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
