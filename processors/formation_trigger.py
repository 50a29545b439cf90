"""chat.messages → memory.formations, memory.forgotten: cuts sessions into windows; batch form.

State and outcome are one document per session, written if nobody else has since it was read; what it says is
published, then cleared from it. A redelivered batch finds everything done and changes nothing.
"""

from asyncio import gather
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from eden_memory.domain.participants import Missing, SessionFacts
from eden_memory.domain.stage import Decision, Delivery, Emit, Retry
from eden_memory.domain.trigger import Messages, Session, members_of
from eden_memory.domain.trigger_batch import Batch, messages_named, sessions_named
from eden_memory.domain.window_request import (
    SessionWrite,
    StoredWindow,
    note_requests,
    publishable,
    request,
    stored_window,
)
from eden_memory.ports import Directory, TriggerStore, TriggerWatch
from schemas.events import Watermark

MOST_DUE = 1_000
"""Sessions that one watermark closes, and as many that it looks up again; the next one takes the rest."""
MOST_CONFLICTS = 10
"""How often a batch is read anew because somebody else wrote first, before it is tried again later."""


@dataclass(slots=True)
class Closing:
    """The windows of a batch on their way out."""

    writes: dict[str, SessionWrite] = field(default_factory=dict[str, SessionWrite])
    windows: dict[str, StoredWindow] = field(default_factory=dict[str, StoredWindow])


class FormationTrigger:
    """`forgets`: whether a deletion seen in the stream is forgotten in memory too."""

    def __init__(
        self,
        store: TriggerStore,
        directory: Directory,
        settings_version: str,
        watch: TriggerWatch,
        *,
        forgets: bool = True,
    ) -> None:
        self._store, self._directory, self._watch = store, directory, watch
        self._settings_version, self._forgets = settings_version, forgets
        self._confirmed: dict[int, list[tuple[str, str]]] = {}
        self._looked_at: dict[int, str] = {}

    async def __call__(self, deliveries: Sequence[Delivery]) -> Decision | Retry:
        """One batch of one partition, cut where it must be."""
        partition = deliveries[0].partition
        if confirmed := self._confirmed.pop(partition, None):
            await self._store.published(confirmed)
        left, conflicts = list(deliveries), 0
        forgotten: list[Emit] = []
        ready: dict[str, StoredWindow] = {}
        while left:
            batch = await self._read(left)
            taken = await self._apply(batch, left)
            closing = await self._close(batch, left[taken - 1].envelope.traceparent)
            if await self._write(batch, closing):
                left = left[taken:]
                forgotten += batch.forgotten
                ready |= await self._ready(batch, closing)
            elif (conflicts := conflicts + 1) > MOST_CONFLICTS:
                return Retry("a session was changed meanwhile, again and again", after=1.0)
        sent = [(window.session_id, name) for name, window in ready.items()]
        events = [*forgotten, *map(_emit, ready.values())]
        return Decision(events, published=self._remember(partition, sent))

    async def _read(self, deliveries: Sequence[Delivery]) -> Batch:
        partition = deliveries[0].partition
        named = dict.fromkeys(sessions_named(deliveries))
        known, sessions = await gather(
            self._store.messages(messages_named(deliveries)), self._store.sessions(named, partition)
        )
        held = {one.session_id for one in known.values() if one.session_id is not None}
        if unread := held - set(named):
            sessions |= await self._store.sessions(unread, partition)
        return Batch(partition, sessions, Messages(known), self._forgets)

    async def _apply(self, batch: Batch, deliveries: Sequence[Delivery]) -> int:
        """How many of the records the batch took: at least one."""
        for index, delivery in enumerate(deliveries):
            if not batch.takes(delivery):
                return index
            full = isinstance(delivery.event, Watermark) and await self._add_due(batch, delivery.event)
            batch.apply(delivery)
            if full:
                return index + 1
        return len(deliveries)

    async def _add_due(self, batch: Batch, event: Watermark) -> bool:
        """Read what goes cold by then, and, in turn, what waits or was left unpublished.

        Whether there may be more: then the batch ends here, so that a watermark after it finds the rest.
        """
        partition = batch.partition
        due = await self._store.due(partition, event.time, MOST_DUE)
        left = await self._store.unpublished(partition, self._looked_at.get(partition, ""), MOST_DUE)
        self._looked_at[partition] = left[-1] if len(left) == MOST_DUE else ""
        unread = dict.fromkeys(one for one in [*due, *left] if one not in batch.sessions)
        batch.sessions.update(await self._store.sessions(unread, partition))
        self._watch.waiting(partition, await self._store.waiting(partition))
        return len(due) == MOST_DUE

    async def _close(self, batch: Batch, traceparent: str | None) -> Closing:
        """Turn what was closed into windows, and write the requests that can be written."""
        closing = Closing()
        await self._read_members(batch)
        for session in batch.own():
            for closed in session.closed:
                members = members_of(session, closed, batch.messages.known)
                if members or closed.because == "ended":
                    window = stored_window(session, closed, members, traceparent)
                    closing.windows[window.formation_id] = window
                    closing.writes.setdefault(session.session_id, SessionWrite(session)).new.append(window)
                    batch.counts.windows[closed.because] += 1
        await self._request(batch, closing)
        return closing

    async def _read_members(self, batch: Batch) -> None:
        needed = {
            one.message_id
            for session in batch.own()
            for closed in session.closed
            for one in closed.messages
            if one.message_id not in batch.messages.known
        }
        batch.messages.known.update(await self._store.messages(needed))

    async def _request(self, batch: Batch, closing: Closing) -> None:
        """Look up the sessions that closed a window or wait; those that wait no more have all requests written."""
        asking = [one for one in batch.own() if one.session_id in closing.writes or one.waits_for is not None]
        facts = await self._directory.look_up([one.session_id for one in asking])
        found = [one for one in asking if not _waits(one, facts[one.session_id])]
        waited = [
            entry.formation_id
            for one in found
            for entry in one.outbox
            if not entry.requested and entry.formation_id not in closing.windows
        ]
        for window in (await self._store.windows(waited)).values():
            closing.windows[window.formation_id] = window
            session = batch.sessions[window.session_id]
            closing.writes.setdefault(session.session_id, SessionWrite(session)).requested.append(window)
        for window in sorted(closing.windows.values(), key=_order):
            known = facts[window.session_id]
            if isinstance(known, SessionFacts) and window.requested is None:
                request(window, batch.sessions[window.session_id], known, self._settings_version)
        for session in found:
            note_requests(session, closing.windows)

    async def _write(self, batch: Batch, closing: Closing) -> bool:
        """Messages, then the sessions that make them count; False: somebody else was first, read anew."""
        if not await self._store.put_messages(batch.messages.touched.values()):
            return False
        changed = [session for session in batch.own() if session.changed]
        writes = [closing.writes.get(one.session_id) or SessionWrite(one) for one in changed]
        if not await self._store.put_sessions(writes):
            return False
        self._watch.wrote(batch.counts)
        return True

    async def _ready(self, batch: Batch, closing: Closing) -> dict[str, StoredWindow]:
        """What can be published of the sessions at hand, in order: the new, and what an earlier attempt left."""
        names = [name for session in batch.own() for name in publishable(session)]
        left = await self._store.windows(name for name in names if name not in closing.windows)
        windows = {**closing.windows, **left}
        return {name: windows[name] for name in names if name in windows}

    def _remember(self, partition: int, sent: Iterable[tuple[str, str]]) -> Callable[[], None]:
        return lambda: self._confirmed.setdefault(partition, []).extend(sent)


def _waits(session: Session, found: SessionFacts | Missing) -> bool:
    """Note what a session waits for, and whether it does."""
    reason = found.reason if isinstance(found, Missing) else None
    if session.waits_for != reason:
        session.waits_for, session.changed = reason, True
    return reason is not None


def _emit(window: StoredWindow) -> Emit:
    """The same record at every attempt: its id is the formation's."""
    assert window.requested is not None
    return Emit(
        window.requested,
        time=window.closed.at,
        identity=f"formation/{window.formation_id}",
        traceparent=window.traceparent,
    )


def _order(window: StoredWindow) -> tuple[str, int]:
    return window.session_id, window.seq
