"""What formation-trigger does to one session's state, record by record. Pure.

A message belongs to one window at most, however often it comes: what waits is in the session's document, what
a window holds bears its formation in `memory_messages`, and both change in one transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b

from eden_memory.domain.windows import Closed, Limits, Pending, Waiting, weighted_tokens
from schemas.events import MessageRecorded
from schemas.events.formation import ClosedBecause

REMEMBERED_CONTROLS = 50


@dataclass(slots=True)
class StoredMessage:
    """A document of `memory_messages`."""

    message_id: str
    session_id: str | None
    version: str
    time: datetime
    role: str
    user_id: str | None
    text: str | None
    characters: int
    truncated: bool
    formation_id: str | None = None
    deleted: bool = False
    changed_after_formation: bool = False
    replaces: str | None = None
    """The version that was read and that this one takes the place of; None: the message is new. Not stored."""

    @classmethod
    def of(cls, event: MessageRecorded, time: datetime) -> "StoredMessage":
        """As it was recorded."""
        return cls(
            message_id=event.message_id,
            session_id=event.session_id,
            version=event.version,
            time=time,
            role=event.role,
            user_id=event.user_id,
            text=event.text or None,
            characters=event.characters,
            truncated=event.truncated,
        )


@dataclass(slots=True)
class OutboxEntry:
    """A closed window that is not known to be published."""

    formation_id: str
    seq: int
    requested: bool = False
    """Its request is written; False while the session waits."""


@dataclass(slots=True)
class Session:
    """A session as stored, with what this batch does to it."""

    session_id: str
    partition: int
    limits: Limits
    rev: int = 0
    """0: not stored yet."""
    seq: int = 0
    waiting: Sequence[Waiting] = ()
    outbox: list[OutboxEntry] = field(default_factory=list[OutboxEntry])
    waits_for: str | None = None
    controls: list[str] = field(default_factory=list[str])
    """The last control records that were carried out: a redelivery finds itself here."""
    audiences: list[list[str]] = field(default_factory=list[list[str]])
    users: tuple[str, ...] = ()
    """Authors seen, for sessions that the application does not describe."""
    closed: list[Closed] = field(default_factory=list[Closed])
    """Windows that this batch closed."""
    changed: bool = False
    pending: Pending = field(init=False)

    def __post_init__(self) -> None:
        self.pending = Pending(self.limits, self.waiting)

    def control(self, because: ClosedBecause, time: datetime, control_id: str, by: str | None) -> None:
        """Somebody asked for a window; the second time the same record asks, nothing happens."""
        if control_id in self.controls:
            return
        self.controls = [*self.controls[1 - REMEMBERED_CONTROLS :], control_id]
        self.close(self.pending.asked(because, time, control_id, by))
        self.changed = True

    def closes(self, message_id: str) -> bool:
        """Whether a window that this batch closed has the message."""
        return any(one.message_id == message_id for closed in self.closed for one in closed.messages)

    def close(self, closed: list[Closed]) -> None:
        """Windows that a record closed."""
        self.closed += [replace(one, users=self.users) for one in closed]
        self.changed = self.changed or bool(closed)


class Messages:
    """The messages that a batch touches: as stored, and as the batch leaves them; each is touched once."""

    def __init__(self, stored: Mapping[str, StoredMessage]) -> None:
        self.known = dict(stored)
        self.touched: dict[str, StoredMessage] = {}

    def put(self, message: StoredMessage) -> None:
        """The message's new state, to be written in place of the one that was read."""
        known = self.known.get(message.message_id)
        message.replaces = known.version if known is not None else None
        self.known[message.message_id] = self.touched[message.message_id] = message


def record(session: Session, messages: Messages, event: MessageRecorded, time: datetime) -> None:
    """A message as it stands since its version."""
    known = messages.known.get(event.message_id)
    if known is not None and known.version > event.version:
        return
    if known is not None and known.formation_id is not None:
        if known.version < event.version:
            messages.put(replace(known, version=event.version, changed_after_formation=True))
        return
    if known is not None and session.pending.version(event.message_id) == event.version:
        return  # a redelivery
    messages.put(StoredMessage.of(event, known.time if known is not None else time))
    _wait(session, event, time)
    if event.user_id is not None and event.user_id not in session.users:
        session.users = (*session.users, event.user_id)
        session.changed = True


def _wait(session: Session, event: MessageRecorded, time: datetime) -> None:
    """Let a message wait for its window; without text there is nothing to wait for."""
    if not event.text:
        session.changed = session.pending.remove(event.message_id) or session.changed
        return
    tokens = weighted_tokens(event.text, event.role)
    session.close(session.pending.add(Waiting(event.message_id, event.version, time, tokens)))
    session.changed = True


def delete(messages: Messages, message_id: str, version: str, time: datetime, session_id: str | None) -> None:
    """The application deleted a message: it is left out, or noted if it is formed already."""
    known = messages.known.get(message_id)
    if known is not None and (known.version > version or (known.deleted and known.version == version)):
        return
    messages.put(
        StoredMessage(
            message_id=message_id,
            session_id=known.session_id if known else session_id,
            version=version,
            time=known.time if known else time,
            role=known.role if known else "other",
            user_id=known.user_id if known else None,
            text=None,
            characters=0,
            truncated=False,
            formation_id=known.formation_id if known else None,
            deleted=True,
            changed_after_formation=known is not None and known.formation_id is not None,
        )
    )


def leave(session: Session | None, message_id: str, before: str) -> None:
    """A message is no longer this session's since version `before`; if it came back since, it stays."""
    waits = session.pending.version(message_id) if session is not None else None
    if session is not None and waits is not None and waits < before:
        session.pending.remove(message_id)
        session.changed = True


def members_of(
    session: Session, closed: Closed, messages: Mapping[str, StoredMessage]
) -> list[StoredMessage]:
    """What a closed window holds: the messages that are still this session's, not deleted, in no other window."""
    found = [messages.get(one.message_id) for one in closed.messages]
    return [
        one
        for one in found
        if one is not None
        and one.session_id == session.session_id
        and not one.deleted
        and one.formation_id is None
        and one.text
    ]


def formation_id(session_id: str, seq: int, members: Sequence[StoredMessage]) -> str:
    """Names a window by its session, its place there, and what it holds: two workers cannot mean two things."""
    digest = blake2b(digest_size=6)
    for one in members:
        digest.update(f"{one.message_id}@{one.version}\n".encode())
    return f"{session_id}/{seq}-{digest.hexdigest()}"
