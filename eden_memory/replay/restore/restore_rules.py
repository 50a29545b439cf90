"""formation-trigger's state from what the topics say: messages by their highest version, windows as recorded. Pure.

What the recorded windows hold is settled; what waits behind them is cut by the trigger's own rule, as far as it
had come when its request was not published yet.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from eden_memory.directory.participants import Audiences, SessionFacts
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FormationRequested, MessageRecorded
from eden_memory.schemas.events.chat import settings_of
from eden_memory.schemas.scopes import LISTED_USERS
from eden_memory.windows.session_state import (
    Messages,
    Session,
    StoredMessage,
    changed_after,
    delete,
    follows_deletion,
    leave,
    miss,
    record,
)
from eden_memory.windows.window_request import StoredWindow, request, settle, stored_window
from eden_memory.windows.window_rule import Closed, Control, Limits

NEVER = Limits(messages=1 << 60, tokens=float("inf"), least=1 << 60, stale=None)
"""Nothing closes while records are only taken in."""


RESTORED = "its windows were cut again when formation's state was restored"
"""Why a session waits: the trigger asks for its windows when it looks at it next."""


class WindowMember(NamedTuple):
    """A message as a recorded window holds it."""

    formation_id: str
    session_id: str
    version: str
    closed_at: datetime
    texts: bool = False
    """Whether the window is to have its texts."""
    explains: bool = False
    """Whether a later window that is to have its texts shows this message, too."""


class PlacedControl(NamedTuple):
    """A control record of a session, at its place among the messages."""

    place: int
    asked: Control


def after_record(
    known: StoredMessage | None,
    member: WindowMember | None,
    event: MessageRecorded,
    time: datetime,
    place: int,
) -> StoredMessage | None:
    """A message after one of its records; None: nothing changed. `place`: that of the record."""
    if member is not None and not _again(known, member, event.version):
        return _formed(known, member, event, time)
    if known is not None and known.version >= event.version:
        return None  # the highest counts; a repeat changes nothing, and what is gone stays gone
    messages = _one(known)
    session = _holding(known if known is not None and known.session_id == event.session_id else None, event)
    record(session, messages, event, time, place)
    return messages.touched.get(event.message_id)


def after_tombstone(
    known: StoredMessage | None, member: WindowMember | None, message_id: str, envelope: Envelope
) -> StoredMessage | None:
    """A message after its deletion or opting out, or once it has left its session; None: nothing changed."""
    known = known if known is not None or member is None else unseen(message_id, member)
    version = envelope.entity_version or ""
    messages = _one(known)
    match envelope.reason:
        case "deleted" | "forgotten" as reason:
            forgotten = reason == "forgotten"
            delete(messages, message_id, version, envelope.time, envelope.scope, forgotten=forgotten)
        case "opted_out":
            return _opted_out(known, message_id, envelope)
        case "moved" if known is not None and known.session_id == (envelope.scope or known.session_id):
            leave(_holding(known), messages, message_id, version)
        case "missing":
            return miss(known, version)
        case _:
            return None  # dropped, renamed: counted by who wrote it, nothing else
    return messages.touched.get(message_id)


def waits(message: StoredMessage) -> bool:
    """Whether a message waits for its window."""
    return message.place is not None and message.formation_id is None and not message.deleted


def _again(known: StoredMessage | None, member: WindowMember, version: str) -> bool:
    """Whether a record is of a message that was written after the one in the window had been deleted."""
    if known is None or version <= member.version:
        return False
    return known.formation_id is None or follows_deletion(known, version)


def _formed(
    known: StoredMessage | None, member: WindowMember, event: MessageRecorded, time: datetime
) -> StoredMessage | None:
    """A record of a message that a window holds: the window's version tells what it is."""
    before = known if known is not None else unseen(event.message_id, member)
    if event.version > member.version:
        newer = event.version > before.version
        return changed_after(before, event, formed_anew=member.texts) if newer else None
    if before.deleted or (known is not None and event.version != member.version):
        return None
    told = StoredMessage.of(event, time, known)
    return replace(
        told,
        session_id=member.session_id,
        version=before.version,
        text=None,
        formation_id=member.formation_id,
        changed_after_formation=before.changed_after_formation,
        missing=before.missing,
    )


def unseen(message_id: str, member: WindowMember) -> StoredMessage:
    """A message of a window, where the topic has no record of it any more."""
    return StoredMessage(
        message_id=message_id,
        session_id=member.session_id,
        version=member.version,
        time=member.closed_at,
        role="other",
        user_id=None,
        text=None,
        characters=0,
        truncated=False,
        formation_id=member.formation_id,
    )


def _opted_out(known: StoredMessage | None, message_id: str, envelope: Envelope) -> StoredMessage | None:
    version = envelope.entity_version or ""
    if known is None:
        return StoredMessage(
            message_id, envelope.scope, version, envelope.time, "other", None, None, 0, False, opted_out=True
        )
    if known.version > version or known.deleted:
        return None
    if known.formation_id is not None:
        newer = known.version < version
        return replace(known, version=version, changed_after_formation=True) if newer else None
    return replace(known, version=version, text=None, opted_out=True, place=None, since=None)


def _one(known: StoredMessage | None) -> Messages:
    return Messages({} if known is None else {known.message_id: known})


def _holding(known: StoredMessage | None, event: MessageRecorded | None = None) -> Session:
    """The message's session, with nothing else in it."""
    name = event.session_id if event is not None else (known.session_id if known else None) or ""
    held = {known.message_id: known} if known is not None and waits(known) else {}
    return Session(name, 0, NEVER, held=held)


@dataclass(slots=True)
class RecordedSession:
    """One session as the topics have it; `waiting` and `controls` in the order of their places."""

    session_id: str
    partition: int
    windows: Sequence[FormationRequested] = ()
    """By `seq`."""
    authors: Sequence[str] = ()
    """Of the messages that the topic still has, in the order of their first."""
    waiting: Iterable[StoredMessage] = ()
    controls: Sequence[PlacedControl] = ()


def session_before(recorded: RecordedSession, limits: Limits, *, described: bool) -> Session:
    """The session behind its recorded windows, before what waits. `described`: by documents of the application."""
    windows = recorded.windows
    session = Session(recorded.session_id, recorded.partition, limits)
    session.seq = max((window.seq for window in windows), default=0)
    session.audiences = Audiences.of_windows(windows)
    known = () if described or not windows else windows[-1].users  # where nothing else says so: the authors
    others = session.audiences.newest if len(known) == LISTED_USERS else ()
    session.users = tuple(dict.fromkeys((*known, *recorded.authors, *sorted(others))))
    session.changed = bool(windows or session.users)
    return session


def cut(session: Session, recorded: RecordedSession, passed: datetime | None) -> Iterator[StoredWindow]:
    """The windows that what waits had closed, as the trigger cuts them; the rest waits in `session` then.

    Everything up to `passed` is recorded.
    """
    done = {window.control_id for window in recorded.windows}
    controls = list(recorded.controls)
    for message in recorded.waiting:
        place = message.place or 0
        while controls and controls[0].place < place:
            _control(session, controls.pop(0).asked, done)
            yield from _closed(session)
        session.hold(message, message.since or message.time, place)
        yield from _closed(session)
    for control in controls:
        _control(session, control.asked, done)
        yield from _closed(session)
    if passed is not None:
        session.passed(passed)
        yield from _closed(session)


def _control(session: Session, control: Control, done: set[str | None]) -> None:
    if control.control_id in done:
        session.carried_out(control)
    else:
        session.control(control)


def _closed(session: Session) -> Iterator[StoredWindow]:
    closing, session.closed = session.closed, []
    for closed, members in closing:
        if members or closed.because == "ended":
            session.waits_for = RESTORED
            yield stored_window(session, closed, members)


def ask_anew(window: StoredWindow, session: Session, facts: SessionFacts, authors: Collection[str]) -> None:
    """Write a recorded window's request again, of its messages as a corrected field mapping reads them.

    `authors`: of this window and of the session's earlier ones.
    """
    assert window.requested is not None
    window.closed, window.before = replace(window.closed, users=tuple(authors)), ()
    request(window, session, facts, window.requested.settings_version)
    settle(window)
    session.changed = True


def unmark_read_alike(members: Sequence[StoredMessage], writers: Collection[str]) -> set[str]:
    """Let answers count as read right whose authors take part anyway, as `writers`; return their ids.

    They were recorded anew only since later rules read authors of answers otherwise: the other messages of their
    window were read with the same paths and roles.
    """
    settings = {settings_of(member.mapping) for member in members if member.mapping and not member.misread}
    alike: set[str] = set()
    for member in members:
        if member.misread and member.participant is None and member.user_id in writers:
            member.misread = settings != {settings_of(member.mapping)}
            alike |= set() if member.misread else {member.message_id}
    return alike


def recorded_window(
    asked: FormationRequested,
    value: bytes,
    members: Sequence[StoredMessage],
    traceparent: str | None,
    before: Sequence[StoredMessage] = (),
) -> StoredWindow:
    """A window whose request is in the topic, with its messages and those before it."""
    closed = Closed(
        (), asked.closed_because, asked.closed_at, asked.control_id, asked.asked_by, asked.participants
    )
    return StoredWindow(
        formation_id=asked.formation_id,
        session_id=asked.session_id,
        seq=asked.seq,
        messages=tuple(members),
        before=tuple(before),
        closed=closed,
        traceparent=traceparent,
        requested=asked,
        value=value,
        settled=True,
    )
