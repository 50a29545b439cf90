"""What a batch of records does to the sessions and messages that it touches. Pure: all it needs was read before.

A batch touches no message after a window has closed over it: there the batch is cut. What is stored of a session
and its messages then is what it was behind a record, so whatever is repeated after a crash closes the same windows.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from eden_memory.domain.stage import Delivery, Emit, Erase
from eden_memory.domain.windows.looks import Looks
from eden_memory.domain.windows.switched_off import NOBODY, Off
from eden_memory.domain.windows.trigger import Messages, Session, delete, leave, opt_out, record
from eden_memory.domain.windows.windows import Control
from schemas.events import Forgotten, FormationAsked, MessageRecorded, SessionEnded, Watermark

IN_A_SESSION = (MessageRecorded, SessionEnded, FormationAsked)
AFTER_ALL = "g"
"""Above every version (those are hexadecimal)."""


@dataclass(slots=True)
class Counts:
    """What is worth a metric; counted when it is written, so a repeat counts nothing twice."""

    windows: Counter[str] = field(default_factory=Counter[str])
    """Closed, by reason."""
    empty: int = 0
    """Messages without text."""
    missing: int = 0
    """Messages that a merge found to be gone."""
    opted_out: int = 0
    """Messages whose session or author is switched off: nothing is kept of them."""


@dataclass(slots=True)
class Batch:
    """Records of one partition while they are worked on."""

    partition: int
    sessions: dict[str, Session]
    messages: Messages
    forgets: bool
    place: int
    """The last place given to a message that waits."""
    off: Off = NOBODY
    sent: list[Emit | Erase] = field(default_factory=list[Emit | Erase])
    """What a record leads to at once: deletions to be forgotten, texts that are not to be kept."""
    counts: Counts = field(default_factory=Counts)
    looks: Looks = field(default_factory=Looks)

    def __post_init__(self) -> None:
        self.looks.touched.update(self.sessions)

    def add(self, sessions: Mapping[str, Session]) -> None:
        """Sessions that no record so far names: a Watermark may close them."""
        self.sessions.update(sessions)
        self.looks.touched.update(sessions)

    def takes(self, delivery: Delivery) -> bool:
        """Whether the record still belongs to this batch; if not, the batch is cut before it."""
        known = self.messages.known.get(delivery.key)
        session = self.sessions.get(known.session_id) if known and known.session_id else None
        return session is None or not session.closes(delivery.key)

    def apply(self, delivery: Delivery) -> None:
        """Do what a record says; a Watermark finds all sessions that it may close among `sessions`."""
        event, time = delivery.event, delivery.envelope.time
        match event:
            case MessageRecorded():
                self._recorded(event, delivery)
            case SessionEnded() | FormationAsked():
                self.looks.touched.add(event.session_id)
                self.sessions[event.session_id].control(control_of(event, time))
            case Watermark():
                for session in self.looks.passed(event.time, self.sessions):
                    if session.partition == self.partition:
                        session.passed(event.time)
            case _:
                self._ended(delivery)

    def own(self) -> list[Session]:
        """The sessions of this partition; others are another worker's, and only looked at."""
        return [session for session in self.sessions.values() if session.partition == self.partition]

    def _recorded(self, event: MessageRecorded, delivery: Delivery) -> None:
        known, time = self.messages.known.get(event.message_id), delivery.envelope.time
        if known and known.session_id != event.session_id and known.version <= event.version:
            leave(self._own(known.session_id), self.messages, event.message_id, event.version)
        session = self.sessions[event.session_id]
        self.looks.touched.add(event.session_id)
        if event.session_id in self.off.sessions:
            session.give_up(time)
        if self.off.of(event.session_id, event.user_id):
            self._opted_out(session, event, delivery)
            return
        self.place += 1
        record(session, self.messages, event, time, self.place)
        self.counts.empty += not event.text

    def _opted_out(self, session: Session, event: MessageRecorded, delivery: Delivery) -> None:
        if opt_out(session, self.messages, event, delivery.envelope.time):
            self.sent.append(erased(event.message_id, event.version, event.session_id, delivery))
            self.counts.opted_out += 1

    def _ended(self, delivery: Delivery) -> None:
        """A tombstone: deleted, moved away, or missing (which is counted, and changes nothing by itself)."""
        envelope = delivery.envelope
        message_id, version = envelope.subject, envelope.entity_version or ""
        known = self.messages.known.get(message_id)
        session = self._own(envelope.scope or (known.session_id if known else None))
        match envelope.reason:
            case "moved":
                leave(session, self.messages, message_id, version)
            case "deleted" | "forgotten":
                delete(self.messages, message_id, version, envelope.time, envelope.scope)
                leave(session, self.messages, message_id, version + AFTER_ALL)
                if self.forgets and envelope.reason == "deleted":
                    self.sent.append(_forgotten(delivery, known.session_id if known else None))
            case _:
                self.counts.missing += envelope.reason == "missing"

    def _own(self, session_id: str | None) -> Session | None:
        session = self.sessions.get(session_id) if session_id is not None else None
        if session is None or session.partition != self.partition:
            return None
        self.looks.touched.add(session.session_id)
        return session


def control_of(event: SessionEnded | FormationAsked, time: datetime) -> Control:
    """What a record of that time asks of its session."""
    because = "ended" if isinstance(event, SessionEnded) else "asked"
    return Control(because, event.inbox_id, event.version, time, event.asked_by)


def messages_named(deliveries: Sequence[Delivery]) -> list[str]:
    """The messages that records are about."""
    return [one.key for one in deliveries if one.event is None or isinstance(one.event, MessageRecorded)]


def sessions_named(deliveries: Iterable[Delivery]) -> list[str]:
    """The sessions that records name."""
    found = (
        one.event.session_id if isinstance(one.event, IN_A_SESSION) else one.envelope.scope
        for one in deliveries
    )
    return [name for name in found if name is not None]


def authors(sessions: Iterable[Session], deliveries: Iterable[Delivery]) -> dict[str, set[str]]:
    """Of each session, who wrote in it so far, these records included."""
    found = {one.session_id: set(one.users) for one in sessions}
    for one in deliveries:
        event = one.event
        if isinstance(event, MessageRecorded) and event.user_id is not None and event.session_id in found:
            found[event.session_id].add(event.user_id)
    return found


def erased(
    message_id: str,
    version: str,
    session_id: str,
    cause: Delivery | None = None,
    time: datetime | None = None,
) -> Erase:
    """The tombstone that takes the text of somebody who is switched off out of `chat.messages`."""
    return Erase(
        MessageRecorded,
        key=message_id,
        ordering_key=session_id,
        subject=message_id,
        reason="opted_out",
        entity_version=version,
        scope=session_id,
        cause=cause,
        time=time,
        identity=f"opted_out/{message_id}@{version}",
    )


def _forgotten(delivery: Delivery, session_id: str | None) -> Emit:
    version = delivery.envelope.entity_version or ""
    event = Forgotten(
        kind="message",
        id=delivery.envelope.subject,
        reach="up_to_version",
        version=version,
        because="deleted",
        asked_by=None,
        session_id=delivery.envelope.scope or session_id,
        forgotten_at=delivery.envelope.time,
    )
    return Emit(event, cause=delivery, identity=f"forgotten/{event.key()}@{version}")
