"""formation-trigger's state as documents (schemas/documents/formation.py), there and back."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from eden_memory.directory.participants import AudienceChange, Audiences
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.provenance import MessageRef
from eden_memory.schemas.scopes import LISTED_USERS
from eden_memory.windows.session_state import OutboxEntry, Session, StoredMessage
from eden_memory.windows.window_request import StoredWindow
from eden_memory.windows.window_rule import Closed, Control, Limits

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
        "opted_out": one.opted_out,
        "forgotten": one.forgotten,
        "place": one.place,
        "since": one.since,
        "created_at": one.created_at,
        "edited_at": one.edited_at,
        "missing": one.missing,
        "mapping": one.mapping,
        "misread": one.misread,
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
        opted_out=row["opted_out"],
        forgotten=row.get("forgotten", False),
        place=row["place"],
        since=_moment(row["since"]),
        created_at=_moment(row.get("created_at")),
        edited_at=_moment(row.get("edited_at")),
        missing=row.get("missing", False),
        mapping=row.get("mapping"),
        misread=row.get("misread", False),
    )


def session_row(one: Session) -> tuple[Row, list[str]]:
    """A document of `memory_sessions`, and the fields that it loses."""
    row: Row = {
        "_id": one.session_id,
        "partition": one.partition,
        "seq": one.seq,
        "formed_to": one.formed_to,
        "outbox": [
            {"formation_id": entry.formation_id, "seq": entry.seq, "requested": entry.requested}
            for entry in one.outbox
        ],
        "waits_for": one.waits_for,
        "controls": one.controls,
        "audience_changes": [_change_row(change) for change in one.audiences.changes],
        "users": list(one.users),
    }
    due, unpublished = one.due(), bool(one.outbox)
    if due is not None:
        row["due_at"] = due
    if unpublished:
        row["unpublished"] = True
    if one.late:
        row["late"] = True
    if one.last_control is not None:
        row["last_control"] = one.last_control._asdict()
    return row, [name for name in ("due_at", "unpublished", "late", "audiences") if name not in row]


def _change_row(change: AudienceChange) -> Row:
    if change.large is not None:
        return {"large": change.large.model_dump()}
    return {name: list(users) for name, users in (("joined", change.joined), ("left", change.left)) if users}


def session_of(row: Row, limits: Limits, waiting: Iterable[StoredMessage]) -> Session:
    """A session as stored, with the messages that wait in it, in order."""
    due = row.get("due_at")
    return Session(
        session_id=row["_id"],
        partition=row["partition"],
        limits=limits,
        stored=True,
        seq=row["seq"],
        formed_to=row["formed_to"],
        held={one.message_id: one for one in waiting},
        outbox=[OutboxEntry(one["formation_id"], one["seq"], one["requested"]) for one in row["outbox"]],
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


def window_row(one: StoredWindow) -> Row:
    """A document of `memory_windows`."""
    closed = one.closed
    return {
        "_id": one.formation_id,
        "session_id": one.session_id,
        "seq": one.seq,
        "messages": member_rows(one),
        "left_out": left_out_rows(one),
        "closed": {
            "because": closed.because,
            "at": closed.at,
            "control_id": closed.control_id,
            "asked_by": closed.asked_by,
            "users": list(closed.users[:LISTED_USERS]),
        },
        "traceparent": one.traceparent,
        "names": one.names,
        "requested": request_text(one),
        "completed_at": None,
        "erase_after": None,
        "erased_at": erased_at(one),
    }


def erased_at(one: StoredWindow) -> datetime | None:
    """A window of which nothing is asked for has no texts from the beginning."""
    return one.closed.at if one.settled and one.requested is None else None


def member_rows(one: StoredWindow) -> list[Row]:
    """The messages of a window with their texts."""
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
        for message in one.messages
    ]


def left_out_rows(one: StoredWindow) -> list[Row]:
    """The messages of a window of which nothing is kept."""
    return [{"message_id": ref.message_id, "version": ref.version} for ref in one.left_out]


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
        value=requested.encode() if requested else None,
        left_out=tuple(MessageRef(**one) for one in row["left_out"]),
        settled=requested is not None,
    )


def _member_of(session_id: str, row: Row) -> StoredMessage:
    moments = {name: _moment(row.get(name)) for name in ("created_at", "edited_at")}
    fields: Row = {**row, **moments, "time": _aware(row["time"])}
    return StoredMessage(session_id=session_id, **fields)


def request_text(one: StoredWindow) -> str | None:
    """The value of a window's FormationRequested, byte for byte; None while there is none."""
    return None if one.value is None else one.value.decode()


def _moment(value: datetime | None) -> datetime | None:
    return None if value is None else _aware(value)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
