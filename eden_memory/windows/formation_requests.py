"""Closed windows become formation requests, with the messages before them, as documents and budgets allow."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from eden_memory.directory.participants import (
    Directory,
    Missing,
    Off,
    SessionFacts,
    given_to_all,
    scopes_of,
    whose,
)
from eden_memory.errors import describe
from eden_memory.forgotten import Marks
from eden_memory.logs import LibraryLogger
from eden_memory.names import traceparent
from eden_memory.schemas.events import FormationRequested
from eden_memory.schemas.fields import Part
from eden_memory.schemas.provenance import MessageRef, SourceMessage
from eden_memory.schemas.scopes import LISTED_USERS, Scope, SharedSessions, Sharing
from eden_memory.usage.budget_rules import AskedWindow, HeldWindow, WindowBudgets, WindowCost, users_alone
from eden_memory.windows.session_state import Session, StoredMessage, UnpublishedWindow, formation_id
from eden_memory.windows.trigger_batch import Batch
from eden_memory.windows.window_rule import Closed, weighted_tokens

log = LibraryLogger()


@dataclass(slots=True)
class StoredWindow:
    """A document of `memory_windows`."""

    formation_id: str
    session_id: str
    seq: int
    messages: tuple[StoredMessage, ...]
    closed: Closed
    traceparent: str | None
    names: dict[str, str] = field(default_factory=dict[str, str])
    requested: FormationRequested | None = None
    """Written once; None while the session waits for a document."""
    value: bytes | None = None
    """The request, byte for byte."""
    left_out: tuple[MessageRef, ...] = ()
    """Messages of those who are switched off: no text of them is kept."""
    before: tuple[StoredMessage, ...] = ()
    """Messages right before the window, which explain it."""
    in_flight: WindowCost | None = None
    """What its formation is expected to cost, where a budget concerns it, until all its calls are counted."""

    settled: bool = False
    """It can be published; without a request if nothing was left to ask for."""


class WindowAudience(Part):
    """The fields of a request that say whom its window reaches."""

    scopes: tuple[Scope, ...]
    users: tuple[str, ...]
    private_users: tuple[str, ...] = ()
    sharing: Sharing = "team"
    shared_sessions: SharedSessions = "session"


@dataclass(frozen=True, slots=True)
class EarlierWindow:
    """What is read of a stored window that may explain the next: its last messages, and whom it reached."""

    messages: tuple[StoredMessage, ...]
    requested: WindowAudience | None
    edited: bool = False
    """Whether it is about an edit: it stands where the edit was made, and explains nothing."""


@dataclass(slots=True)
class SessionWrite:
    """The part of a session that is stored together, or not at all."""

    session: Session
    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    """Those that the batch touched and that are this session's now."""
    new: list[StoredWindow] = field(default_factory=list[StoredWindow])
    """Windows that closed: their members bear the formation from then on."""
    requested: list[StoredWindow] = field(default_factory=list[StoredWindow])
    """Windows that waited, and whose request is now written."""


@dataclass(slots=True)
class BatchWrite:
    """The writes of a batch, stored if nobody else has written to the partition since it was read."""

    partition: int
    seen: int
    """The partition's last place, as it was read."""
    last: int
    """The last place that the batch gave to a message."""
    messages: list[StoredMessage] = field(default_factory=list[StoredMessage])
    sessions: list[Session] = field(default_factory=list[Session])
    """With `messages`: of sessions that closed nothing; stored together."""
    closing: list[SessionWrite] = field(default_factory=list[SessionWrite])
    forgotten: list[str] = field(default_factory=list[str])
    """Messages whose texts closed windows lose before anything else is stored."""
    superseded: dict[str, str] = field(default_factory=dict[str, str])
    """The same for versions up to this one."""
    failed: list[str] = field(default_factory=list[str])
    """Sessions of which nothing could be stored, because MongoDB refuses a document: the store adds them."""

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to store."""
        return not (self.messages or self.sessions or self.closing or self.forgotten or self.superseded)


def stored_window(session: Session, closed: Closed, members: Sequence[StoredMessage]) -> StoredWindow:
    """Make the next window of a session and add it to the outbox; its last message, or a request, is its cause."""
    session.seq += 1
    name = formation_id(session.session_id, session.seq, members)
    session.outbox.append(UnpublishedWindow(name, session.seq))
    cause = f"inbox/{closed.control_id}" if closed.control_id else name
    if members:
        cause = f"{members[-1].message_id}@{members[-1].version}"
    trace = traceparent(session.session_id, cause)
    return StoredWindow(name, session.session_id, session.seq, tuple(members), closed, trace)


def leave_out(window: StoredWindow, off: Off, replaced: Collection[str] = ()) -> None:
    """Remove the messages of switched-off users from a window, and those in whose place others are shown; request
    nothing if none are left.
    """
    anybody = off.users or window.session_id in off.sessions
    gone = {
        message.message_id
        for message in window.messages
        if (anybody and off.of(window.session_id, message.user_id)) or message.message_id in replaced
    }
    if gone:
        taken = [message for message in window.messages if message.message_id in gone]
        window.left_out = (*window.left_out, *refs(taken))
        window.messages = tuple(message for message in window.messages if message.message_id not in gone)
    ended = window.closed.because == "ended" and window.session_id not in off.sessions
    window.settled = not (window.messages or ended)


def asked_window(window: StoredWindow, facts: SessionFacts) -> AskedWindow:
    """Return the window as budgets see it."""
    _, participants = _taking_part(window, facts)
    return AskedWindow(
        window.formation_id,
        window.session_id,
        facts.agent_id,
        users_alone(participants),
        sum(message.characters for message in window.messages),
        facts.tier,
    )


def hears_users(window: StoredWindow) -> bool:
    """Tell whether a user is behind a window whom nobody may name: one wrote, or an answer bears somebody's id.

    Texts that the operator added without a user have none.
    """
    return whose(window.session_id) is None and any(
        message.role == "user" or message.user_id is not None for message in window.messages
    )


def _authors(window: StoredWindow) -> list[str]:
    """Return who takes part by writing, message by message."""
    return [message.participant for message in window.messages if message.participant is not None]


def _taking_part(window: StoredWindow, facts: SessionFacts) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the session's users, and the participants: users and authors of the window's messages."""
    authors = _authors(window)
    users = facts.users if facts.users is not None else _distinct(*window.closed.users, *authors)
    return users, _distinct(*users, *authors)


def _named(participants: Sequence[str], authors: Sequence[str], private: Collection[str]) -> tuple[str, ...]:
    """Return the participants that a record names: of many the authors, then those with private memory."""
    if len(participants) <= LISTED_USERS:
        return tuple(participants)
    chosen = _distinct(*authors, *(user for user in participants if user in private), *participants)
    return chosen[: max(LISTED_USERS, len(authors))]


def names_of(facts: SessionFacts, participants: Sequence[str]) -> dict[str, str]:
    """Return the names of the agent and of these users."""
    others = set(facts.users or ()).difference(participants)
    return {named: name for named, name in facts.names.items() if named not in others}


def request(
    window: StoredWindow,
    session: Session,
    facts: SessionFacts,
    settings_version: str,
) -> None:
    """Write the request: who takes part, and where memory may go, as the application says now.

    `settle` follows, once everything is in it.
    """
    if window.closed.more:  # all seen so far count
        window.closed = replace(window.closed, users=_distinct(*window.closed.users, *session.users))
    users, participants = _taking_part(window, facts)
    generation = session.audiences.generation_of(users)
    begins = generation is None or (
        window.requested is not None and window.requested.audience_change is not None
    )
    if generation is None:
        session.audiences = session.audiences.followed_by(users)
        generation = len(session.audiences.changes)
    audience = session.audiences.audience_of(generation)
    times = [message.time for message in window.messages]
    given, added = given_to_all(window.session_id), whose(window.session_id)
    written = _distinct(*_authors(window))
    authors = written if facts.shared_sessions == "authors" and not given else ()
    scopes = scopes_of(
        facts,
        window.session_id,
        users,
        participants,
        audience,
        generation,
        heard=hears_users(window),
        given=given,
        shard=added and added.shard,
        authors=authors,
    )
    named = _named(participants, written, facts.private_users)
    window.names = names_of(facts, named)
    window.requested = FormationRequested(
        formation_id=window.formation_id,
        session_id=window.session_id,
        seq=window.seq,
        agent_id=facts.agent_id,
        group_id=facts.group_id,
        users=users[:LISTED_USERS],
        participants=named,
        private_users=tuple(user for user in facts.private_users if user in named),
        tier=facts.tier,
        scopes=scopes,
        sharing=facts.sharing,
        shared_sessions=facts.shared_sessions,
        forms=facts.forms,
        messages=refs(window.messages),
        characters=sum(message.characters for message in window.messages),
        weighted_tokens=round(
            sum(weighted_tokens(message.text or "", message.role) for message in window.messages), 3
        ),
        first_at=min(times, default=None),
        last_at=max(times, default=None),
        closed_because=window.closed.because,
        closed_at=window.closed.at,
        control_id=window.closed.control_id,
        asked_by=window.closed.asked_by,
        settings_version=settings_version,
        audience_change=session.audiences.change_of(generation) if begins else None,
    )


def settle(window: StoredWindow) -> None:
    """Write the bytes of a window's request, which can be published from then on."""
    assert window.requested is not None
    window.value, window.settled = window.requested.json_bytes(), True


def publishable(session: Session) -> list[str]:
    """Return the windows of a session's outbox that can be published: in order, up to the first that waits."""
    ready: list[str] = []
    for entry in sorted(session.outbox, key=_seq):
        if not entry.requested:
            break
        ready.append(entry.formation_id)
    return ready


def note_requests(session: Session, windows: Mapping[str, StoredWindow]) -> None:
    """Note in the outbox which windows can be published."""
    for entry in session.outbox:
        window = windows.get(entry.formation_id)
        entry.requested = entry.requested or (window is not None and window.settled)


def refs(messages: Sequence[StoredMessage]) -> tuple[MessageRef, ...]:
    """Return the names of messages, with their versions."""
    return tuple(MessageRef(message_id=message.message_id, version=message.version) for message in messages)


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _seq(entry: UnpublishedWindow) -> int:
    return entry.seq


class Windows(Protocol):
    """The texts of closed windows."""

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        """Return those of the windows whose texts are still there."""
        ...


class TriggerStore(Windows, Protocol):
    """The store of messages, sessions and closed windows that formation-trigger works with."""

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        """Return sessions with the messages that wait in them; one that has no document is of `partition`."""
        ...

    async def authors_among(
        self, session_id: str, users: Collection[str], besides: Collection[str]
    ) -> set[str]:
        """Return those of the users who take part in a session by writing, messages `besides` left out."""
        ...

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        """Return the sessions of a partition that have gone cold or stale by `time`, the longest ago first."""
        ...

    async def unpublished(self, partition: int, after: str, most: int) -> list[str]:
        """Return the sessions of a partition with something in the outbox, by id, from behind the id `after` on."""
        ...

    async def waiting(self, partition: int) -> int:
        """Count the sessions of a partition that wait for a document."""
        ...

    async def messages(self, ids: Iterable[str]) -> dict[str, StoredMessage]:
        """Return those of the messages that are known."""
        ...

    async def windows_at(
        self, places: Collection[tuple[str, int]], most: int
    ) -> dict[tuple[str, int], EarlierWindow]:
        """Return windows by session and number, with their last messages, `most` at most."""
        ...

    async def erase_in_windows(self, message_ids: Sequence[str]) -> None:
        """Erase the texts of messages in closed windows, and where they explain others."""
        ...

    async def place(self, partition: int) -> int:
        """Return the last place given to a message of a partition; every write to the partition moves it on."""
        ...

    async def put(self, write: BatchWrite) -> int | None:
        """Store a batch if the partition's last place is still as it was seen; return its last place now.

        None: somebody else was first, or a message is no longer as it was read: read again. What stands together
        in the write changes together: a session that closes windows with the messages that the batch touched, its
        windows, and the formations that their members bear from then on (and whose text leaves the message); all
        other messages and sessions among themselves.
        """
        ...

    async def published(self, entries: Sequence[tuple[str, str]]) -> None:
        """Clear (session id, formation id) from the outboxes: they are confirmed."""
        ...


def texts_of(message_ids: Sequence[str]) -> dict[str, Any]:
    """Return the projection of a window that leaves in it these messages alone, of the many that it may show."""
    return {"$filter": {"input": "$messages", "cond": {"$in": ["$$this.message_id", list(message_ids)]}}}


WindowPlace = tuple[str, int]
"""A session and the number of a window in it."""


def place_before(window: StoredWindow) -> WindowPlace | None:
    """Return where the window before this one is; None for a session's first, for added texts and for edits."""
    first, alone = window.seq == 1 or not window.messages, whose(window.session_id) is not None
    if first or alone or window.closed.because == "edited":
        return None
    return window.session_id, window.seq - 1


@dataclass(frozen=True, slots=True)
class EarlierWindows:
    """The windows before others, and their messages as they are now."""

    windows: Mapping[WindowPlace, StoredWindow | EarlierWindow] = field(
        default_factory=dict[WindowPlace, StoredWindow | EarlierWindow]
    )
    messages: Mapping[str, StoredMessage] = field(default_factory=dict[str, StoredMessage])
    most: int = 0
    """Messages of one window."""
    former: Mapping[str, StoredWindow] = field(default_factory=dict[str, StoredWindow])
    """Of windows that closed over an edit: those in which the message stood before."""

    def explain(self, window: StoredWindow, off: Off) -> None:
        """Add to a requested window the messages before it, if the same people hear both.

        Messages of authors who are switched off by now are left out, whenever they were written.
        """
        former = self.former.get(window.formation_id)
        earlier = former or self.windows.get(place_before(window) or ("", 0))
        asked, before = window.requested, earlier.requested if earlier else None
        if earlier is None or asked is None or before is None or _audience(asked) != _audience(before):
            return
        found = earlier.messages if former is None else _in_front(former, window)
        last = found[-self.most :] if self.most else ()
        window.before = tuple(
            message
            for message in last
            if self._may_explain(message, asked) and not off.of(window.session_id, message.user_id)
        )
        window.requested = asked.model_copy(update={"before": refs(window.before)})

    def _may_explain(self, message: StoredMessage, asked: FormationRequested) -> bool:
        """Return whether a message stands as its window saw it, and everybody behind it takes part here."""
        now = self.messages.get(message.message_id)
        heard = message.user_id is None or message.user_id in asked.participants
        return heard and bool(message.text) and now is not None and _unchanged(message, now)


def _in_front(former: StoredWindow, window: StoredWindow) -> tuple[StoredMessage, ...]:
    """Return what stood before an edited message where it was formed first."""
    shown = (*former.before, *former.messages)
    names = [message.message_id for message in shown]
    name = window.messages[0].message_id
    return shown[: names.index(name)] if name in names else ()


def _unchanged(message: StoredMessage, now: StoredMessage) -> bool:
    gone = now.deleted or now.forgotten or now.opted_out or now.missing or now.misread
    return not gone and (now.session_id, now.version) == (message.session_id, message.version)


def _audience(asked: FormationRequested | WindowAudience) -> tuple[object, ...]:
    return asked.scopes, asked.users, asked.private_users, asked.sharing, asked.shared_sessions


def sources_before(windows: Iterable[StoredWindow]) -> list[SourceMessage]:
    """Return the messages before windows, as forgetting knows them."""
    return [
        SourceMessage(
            message_id=message.message_id,
            version=message.version,
            session_id=window.session_id,
            user_id=message.user_id,
            time=message.time,
        )
        for window in windows
        for message in window.before
    ]


def forgotten_before(sources: Sequence[SourceMessage], marks: Marks) -> list[str]:
    """Return the messages that were forgotten while a batch was applied."""
    return [source.message_id for source in sources if marks.source_gone(source)]


LARGEST_REQUEST = 3_900_000
"""Bytes; of 4,000,000 that a record may have."""


@dataclass(slots=True)
class Closing:
    """Windows of a batch that closed or waited, and the writes that store them."""

    writes: dict[str, SessionWrite] = field(default_factory=dict[str, SessionWrite])
    windows: dict[str, StoredWindow] = field(default_factory=dict[str, StoredWindow])


MOST_BEFORE = 4
"""Earlier messages that are shown to explain a window."""


class FormationRequests:
    """Writes the requests for windows; `settings_version` names the settings that they are written with.

    `most_before`: messages before a window that explain it.
    """

    def __init__(
        self,
        store: TriggerStore,
        directory: Directory,
        budgets: WindowBudgets | None,
        settings_version: str,
        most_before: int,
    ) -> None:
        self._store, self._directory, self._budgets = store, directory, budgets
        self._settings_version, self._most_before = settings_version, most_before

    async def close(self, batch: Batch) -> Closing:
        """Turn what was closed into windows, and write the requests that can be written."""
        closing = Closing()
        for session in batch.own():
            for closed, members in session.closed:
                if members or (closed.because == "ended" and session.session_id not in batch.off.sessions):
                    window = stored_window(session, closed, members)
                    closing.windows[window.formation_id] = window
                    closing.writes.setdefault(session.session_id, SessionWrite(session)).new.append(window)
                    batch.counts.windows[closed.because] += 1
        await self._request(batch, closing)
        return closing

    async def _request(self, batch: Batch, closing: Closing) -> None:
        """Look up the sessions that closed a window or wait; those that wait no more have all requests written."""
        asking = [
            session
            for session in batch.own()
            if session.session_id in closing.writes or session.waits_for is not None
        ]
        limited = bool(asking) and self._budgets is not None and await self._budgets.any()
        if limited and self._budgets is not None:
            asking = [
                session
                for session in asking
                if session.session_id in batch.off.sessions or not self._budgets.still_held(session.waits_for)
            ]
        authors = {session.session_id: session.users for session in asking}
        branching = {
            session.session_id
            for session in asking
            if session.session_id not in batch.off.sessions
            and (session.session_id in closing.writes or not all(entry.requested for entry in session.outbox))
        }
        facts = await self._directory.look_up(list(authors), authors, branching)
        found = [session for session in asking if not _waits(session, facts[session.session_id], batch)]
        waited = [
            entry.formation_id
            for session in found
            for entry in session.outbox
            if not entry.requested and entry.formation_id not in closing.windows
        ]
        for window in (await self._store.windows(waited)).values():
            closing.windows[window.formation_id] = window
            session = batch.sessions[window.session_id]
            closing.writes.setdefault(session.session_id, SessionWrite(session)).requested.append(window)
        known = {session.session_id: facts[session.session_id] for session in found}
        held = await self._write_requests(batch, closing, known, limited=limited)
        for session in found:
            _wait_for(session, held.get(session.session_id))
            note_requests(session, closing.windows)
            _leave_unchanged(session, closing)

    async def _write_requests(
        self, batch: Batch, closing: Closing, facts: Mapping[str, SessionFacts | Missing], *, limited: bool
    ) -> dict[str, str]:
        """Write the requests that budgets have room for; why a session's others wait."""
        asked: list[tuple[StoredWindow, SessionFacts]] = []
        for window in sorted(closing.windows.values(), key=_order):
            if window.session_id in facts:
                known = facts[window.session_id]
                replaced = known.replaced if isinstance(known, SessionFacts) else ()
                leave_out(window, batch.off, replaced)
                if not window.settled and isinstance(known, SessionFacts):
                    asked.append((window, known))
                batch.counts.opted_out += len(window.left_out)
        admitted: Mapping[str, WindowCost | HeldWindow] = {}
        if limited and asked and self._budgets is not None:
            admitted = await self._budgets.admit([asked_window(window, known) for window, known in asked])
        earlier = await self._earlier(batch, closing, [window for window, _ in asked])
        held: dict[str, str] = {}
        for window, known in asked:
            result = admitted.get(window.formation_id)
            if isinstance(result, HeldWindow):
                held.setdefault(window.session_id, result.reason)
            else:
                session = batch.sessions[window.session_id]
                window.in_flight = result
                request(window, session, known, self._settings_version)
                earlier.explain(window, batch.off)
                settle(window)
                if (size := len(window.value or b"")) > LARGEST_REQUEST:
                    window.requested, window.value, window.settled = None, None, False
                    held.setdefault(window.session_id, f"its request has {size} bytes: too many users")
        return held

    async def _earlier(
        self, batch: Batch, closing: Closing, windows: Sequence[StoredWindow]
    ) -> EarlierWindows:
        """Return the windows before these: those of this batch, and those that are stored."""
        places = {place for window in windows if (place := place_before(window)) is not None}
        edits = [window for window in windows if window.closed.because == "edited" and window.messages]
        if not ((places or edits) and self._most_before):
            return EarlierWindows()
        now = {(window.session_id, window.seq): window for window in closing.windows.values()}
        found = await self._behind_edits(places, now)
        former = await self._former(batch, edits)
        last = {
            message.message_id
            for window in found.values()
            for message in window.messages[-self._most_before :]
        }
        last |= {
            message.message_id for window in former.values() for message in (*window.before, *window.messages)
        }
        try:
            stored = await self._store.messages(last - set(batch.messages.known))
        except (
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # a window is formed also where nothing explains it
            log.error("messages before a window cannot be read", error=describe(error))
            return EarlierWindows()
        return EarlierWindows(found, stored | batch.messages.known, self._most_before, former)

    async def _former(self, batch: Batch, edits: Sequence[StoredWindow]) -> dict[str, StoredWindow]:
        """Return, of each window about an edit, the one in which its message stood before, while it has texts."""
        edited = {window.formation_id: window.messages[0].message_id for window in edits}
        stored = await self._store.messages(set(edited.values()) - set(batch.messages.known))
        known = stored | batch.messages.known
        edits_of = {name: known[of].edit for name, of in edited.items() if of in known}
        formed_in = {name: edit.formed_in or "" for name, edit in edits_of.items() if edit is not None}
        former = await self._store.windows(set(formed_in.values()))
        return {name: former[of] for name, of in formed_in.items() if of in former}

    async def _behind_edits(
        self, places: Collection[WindowPlace], now: Mapping[WindowPlace, StoredWindow]
    ) -> dict[WindowPlace, StoredWindow | EarlierWindow]:
        """Return the window before each place's next one; windows about edits are passed over."""
        found: dict[WindowPlace, StoredWindow | EarlierWindow] = {}
        looked_at: dict[WindowPlace, WindowPlace] = {place: place for place in places}
        while looked_at:
            stored = await self._store.windows_at(set(looked_at.values()) - set(now), self._most_before)
            there: dict[WindowPlace, StoredWindow | EarlierWindow] = {**stored, **now}
            of = {place: there[at] for place, at in looked_at.items() if at in there}
            found |= {place: window for place, window in of.items() if not _about_edit(window)}
            looked_at = {
                place: (place[0], looked_at[place][1] - 1)
                for place, window in of.items()
                if _about_edit(window)
            }
        return found


def _about_edit(window: StoredWindow | EarlierWindow) -> bool:
    return window.edited if isinstance(window, EarlierWindow) else window.closed.because == "edited"


def _waits(session: Session, found: SessionFacts | Missing, batch: Batch) -> bool:
    """Note which document a session waits for, and whether it does; one that is switched off waits for none."""
    if not isinstance(found, Missing) or session.session_id in batch.off.sessions:
        return False
    _wait_for(session, found.reason)
    return True


def _wait_for(session: Session, reason: str | None) -> None:
    if session.waits_for != reason:
        session.waits_for, session.changed = reason, True


def _leave_unchanged(session: Session, closing: Closing) -> None:
    """Leave out writes of windows that are as they were read."""
    write = closing.writes.get(session.session_id)
    if write is None:
        return
    write.requested = [window for window in write.requested if window.settled or window.left_out]
    if not (write.new or write.requested or session.changed):
        del closing.writes[session.session_id]


def _order(window: StoredWindow) -> tuple[str, int]:
    return window.session_id, window.seq
