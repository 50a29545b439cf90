"""formation-trigger's state as documents (schemas/documents/formation.py), there and back."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from eden_memory.domain.trigger import OutboxEntry, Session, StoredMessage
from eden_memory.domain.window_request import StoredWindow
from eden_memory.domain.windows import Closed, Limits, Waiting
from schemas.events import FormationRequested

Row = dict[str, Any]


def message_row(one: StoredMessage) -> Row:
    """A document of `memory_messages`."""
    return {
        "_id": one.message_id,
        "session_id": one.session_id,
        "version": one.version,
        "time": one.time,
        "role": one.role,
        "user_id": one.user_id,
        "text": one.text,
        "characters": one.characters,
        "truncated": one.truncated,
        "formation_id": one.formation_id,
        "deleted": one.deleted,
        "changed_after_formation": one.changed_after_formation,
    }


def message_of(row: Row) -> StoredMessage:
    """A message as stored."""
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
    )


def session_row(one: Session) -> tuple[Row, list[str]]:
    """A document of `memory_sessions` in its next revision without `pending`, and the fields that it loses."""
    row: Row = {
        "_id": one.session_id,
        "rev": one.rev + 1,
        "partition": one.partition,
        "seq": one.seq,
        "outbox": [
            {"formation_id": entry.formation_id, "seq": entry.seq, "requested": entry.requested}
            for entry in one.outbox
        ],
        "waits_for": one.waits_for,
        "controls": one.controls,
        "audiences": one.audiences,
        "users": list(one.users),
    }
    due, unpublished = one.pending.due(), bool(one.outbox)
    if due is not None:
        row["due_at"] = due
    if unpublished:
        row["unpublished"] = True
    return row, [name for name in ("due_at", "unpublished") if name not in row]


def pending_rows(waiting: Sequence[Waiting]) -> list[Row]:
    """`pending` of a document of `memory_sessions`."""
    return [
        {"message_id": name, "version": version, "time": time, "tokens": tokens}
        for name, version, time, tokens in waiting
    ]


def session_of(row: Row, limits: Limits) -> Session:
    """A session as stored."""
    return Session(
        session_id=row["_id"],
        partition=row["partition"],
        limits=limits,
        rev=row["rev"],
        seq=row["seq"],
        waiting=[
            Waiting(one["message_id"], one["version"], _aware(one["time"]), one["tokens"])
            for one in row["pending"]
        ],
        outbox=[OutboxEntry(one["formation_id"], one["seq"], one["requested"]) for one in row["outbox"]],
        waits_for=row["waits_for"],
        controls=row["controls"],
        audiences=row["audiences"],
        users=tuple(row["users"]),
    )


def window_row(one: StoredWindow) -> Row:
    """A document of `memory_windows`."""
    closed = one.closed
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
        "closed": {
            "because": closed.because,
            "at": closed.at,
            "control_id": closed.control_id,
            "asked_by": closed.asked_by,
            "users": list(closed.users),
        },
        "traceparent": one.traceparent,
        "names": one.names,
        "requested": request_text(one),
        "completed_at": None,
        "erase_after": None,
    }


def window_of(row: Row) -> StoredWindow:
    """A closed window as stored."""
    closed, requested = row["closed"], row["requested"]
    return StoredWindow(
        formation_id=row["_id"],
        session_id=row["session_id"],
        seq=row["seq"],
        messages=tuple(_member_of(row["session_id"], one) for one in row["messages"]),
        closed=Closed(
            (),
            closed["because"],
            _aware(closed["at"]),
            closed["control_id"],
            closed["asked_by"],
            tuple(closed["users"]),
        ),
        traceparent=row["traceparent"],
        names=row["names"],
        requested=FormationRequested.model_validate_json(requested, extra="ignore") if requested else None,
    )


def _member_of(session_id: str, row: Row) -> StoredMessage:
    fields: Row = {**row, "time": _aware(row["time"])}
    return StoredMessage(session_id=session_id, **fields)


def request_text(one: StoredWindow) -> str | None:
    """The value of a window's FormationRequested, byte for byte; None while the session waits."""
    return None if one.requested is None else one.requested.json_bytes().decode()


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
