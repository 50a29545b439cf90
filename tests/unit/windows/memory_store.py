"""formation-trigger's store in memory, for properties: it can fail at every write, and keeps what came before."""

import random
from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from eden_memory.usage.budget_rules import HELD
from eden_memory.windows.formation_requests import (
    BatchWrite,
    EarlierWindow,
    SessionWrite,
    StoredWindow,
    WindowAudience,
)
from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.window_rule import Limits

T = TypeVar("T")


class Crash(Exception):  # noqa: N818 - it happens to the process
    """The process died at this write."""


class MemoryStore:
    """What stands together in a batch is one transaction; those of one batch happen in any order."""

    def __init__(self, limits: Limits, seed: int = 0) -> None:
        self._limits = limits
        self._dice = random.Random(seed)
        self.places: dict[int, int] = {}
        self.stored_messages: dict[str, StoredMessage] = {}
        self.stored_sessions: dict[str, Session] = {}
        self.stored_windows: dict[str, StoredWindow] = {}
        self.writes_left: int | None = None
        """None: no crash; else so many writes happen before it."""

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        return {name: self.session(name, partition) for name in ids}

    async def authors_among(
        self, session_id: str, users: Collection[str], besides: Collection[str]
    ) -> set[str]:
        others = (one for name, one in self.stored_messages.items() if name not in besides)
        return {one.user_id for one in others if one.session_id == session_id and one.user_id in users} - {
            None
        }  # pyright: ignore[reportReturnType]

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        due = [(one.due_at, one.session_id) for one in self._of(partition) if one.due_at is not None]
        return [name for at, name in sorted(due) if at <= time][:most]

    async def unpublished(self, partition: int, after: str, most: int) -> list[str]:
        left = (one for one in self._of(partition) if one.outbox or any(e.asked for e in one.deletions))
        return sorted(one.session_id for one in left if one.session_id > after)[:most]

    async def waiting(self, partition: int) -> int:
        waiting = (one.waits_for for one in self._of(partition))
        return sum(one is not None and not one.startswith(HELD) for one in waiting)

    async def messages(self, ids: Iterable[str]) -> dict[str, StoredMessage]:
        return {name: deepcopy(self.stored_messages[name]) for name in ids if name in self.stored_messages}

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        return {
            name: deepcopy(self.stored_windows[name]) for name in formation_ids if name in self.stored_windows
        }

    async def windows_at(
        self, places: Collection[tuple[str, int]], most: int
    ) -> dict[tuple[str, int], EarlierWindow]:
        found = [one for one in self.stored_windows.values() if (one.session_id, one.seq) in places]
        return {
            (one.session_id, one.seq): EarlierWindow(
                deepcopy(one.messages[-most:]),
                WindowAudience.model_validate_json(one.value, extra="ignore") if one.value else None,
                one.closed.because == "edited",
            )
            for one in found
        }

    async def erase_in_windows(self, message_ids: Sequence[str]) -> None:
        for window in self.stored_windows.values():
            for one in (*window.messages, *window.before):
                one.text = None if one.message_id in message_ids else one.text

    async def place(self, partition: int) -> int:
        return self.places.get(partition, 0)

    async def put(self, write: BatchWrite) -> int | None:
        await self.erase_in_windows(write.forgotten)
        for window in self.stored_windows.values():
            for one in (*window.messages, *window.before):
                if one.version <= write.superseded.get(one.message_id, ""):
                    one.text = None
        parts = list(write.closing)
        self._dice.shuffle(parts)
        steps = [([one], one.messages) for one in parts]
        if write.messages or write.sessions:
            plain = ([SessionWrite(one) for one in write.sessions], write.messages)
            steps.insert(self._dice.randint(0, len(steps)), plain)
        seen, last = write.seen, write.last
        for sessions, messages in steps:
            last += 1
            if not self._put(write.partition, seen, sessions, messages):
                return None
            self.places[write.partition] = seen = last
        return seen

    async def published(self, entries: Sequence[tuple[str, str]]) -> None:
        for session, name in entries:
            self._write()
            stored = self.stored_sessions[session]
            stored.outbox = [one for one in stored.outbox if one.formation_id != name]

    def session(self, name: str, partition: int = 0) -> Session:
        """As it is loaded: its document, and what waits in `stored_messages`."""
        stored = self.stored_sessions.get(name) or Session(name, partition, self._limits)
        waiting = [
            one
            for one in self.stored_messages.values()
            if one.session_id == name and one.formation_id is None and (one.place or 0) > stored.formed_to
        ]
        waiting.sort(key=_place)
        return self._copy(
            stored, {one.message_id: deepcopy(one) for one in waiting}, name in self.stored_sessions
        )

    def waiting_in(self, name: str) -> list[str]:
        """The messages that wait in a session, in order."""
        return list(self.session(name).held)

    def _write(self) -> None:
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise Crash
            self.writes_left -= 1

    def _put(
        self, partition: int, seen: int, sessions: Sequence[SessionWrite], messages: Sequence[StoredMessage]
    ) -> bool:
        self._write()
        if self.places.get(partition, 0) != seen or not all(map(self._as_read, messages)):
            return False
        after = self.stored_messages | {one.message_id: deepcopy(one) for one in messages}
        windows = [window for one in sessions for window in one.new]
        if any(
            one.requested and self.stored_windows[one.formation_id].requested
            for write in sessions
            for one in write.requested
        ):
            return False
        for window in windows:
            for member in (*window.messages, *window.left_out):
                if not _free(after[member.message_id], window.session_id):
                    return False
                after[member.message_id] = claimed = deepcopy(after[member.message_id])
                claimed.formation_id, claimed.text = window.formation_id, None
                claimed.opted_out = claimed.opted_out or member in window.left_out
                if window.closed.because == "edited" and isinstance(member, StoredMessage):
                    claimed.formed_again = member.formed_again
        for window in (window for one in sessions for window in one.requested):
            for member in window.left_out:
                if (taken := after.get(member.message_id)) and taken.formation_id == window.formation_id:
                    after[member.message_id] = replace(taken, opted_out=taken.opted_out or not taken.deleted)
        self.stored_messages = after
        for one in sessions:
            for window in (*one.new, *one.requested):
                self.stored_windows[window.formation_id] = deepcopy(window)
            self.stored_sessions[one.session.session_id] = self._stored(one.session)
        return True

    def _as_read(self, one: StoredMessage) -> bool:
        stored = self.stored_messages.get(one.message_id)
        if stored is None or one.replaces is None:
            return stored is None and one.replaces is None
        if stored.forgotten and not one.forgotten:
            return False
        return (stored.version, stored.formation_id) == one.replaces

    def _stored(self, one: Session) -> Session:
        copy = self._copy(one, {}, stored=True)
        copy.due_at = one.due()
        return copy

    def _copy(self, one: Session, held: dict[str, StoredMessage], stored: bool) -> Session:
        return Session(
            one.session_id,
            one.partition,
            self._limits,
            stored,
            seq=one.seq,
            formed_to=one.formed_to,
            held=held,
            outbox=deepcopy(one.outbox),
            waits_for=one.waits_for,
            controls=list(one.controls),
            last_control=one.last_control,
            late=one.late,
            audiences=one.audiences,
            users=one.users,
            due_at=one.due_at,
            deletions=deepcopy(one.deletions),
        )

    def _of(self, partition: int) -> list[Session]:
        return [one for one in self.stored_sessions.values() if one.partition == partition]


def _free(stored: StoredMessage, session_id: str) -> bool:
    taken = stored.formation_id, stored.deleted, stored.forgotten
    return stored.session_id == session_id and taken == (None, False, False)


def _place(one: StoredMessage) -> int:
    return one.place or 0
