"""chat.messages → memory.formations, memory.forgotten: cuts sessions into windows; batch form.

State and outcome are one document per session, written if nobody else has since it was read; what it says is
published, then cleared from it. A redelivered batch finds everything done and changes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from eden_memory.domain.participants import Missing, SessionFacts
from eden_memory.domain.stage import Decision, Delivery, Emit, Retry
from eden_memory.domain.trigger import Messages, Session, delete, leave, members_of, record
from eden_memory.domain.window_request import StoredWindow, request, requests_in_order, stored_window
from eden_memory.ports import Directory, TriggerStore
from schemas.events import Forgotten, FormationAsked, MessageRecorded, SessionEnded, Watermark

MOST_DUE = 1_000
"""Sessions that one watermark closes; the next one takes the rest."""


@dataclass(slots=True)
class Batch:
    """A batch of records while it is worked on."""

    partition: int
    sessions: dict[str, Session]
    messages: Messages
    windows: dict[str, StoredWindow] = field(default_factory=dict[str, StoredWindow])
    new: list[StoredWindow] = field(default_factory=list[StoredWindow])
    events: list[Emit] = field(default_factory=list[Emit])


class FormationTrigger:
    """`forgets`: whether a deletion seen in the stream is forgotten in memory too."""

    def __init__(
        self, store: TriggerStore, directory: Directory, settings_version: str, *, forgets: bool = True
    ) -> None:
        self._store, self._directory = store, directory
        self._settings_version, self._forgets = settings_version, forgets
        self._confirmed: list[tuple[str, str]] = []

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision | Retry:
        """One batch of one partition."""
        if self._confirmed:
            confirmed, self._confirmed = self._confirmed, []
            await self._store.published(confirmed)
        batch = await self._read(deliveries)
        for delivery in deliveries:
            await self._apply(batch, delivery)
        await self._close(batch, deliveries[-1])
        if not await self._write(batch):
            return Retry("a session was changed meanwhile", after=0.05)
        return self._decision(batch)

    async def _read(self, deliveries: Sequence[Delivery]) -> Batch:
        ids = [one.key for one in deliveries if one.event is None or isinstance(one.event, MessageRecorded)]
        known = await self._store.messages(ids)
        named = [one.event.session_id for one in deliveries if isinstance(one.event, _IN_A_SESSION)]
        held = [one.session_id for one in known.values() if one.session_id is not None]
        partition = deliveries[0].partition
        sessions = await self._store.sessions(dict.fromkeys([*named, *held]), partition)
        return Batch(partition, sessions, Messages(known))

    async def _apply(self, batch: Batch, delivery: Delivery) -> None:
        event, time = delivery.event, delivery.envelope.time
        match event:
            case MessageRecorded():
                session = batch.sessions[event.session_id]
                self._left(batch, event)
                record(session, batch.messages, event, time)
            case SessionEnded():
                batch.sessions[event.session_id].control("ended", time, event.inbox_id, event.asked_by)
            case FormationAsked():
                batch.sessions[event.session_id].control("asked", time, event.inbox_id, event.asked_by)
            case Watermark():
                await self._passed(batch, event)
            case _:
                self._ended(batch, delivery)

    def _left(self, batch: Batch, event: MessageRecorded) -> None:
        """A message that is now in another session no longer waits where it was."""
        known = batch.messages.known.get(event.message_id)
        if known and known.session_id != event.session_id and known.version <= event.version:
            leave(self._own(batch, known.session_id), event.message_id)

    def _ended(self, batch: Batch, delivery: Delivery) -> None:
        """A tombstone: deleted, moved away, or missing (which is counted, and changes nothing by itself)."""
        message_id, version = delivery.envelope.subject, delivery.envelope.entity_version or ""
        known = batch.messages.known.get(message_id)
        session = self._own(batch, known.session_id if known else None)
        if delivery.envelope.reason == "moved":
            if known is not None and known.version < version:
                leave(session, message_id)
        elif delivery.envelope.reason == "deleted":
            delete(session, batch.messages, message_id, version, delivery.envelope.time)
            if self._forgets:
                batch.events.append(_forgotten(delivery, known.session_id if known else None))

    def _own(self, batch: Batch, session_id: str | None) -> Session | None:
        """A session of this partition; those of others are another worker's."""
        session = batch.sessions.get(session_id) if session_id is not None else None
        return session if session is not None and session.partition == batch.partition else None

    async def _passed(self, batch: Batch, event: Watermark) -> None:
        """Close what has gone cold by then, and look again at what waits or is unpublished."""
        due = await self._store.due(batch.partition, event.time, MOST_DUE)
        unread = [one for one in due if one not in batch.sessions]
        batch.sessions.update(await self._store.sessions(unread, batch.partition))
        for session in batch.sessions.values():
            if session.partition == batch.partition:
                session.close(session.pending.passed(event.time))

    async def _close(self, batch: Batch, last: Delivery) -> None:
        """Turn what was closed into windows, and write the requests that can be written."""
        closing = [session for session in batch.sessions.values() if session.closed]
        needed = {
            one.message_id for session in closing for closed in session.closed for one in closed.messages
        }
        unread = await self._store.messages(needed - set(batch.messages.known))
        batch.messages.known.update(unread)
        for session in closing:
            for closed in session.closed:
                members = members_of(session, closed, batch.messages.known)
                if members or closed.because == "ended":
                    batch.new.append(stored_window(session, closed, members, last.envelope.traceparent))
        older = {entry.formation_id for session in batch.sessions.values() for entry in session.outbox}
        new = {window.formation_id: window for window in batch.new}
        batch.windows = {**await self._store.windows(older - set(new)), **new}
        await self._request(batch)

    async def _request(self, batch: Batch) -> None:
        open_windows = [one for one in batch.windows.values() if one.requested is None]
        facts = await self._directory.look_up(dict.fromkeys(one.session_id for one in open_windows))
        for window in sorted(open_windows, key=_order):
            session, found = batch.sessions[window.session_id], facts[window.session_id]
            _judge(session, found)
            if isinstance(found, SessionFacts):
                request(window, session, found, self._settings_version)
                if window not in batch.new:
                    batch.new.append(window)

    async def _write(self, batch: Batch) -> bool:
        """Messages, then windows, then the sessions that make both count, then the messages' formations."""
        await self._store.put_messages(batch.messages.touched.values())
        await self._store.put_windows(batch.new)
        changed = [session for session in batch.sessions.values() if session.changed]
        if not await self._store.put_sessions(changed):
            return False
        await self._store.claim(
            [
                (one.session_id, entry)
                for one in batch.sessions.values()
                for entry in one.outbox
                if entry.members
            ]
        )
        return True

    def _decision(self, batch: Batch) -> Decision:
        ready = [
            window
            for session in batch.sessions.values()
            for window in requests_in_order(session, batch.windows)
        ]
        events = [*batch.events, *(_emit(window) for window in ready)]
        sent = [(window.session_id, window.formation_id) for window in ready]
        return Decision(events, published=self._remember(sent))

    def _remember(self, sent: Iterable[tuple[str, str]]) -> Callable[[], None]:
        return lambda: self._confirmed.extend(sent)


_IN_A_SESSION = (MessageRecorded, SessionEnded, FormationAsked)


def _judge(session: Session, found: SessionFacts | Missing) -> None:
    reason = found.reason if isinstance(found, Missing) else None
    if session.waits_for != reason or reason is None:
        session.waits_for, session.changed = reason, True


def _emit(window: StoredWindow) -> Emit:
    """The same record at every attempt: its id is the formation's."""
    assert window.requested is not None
    return Emit(
        window.requested,
        time=window.closed.at,
        identity=f"formation/{window.formation_id}",
        traceparent=window.traceparent,
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
        session_id=session_id or delivery.envelope.scope,
        forgotten_at=delivery.envelope.time,
    )
    return Emit(event, cause=delivery, identity=f"forgotten/{event.key()}@{version}")


def _order(window: StoredWindow) -> tuple[str, int]:
    return window.session_id, window.seq
