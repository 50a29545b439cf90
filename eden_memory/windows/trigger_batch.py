"""Apply a batch of records to the sessions and messages that it touches. Pure: everything was read before.

A batch touches no message after a window has closed over it, or behind it, and takes a message into one session only:
there the batch is cut. What is stored of a session and its messages then is what it was behind a record, so whatever
is repeated after a crash closes the same windows.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from time import monotonic
from typing import Literal

from eden_memory.directory.participants import NOBODY, Off, whose
from eden_memory.forgotten import Marks
from eden_memory.metrics import (
    TRIGGER_EMPTY,
    TRIGGER_MISSING,
    TRIGGER_OPTED_OUT,
    TRIGGER_REFUSED,
    TRIGGER_WINDOWS,
)
from eden_memory.schemas.events import Forgotten, FormationAsked, MessageRecorded, SessionEnded, Watermark
from eden_memory.schemas.provenance import MessageRef, SourceMessage
from eden_memory.stages.stage import Delivery, Emit, Erase
from eden_memory.windows.session_state import (
    Edit,
    Messages,
    PendingDeletion,
    Session,
    StoredMessage,
    delete,
    forget,
    forgets_up_to,
    hash_of,
    leave,
    miss,
    opt_out,
    record,
    stays_out,
    takes_back_author,
    write_again,
)
from eden_memory.windows.window_rule import Control


@dataclass(slots=True)
class TriggerCounts:
    """Counts of one batch; exported when it is written, so a repeat counts nothing twice."""

    windows: Counter[str] = field(default_factory=Counter[str])
    """Closed, by reason."""
    empty: int = 0
    """Messages without text."""
    missing: int = 0
    """Messages that a merge found to be gone."""
    opted_out: int = 0
    """Messages whose session or author is switched off: nothing is kept of them."""
    refused: int = 0
    """Messages of new users in sessions that have as many users as they can."""

    def export(self) -> None:
        """Add them to the metrics, once the batch is stored."""
        for because, number in self.windows.items():
            TRIGGER_WINDOWS.labels(because).inc(number)
        TRIGGER_EMPTY.inc(self.empty)
        TRIGGER_MISSING.inc(self.missing)
        TRIGGER_OPTED_OUT.inc(self.opted_out)
        TRIGGER_REFUSED.inc(self.refused)


MOST_BYTES = 12_000_000
"""Of sessions cached of one partition; beyond it those that were quiet longest are dropped."""
QUIET = timedelta(minutes=15)
"""Until a session is dropped that no batch touches, by the time of the newest message."""
SESSION_BYTES, MESSAGE_BYTES = 3_000, 600
"""Memory of a session, and of a message that waits in it besides its text (measured)."""
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Cached:
    session: Session
    size: int
    time: datetime
    """Of the newest message when the session was touched last."""


class CachedSessions:
    """Sessions of one partition as they are stored, for as long as nobody else writes to it.

    `place` is the partition's last, as stored: a write that finds another one knows that the cache is old. A long
    backfill touches most sessions for a short time only, and no Watermark closes them before it ends: so what is
    quiet is dropped, and read again when something happens to it.
    """

    def __init__(self, place: int, most: int = MOST_BYTES) -> None:
        self.place = place
        self._most = most
        self._cached: OrderedDict[str, _Cached] = OrderedDict()
        self._total = 0
        self._time = LONG_AGO

    def __len__(self) -> int:
        return len(self._cached)

    def find(self, ids: Iterable[str]) -> dict[str, Session]:
        """Return those of the sessions that are cached."""
        return {name: self._cached[name].session for name in ids if name in self._cached}

    def keep(self, sessions: Iterable[Session], time: datetime | None = None) -> None:
        """Cache sessions as they are stored now; `time`: of the newest message, None if none came.

        A session that a Watermark emptied is quiet.
        """
        self._time = time or self._time
        for session in sessions:
            self.drop(session.session_id)
            if time is None and not session.held and session.waits_for is None:
                continue
            size = SESSION_BYTES + MESSAGE_BYTES * len(session.held) + session.text_bytes
            self._cached[session.session_id] = _Cached(session, size, self._time)
            self._total += size
        while self._cached and (self._total > self._most or self._is_quiet()):
            self._total -= self._cached.popitem(last=False)[1].size

    def drop(self, session_id: str) -> None:
        """Remove a session, if it is cached."""
        cached = self._cached.pop(session_id, None)
        if cached is not None:
            self._total -= cached.size

    def published(self, entries: Iterable[tuple[str, str]]) -> None:
        """Take (session id, formation id) out of the outboxes."""
        for name, formation_id in entries:
            if (cached := self._cached.get(name)) is not None:
                session = cached.session
                session.outbox = [entry for entry in session.outbox if entry.formation_id != formation_id]

    def _is_quiet(self) -> bool:
        """Whether the session that was touched the longest ago is to be dropped."""
        return self._time - next(iter(self._cached.values())).time > QUIET


class DueScan:
    """When the sessions of a batch are due, so that a Watermark finds those that it may close without asking all.

    A time that is no longer true costs a look in vain, nothing else.
    """

    def __init__(self) -> None:
        self.touched: set[str] = set()
        """Sessions that something happened to since the last Watermark."""
        self._moments: list[tuple[datetime, str]] = []

    def passed(self, time: datetime, sessions: Mapping[str, Session]) -> Iterator[Session]:
        """Yield the sessions that are due by `time`, and note when each is due next."""
        for name in self.touched:
            self._note(sessions[name])
        self.touched.clear()
        coming: list[tuple[datetime, str]] = []
        while self._moments and self._moments[0][0] <= time:
            session = sessions[heappop(self._moments)[1]]
            yield session
            if (due := session.due()) is not None:
                coming.append((due, session.session_id))
        for moment in coming:
            heappush(self._moments, moment)

    def _note(self, session: Session) -> None:
        moment = session.look_at()
        if moment is not None:
            heappush(self._moments, (moment, session.session_id))


def only_join(deliveries: Sequence[Delivery], cached: CachedSessions) -> bool:
    """Tell whether all are new messages of cached sessions and of authors known there, and close no window."""
    joining: dict[str, list[tuple[MessageRecorded, datetime]]] = {}
    for delivery in deliveries:
        event = delivery.event
        if not isinstance(event, MessageRecorded) or event.origin != "stream" or delivery.asks_anew:
            return False
        joining.setdefault(event.session_id, []).append((event, delivery.envelope.time))
    sessions = cached.find(joining)
    return len(sessions) == len(joining) and all(
        session.stays_open(joining[name]) for name, session in sessions.items()
    )


ASIDE_SECONDS = 600.0
"""How long until a session is tried again."""


class SessionsAside:
    """Names sessions that failed, and why, until it is time to try them again; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._reasons: dict[str, tuple[float, str]] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def add(self, sessions: Iterable[str], what: str) -> None:
        """Set sessions aside that cannot be `what`: read, stored."""
        until = self._clock() + ASIDE_SECONDS
        for name in sessions:
            self._reasons[name] = until, f"session {name} cannot be {what}: the log says why"

    def lift(self, session_id: str | None) -> None:
        """Try a session again now."""
        self._reasons.pop(session_id or "", None)

    def reason(self, session_id: str | None) -> str | None:
        """Return why a session is set aside; None if it is not, or is to be tried again."""
        until, reason = self._reasons.get(session_id or "", (0.0, None))
        if reason is not None and until <= self._clock():
            self.lift(session_id)
            return None
        return reason


IN_A_SESSION = (MessageRecorded, SessionEnded, FormationAsked)
INCLUSIVE = "!"
"""Behind a version: above it, and below every later one (a position in a transaction follows a dot)."""


MOST_WAITING = 2_000
"""Deletions of a partition that wait at once, and as many that forgetting is to mark: readers look up all of them.
Further ones are erased at once."""
HIDDEN_FOR = timedelta(minutes=1)
"""After the request to erase is published: until then at least, what rests on the message is hidden."""
AskedErasure = tuple[str, str, str]
"""Session, message, version of the deletion."""


@dataclass(slots=True)
class Grace:
    """How long deletions wait in case the message is written again, and those of one partition that do."""

    time: timedelta = timedelta(0)
    secret: bytes = b""
    """Of the installation; it keys the hashes by which messages are known."""
    waiting: deque[datetime] = field(default_factory=deque[datetime])
    published: dict[AskedErasure, datetime] = field(default_factory=dict[AskedErasure, datetime])
    """Requests to erase that Kafka has confirmed, and the time of the Watermark behind each."""

    def until(self, time: datetime) -> datetime | None:
        """Return until when a deletion of that time waits; None: not at all."""
        while self.waiting and self.waiting[0] <= time:
            self.waiting.popleft()
        if not self.time or len(self.waiting) >= MOST_WAITING:
            return None
        self.waiting.append(time + self.time)
        return self.waiting[-1]


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
    marks: Marks = field(default_factory=Marks)
    """Requests to forget any of these messages, their sessions or authors."""
    sent: list[Emit | Erase] = field(default_factory=list[Emit | Erase])
    """Records to publish at once: deletions to be forgotten, texts that are not to be kept."""
    forgotten: list[str] = field(default_factory=list[str])
    """Forgotten messages that a window holds: their texts are erased there too."""
    superseded: dict[str, str] = field(default_factory=dict[str, str])
    """Messages that were edited after their formation: windows lose their texts up to this version."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of deliveries that are given up, with the reason for each."""
    counts: TriggerCounts = field(default_factory=TriggerCounts)
    due_scan: DueScan = field(default_factory=DueScan)
    asked_again: Set[str] = frozenset()
    """Requests to form added texts that a later one among the delivered records takes along."""
    grace: Grace = field(default_factory=Grace)
    erasing: Marks = field(default_factory=Marks)
    """Of deleted messages whose erasure was requested."""
    asked: dict[AskedErasure, datetime] = field(default_factory=dict[AskedErasure, datetime])
    """Erasures that are requested with `sent`, and the time of the Watermark behind each."""

    def __post_init__(self) -> None:
        self.due_scan.touched.update(self.sessions)

    def add(self, sessions: Mapping[str, Session]) -> None:
        """Add sessions that no record so far names, so that a Watermark may close them."""
        self.sessions.update(sessions)
        self.due_scan.touched.update(sessions)

    def takes(self, delivery: Delivery) -> bool:
        """Tell whether the record still belongs to this batch; if not, the batch is cut before it.

        A message that came into a session in this batch is stored with it before it moves on: what it was for that
        session, one author more, would be lost in a crash between the writes of the two sessions.
        """
        known, event = self.messages.known.get(delivery.key), delivery.event
        if isinstance(event, MessageRecorded) and delivery.key in self.messages.touched:
            assert known is not None
            if known.session_id != event.session_id:
                return False
        session = self.sessions.get(known.session_id) if known and known.session_id else None
        if session is None or known is None or not session.closed:
            return True
        return known.formation_id is None and not session.closes(delivery.key)

    def apply(self, delivery: Delivery) -> None:
        """Apply a record; a Watermark finds all sessions that it may close among `sessions`."""
        event, time = delivery.event, delivery.envelope.time
        match event:
            case MessageRecorded():
                self._recorded(event, delivery)
            case FormationAsked(if_due=True):
                self.due_scan.touched.add(event.session_id)
                self.sessions[event.session_id].judge(time, event.version)
            case SessionEnded() | FormationAsked():
                self.due_scan.touched.add(event.session_id)
                self._asked(self.sessions[event.session_id], control_of(event, time))
            case Watermark():
                for session in self.due_scan.passed(event.time, self.sessions):
                    if session.partition == self.partition:
                        session.passed(event.time, event.version + INCLUSIVE)
                self._erase_due(event.time)
            case _:
                self._ended(delivery)

    def own(self) -> list[Session]:
        """Return the sessions of this partition; others belong to another worker, and are only read."""
        return [session for session in self.sessions.values() if session.partition == self.partition]

    def _asked(self, session: Session, control: Control) -> None:
        if control.control_id not in self.asked_again:
            session.control(control)
        elif control.control_id not in session.controls:
            session.carried_out(control)

    def _recorded(self, event: MessageRecorded, delivery: Delivery) -> None:
        if (named := self._under_first_id(event, delivery)) is None:
            return
        event, time = named, delivery.envelope.time
        known = self.messages.known.get(event.message_id)
        if known and known.session_id != event.session_id and known.version <= event.version:
            leave(self._own(known.session_id), self.messages, event.message_id, event.version)
        session = self.sessions[event.session_id]
        self.due_scan.touched.add(event.session_id)
        if event.session_id in self.off.sessions:
            session.give_up(time)
        if self._is_alias_forgotten(event, delivery):
            self.sent.append(forgotten(event.message_id, event.version, event.session_id, time, delivery))
            self._forget(session, event, delivery)
            return
        if self._is_forgotten(event, known, time):
            self._forget(session, event, delivery)
            return
        if (up_to := forgets_up_to(event, known)) is not None:
            self.superseded[event.message_id] = up_to
            self.sent.append(forgotten(event.message_id, up_to, event.session_id, time, delivery, "edited"))
            self._hide_edited(session, event.message_id, up_to, time)
        if self.off.of(event.session_id, event.user_id) or stays_out(known, event):
            self._opted_out(session, event, delivery)
            return
        if not session.admits(event.participant):
            self._refuse(session, delivery)
            return
        same = hash_of(self.grace.secret, event) if self.grace.time else None
        if session.partition == self.partition and write_again(session, self.messages, event, time, same):
            known = self.messages.known[event.message_id]
            if known.alias_of is not None and event.first_id is None:
                self.sent.append(_naming(known.alias_of, event, delivery))
            return
        self.place += 1
        record(session, self.messages, event, time, self.place)
        message = self.messages.touched.get(event.message_id)
        if message is not None and message.version == event.version:
            message.same = same
            self._note_reuse(session, known, message)
        elif same and known and known.formation_id and (known.version, known.same) == (event.version, None):
            self.messages.put(replace(known, same=same))
        self.counts.empty += not event.text

    def _hide_edited(self, session: Session, message_id: str, up_to: str, time: datetime) -> None:
        """Hide what rests on the text of a message before its edit until forgetting has marked it."""
        hidden = [deletion for deletion in session.deletions if deletion.edited]
        known = any((edit.message_id, edit.version) == (message_id, up_to) for edit in hidden)
        room = len(self.grace.published) <= MOST_WAITING
        if not known and session.partition == self.partition and room:
            self.grace.published[session.session_id, message_id, up_to] = time
            edit = PendingDeletion(message_id, up_to, None, time, asked=True, edited=True)
            session.deletions.append(edit)
            session.changed = True

    def _note_reuse(self, session: Session, known: StoredMessage | None, message: StoredMessage) -> None:
        """Note on a message that its id was that of a formed one, whose deletion did not wait.

        The request to erase that one may not have been published: a redelivery of this record says it again.
        """
        if known is None or not (self.forgets and known.deleted and known.formation_id is not None):
            return
        pending = {(deletion.message_id, deletion.version) for deletion in session.deletions}
        if (known.message_id, known.version) not in pending:
            message.edit = Edit(message.version, known.version, None)

    def _under_first_id(self, event: MessageRecorded, delivery: Delivery) -> MessageRecorded | None:
        """Return the record of a message that was written again under its first id, any other as it is.

        None: it is a record of ours that came behind a newer one of the tailer. Its text must not stay the last:
        while the message is an alias, our record of the newer one follows; else a tombstone does.
        """
        known = self.messages.known.get(event.message_id)
        if known is None:
            return event
        if event.first_id is not None and known.version > event.version:
            if known.alias_of is None or known.deleted or known.forgotten:
                self.sent.append(
                    erased(delivery.key, event.version, event.session_id, delivery, reason="dropped")
                )
            return None
        if known.alias_of is None or known.deleted:
            return event
        if known.version < event.version:
            self.messages.put(replace(known, version=event.version, mapping=event.mapping))
        if event.first_id is None:
            self.sent.append(_naming(known.alias_of, event, delivery))
        return event.model_copy(update={"message_id": known.alias_of, "first_id": None})

    def _refuse(self, session: Session, delivery: Delivery) -> None:
        users = len(session.users)
        self.refused[delivery.id] = (
            f"session {session.session_id} has {users} users: messages of further users form no memory"
        )
        self.counts.refused += 1

    def _is_forgotten(self, event: MessageRecorded, known: StoredMessage | None, time: datetime) -> bool:
        """Tell whether a message is forgotten. Sessions and users are forgotten up to a time: its first counts."""
        if known is not None and known.forgotten:
            return True
        return bool(self.marks) and self.marks.source_gone(
            SourceMessage(
                message_id=event.message_id,
                version=event.version,
                session_id=event.session_id,
                user_id=event.user_id,
                time=known.time if known is not None else time,
            )
        )

    def _is_alias_forgotten(self, event: MessageRecorded, delivery: Delivery) -> bool:
        """Tell whether a message that was written again is forgotten by its new id.

        Forgetting may have looked for the first id before this stage stored it: nobody else forgets that then.
        """
        alias = MessageRef(message_id=delivery.key, version=event.version)
        return delivery.key != event.message_id and self.marks.message_gone(alias)

    def _forget(self, session: Session, event: MessageRecorded, delivery: Delivery) -> None:
        forget(session, self.messages, event, delivery.envelope.time)
        if self.messages.known[event.message_id].formation_id is not None:
            self.forgotten.append(event.message_id)
        self.sent.append(erased(delivery.key, event.version, event.session_id, delivery, reason="forgotten"))

    def _opted_out(self, session: Session, event: MessageRecorded, delivery: Delivery) -> None:
        if opt_out(session, self.messages, event, delivery.envelope.time):
            self.sent.append(erased(delivery.key, event.version, event.session_id, delivery))
            self.counts.opted_out += 1

    def _ended(self, delivery: Delivery) -> None:
        """Apply a tombstone: deleted, moved away, or missing (counted and noted; forgets nothing by itself)."""
        envelope = delivery.envelope
        message_id, version = envelope.subject, envelope.entity_version or ""
        known = self.messages.known.get(message_id)
        session = self._own(envelope.scope or (known.session_id if known else None))
        match envelope.reason:
            case "moved":
                leave(session, self.messages, message_id, version)
            case "forgotten":
                delete(self.messages, message_id, version, envelope.time, envelope.scope, forgotten=True)
                if session is not None:
                    session.drop(message_id)
            case "deleted":
                if self._waits_elsewhere(session, known, envelope.scope):
                    return
                if known is not None and known.alias_of is not None:
                    if known.version <= version and not known.deleted:
                        self.messages.put(replace(known, version=version, deleted=True))
                    message_id = known.alias_of
                    known = self.messages.known.get(message_id)
                waits = self._waits(session, known, delivery)
                delete(self.messages, message_id, version, envelope.time, envelope.scope)
                leave(session, self.messages, message_id, version + INCLUSIVE)
                if self.forgets and not waits:
                    session_id = envelope.scope or (known.session_id if known else None)
                    self.sent.append(forgotten(message_id, version, session_id, envelope.time, delivery))
            case "missing":
                self.counts.missing += 1
                if (missed := miss(known, version)) is not None:
                    self.messages.put(missed)
            case _:
                pass

    def _waits_elsewhere(
        self, session: Session | None, known: StoredMessage | None, scope: str | None
    ) -> bool:
        """Tell whether a tombstone that names no session, and so is in every partition, is another's to apply."""
        if not self.grace.time or known is None or known.formation_id is None:
            return False
        home = self.sessions.get(known.session_id or "")
        return scope is None and session is None and home is not None and home.stored

    def _waits(self, session: Session | None, known: StoredMessage | None, delivery: Delivery) -> bool:
        """Let the erasure of a formed message wait, in case it is written again; tell whether it does, or did.

        A repeated tombstone of a message that is written again since says nothing new.
        """
        version, time = delivery.envelope.entity_version or "", delivery.envelope.time
        if not self.grace.time or known is None or known.formation_id is None or known.forgotten:
            return False
        if session is None or session.session_id != known.session_id:
            return False
        if known.version > version:
            return True
        if known.deleted and known.version == version:
            # stored before; where it did not wait, perhaps not published
            return any(
                (deletion.message_id, deletion.version) == (known.message_id, version)
                for deletion in session.deletions
            )
        if (due := self.grace.until(time)) is None:
            return False
        session.deletions.append(PendingDeletion(known.message_id, version, known.same, due))
        session.changed = True
        return True

    def _erase_due(self, time: datetime) -> None:
        """Request the erasure of deleted messages that were not written again in time.

        A request is repeated until it is known to be published. Its message is hidden for a while longer, and until
        forgetting has marked it, as long as no more than MOST_WAITING are left.
        """
        for session in self.own():
            for deletion in [deletion for deletion in session.deletions if deletion.due < time]:
                name = session.session_id, deletion.message_id, deletion.version
                if deletion.edited:  # the request stands in the same batch
                    self.grace.published.setdefault(name, deletion.due)
                published = self.grace.published.get(name)
                hidden_long = published is not None and time - published >= HIDDEN_FOR
                ref = MessageRef(message_id=deletion.message_id, version=deletion.version)
                settled = self.erasing.message_gone(ref) or len(self.grace.published) > MOST_WAITING
                kept = not (self.forgets or deletion.edited)
                if kept or (hidden_long and settled):
                    session.deletions.remove(deletion)
                    self.grace.published.pop(name, None)
                    session.changed = True
                elif published is None and name not in self.asked:
                    session.changed = session.changed or not deletion.asked
                    deletion.asked = True
                    self.asked[name] = time
                    gone = deletion.message_id, deletion.version, session.session_id
                    self.sent.append(forgotten(*gone, deletion.due))

    def _own(self, session_id: str | None) -> Session | None:
        session = self.sessions.get(session_id) if session_id is not None else None
        if session is None or session.partition != self.partition:
            return None
        self.due_scan.touched.add(session.session_id)
        return session


def control_of(event: SessionEnded | FormationAsked, time: datetime) -> Control:
    """Return the control that a record of that time means for its session."""
    because = "ended" if isinstance(event, SessionEnded) else "asked"
    return Control(because, event.inbox_id, event.version, time, event.asked_by)


def asked_again(deliveries: Iterable[Delivery]) -> set[str]:
    """Return requests to form added texts that another request of the same session follows.

    The later one closes one window over the texts of all of them. It is a record already, so it comes, whatever
    happens to this batch.
    """
    last: dict[str, str] = {}
    earlier: set[str] = set()
    for delivery in deliveries:
        event = delivery.event
        if isinstance(event, FormationAsked | SessionEnded) and whose(event.session_id) is not None:
            if (before := last.get(event.session_id, event.inbox_id)) != event.inbox_id:
                earlier.add(before)
            last[event.session_id] = event.inbox_id
    return earlier


def messages_named(deliveries: Sequence[Delivery]) -> list[str]:
    """Return the ids of the messages that the records refer to."""
    return [
        delivery.key
        for delivery in deliveries
        if delivery.event is None or isinstance(delivery.event, MessageRecorded)
    ] + [
        delivery.event.first_id
        for delivery in deliveries
        if isinstance(delivery.event, MessageRecorded) and delivery.event.first_id is not None
    ]


def newest_time(deliveries: Sequence[Delivery]) -> datetime | None:
    """Return the time of the last message among the records, if there is one."""
    times = (
        delivery.envelope.time
        for delivery in reversed(deliveries)
        if isinstance(delivery.event, MessageRecorded)
    )
    return next(times, None)


def session_named(delivery: Delivery) -> str | None:
    """Return the id of the session that a record refers to, if any."""
    event = delivery.event
    return event.session_id if isinstance(event, IN_A_SESSION) else delivery.envelope.scope


def sessions_named(deliveries: Iterable[Delivery]) -> list[str]:
    """Return the ids of the sessions that the records refer to."""
    return [name for name in map(session_named, deliveries) if name is not None]


def forgettable(deliveries: Iterable[Delivery]) -> set[tuple[str, str]]:
    """Return (kind, id) of everything whose forgetting concerns these messages."""
    found: set[tuple[str, str]] = set()
    for delivery in deliveries:
        event = delivery.event
        if isinstance(event, MessageRecorded):
            found.add(("message", event.message_id))
            found.add(("session", event.session_id))
            if event.user_id is not None:
                found.add(("user", event.user_id))
    return found


def is_reread(delivery: Delivery) -> bool:
    """Tell whether a message was read again with a corrected field mapping."""
    return isinstance(delivery.event, MessageRecorded) and delivery.event.origin == "reread"


def misnamed(deliveries: Iterable[Delivery], known: Mapping[str, StoredMessage]) -> dict[str, set[str]]:
    """Return, by session, authors whose messages a corrected field mapping gives to somebody else, or to nobody."""
    found: dict[str, set[str]] = {}
    for delivery in deliveries:
        event, before = delivery.event, known.get(delivery.key)
        if before is None or not isinstance(event, MessageRecorded):
            continue
        was, reads = before.user_id, is_reread(delivery) or takes_back_author(event, before)
        if reads and was is not None and before.session_id is not None and was != event.participant:
            found.setdefault(before.session_id, set()).add(was)
    return found


def authors(sessions: Iterable[Session], deliveries: Iterable[Delivery]) -> dict[str, set[str]]:
    """Return who takes part in each session by writing so far, these records included."""
    found = {session.session_id: set(session.users) for session in sessions}
    for delivery in deliveries:
        event = delivery.event
        if isinstance(event, MessageRecorded) and event.participant is not None and event.session_id in found:
            found[event.session_id].add(event.participant)
    return found


def named_on_answers(sessions: Iterable[Session], deliveries: Iterable[Delivery]) -> set[str]:
    """Return the ids that messages of the agent's side bear, waiting ones and these records."""
    waiting = (message for session in sessions for message in session.held.values())
    events = (delivery.event for delivery in deliveries if isinstance(delivery.event, MessageRecorded))
    return {
        message.user_id
        for message in (*waiting, *events)
        if message.user_id is not None and message.participant is None
    }


def erased(
    message_id: str,
    version: str,
    session_id: str,
    cause: Delivery | None = None,
    time: datetime | None = None,
    reason: str = "opted_out",
) -> Erase:
    """Return the tombstone that takes a text out of `chat.messages`: forgotten, or its author switched off."""
    return Erase(
        MessageRecorded,
        key=message_id,
        ordering_key=session_id,
        subject=message_id,
        reason=reason,
        entity_version=version,
        scope=session_id,
        cause=cause,
        time=time,
        identity=f"{reason}/{message_id}@{version}",
    )


def _naming(first_id: str, event: MessageRecorded, delivery: Delivery) -> Emit:
    """Return the record of a message that was written again, with its first id: what restores this state reads it."""
    named = event.model_copy(update={"first_id": first_id})
    return Emit(named, cause=delivery, identity=f"{event.message_id}@{event.version}/again")


def forgotten(
    message_id: str,
    version: str,
    session_id: str | None,
    time: datetime,
    cause: Delivery | None = None,
    because: Literal["deleted", "edited"] = "deleted",
) -> Emit:
    """Return the record that has memory forget a message, which was deleted or edited, up to that version."""
    event = Forgotten(
        kind="message",
        id=message_id,
        reach="up_to_version",
        version=version,
        because=because,
        asked_by=None,
        session_id=session_id,
        forgotten_at=time,
    )
    identity = f"forgotten/{event.key()}@{version}"
    return Emit(event, cause=cause, time=None if cause is not None else time, identity=identity)
