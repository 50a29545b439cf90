"""Turn the windows that a batch closed into formation requests, as far as documents and budgets allow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eden_memory.directory.participants import Directory, Missing, SessionFacts
from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.usage.budget_rules import HeldWindow, WindowBudgets, WindowCost
from eden_memory.windows.messages_before import EarlierWindows, place_before
from eden_memory.windows.session_state import Session
from eden_memory.windows.trigger_batch import Batch
from eden_memory.windows.window_request import (
    SessionWrite,
    StoredWindow,
    TriggerStore,
    asked_window,
    leave_out,
    note_requests,
    request,
    settle,
    stored_window,
)

log = LibraryLogger()
LARGEST_REQUEST = 3_900_000
"""Bytes; of 4,000,000 that a record may have."""


@dataclass(slots=True)
class Closing:
    """Windows of a batch that closed or waited, and the writes that store them."""

    writes: dict[str, SessionWrite] = field(default_factory=dict[str, SessionWrite])
    windows: dict[str, StoredWindow] = field(default_factory=dict[str, StoredWindow])


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
        most_before: int = 0,
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
        facts = await self._directory.look_up(list(authors), authors)
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
                leave_out(window, batch.off)
                known = facts[window.session_id]
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
        if not (places and self._most_before):
            return EarlierWindows()
        now = {(window.session_id, window.seq): window for window in closing.windows.values()}
        stored = await self._store.windows_at(places - set(now), self._most_before)
        found = {place: window for place, window in (stored | now).items() if place in places}
        last = {
            message.message_id
            for window in found.values()
            for message in window.messages[-self._most_before :]
        }
        try:
            known = await self._store.messages(last - set(batch.messages.known))
        except (
            KeyError,
            TypeError,
            ValueError,
        ) as error:  # a window is formed also where nothing explains it
            log.error("messages before a window cannot be read", error=describe(error))
            return EarlierWindows()
        return EarlierWindows(found, known | batch.messages.known, self._most_before)


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
