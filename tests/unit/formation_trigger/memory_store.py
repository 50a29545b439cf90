"""formation-trigger's store in memory, for properties: it can fail at every write, and keeps what came before."""

import random
from collections.abc import Iterable, Sequence
from copy import deepcopy
from datetime import datetime
from typing import TypeVar

from eden_memory.domain.trigger import Session, StoredMessage
from eden_memory.domain.window_request import SessionWrite, StoredWindow
from eden_memory.domain.windows import Limits

T = TypeVar("T")


class Crash(Exception):  # noqa: N818 - it happens to the process
    """The process died at this write."""


class MemoryStore:
    """Each write is one document or one transaction; those of one call happen in any order, as on a server."""

    def __init__(self, limits: Limits, seed: int = 0) -> None:
        self._limits = limits
        self._dice = random.Random(seed)
        self.stored_messages: dict[str, StoredMessage] = {}
        self.stored_sessions: dict[str, Session] = {}
        self.stored_windows: dict[str, StoredWindow] = {}
        self.writes_left: int | None = None
        """None: no crash; else so many writes happen before it."""

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        return {name: self._session(name, partition) for name in ids}

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        due = [
            (at, one.session_id)
            for one in self._of(partition)
            if (at := one.pending.due()) is not None and at <= time
        ]
        return [name for _, name in sorted(due)][:most]

    async def unpublished(self, partition: int, after: str, most: int) -> list[str]:
        left = sorted(one.session_id for one in self._of(partition) if one.outbox and one.session_id > after)
        return left[:most]

    async def waiting(self, partition: int) -> int:
        return sum(one.waits_for is not None for one in self._of(partition))

    async def messages(self, ids: Iterable[str]) -> dict[str, StoredMessage]:
        return {name: deepcopy(self.stored_messages[name]) for name in ids if name in self.stored_messages}

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        return {
            name: deepcopy(self.stored_windows[name]) for name in formation_ids if name in self.stored_windows
        }

    async def put_messages(self, messages: Iterable[StoredMessage]) -> bool:
        written = [self._put_message(one) for one in self._shuffled(messages)]
        return all(written)

    async def put_sessions(self, writes: Sequence[SessionWrite]) -> bool:
        written = [self._put_session(one) for one in self._shuffled(writes)]
        return all(written)

    async def published(self, entries: Sequence[tuple[str, str]]) -> None:
        for session, name in entries:
            self._write()
            stored = self.stored_sessions[session]
            stored.outbox = [one for one in stored.outbox if one.formation_id != name]

    def _write(self) -> None:
        if self.writes_left is not None:
            if self.writes_left == 0:
                raise Crash
            self.writes_left -= 1

    def _put_message(self, one: StoredMessage) -> bool:
        self._write()
        stored = self.stored_messages.get(one.message_id)
        read = (one.replaces, one.formation_id) if one.replaces is not None else None
        if (None if stored is None else (stored.version, stored.formation_id)) != read:
            return False
        self.stored_messages[one.message_id] = deepcopy(one)
        return True

    def _put_session(self, one: SessionWrite) -> bool:
        self._write()
        session = one.session
        stored = self.stored_sessions.get(session.session_id)
        members = [member for window in one.new for member in window.messages]
        if (stored.rev if stored else 0) != session.rev or not all(map(self._free, members)):
            return False
        if any(self.stored_windows[window.formation_id].requested for window in one.requested):
            return False
        for window in one.new:
            for member in window.messages:
                message = self.stored_messages[member.message_id]
                message.formation_id, message.text = window.formation_id, None
        for window in (*one.new, *one.requested):
            self.stored_windows[window.formation_id] = deepcopy(window)
        self.stored_sessions[session.session_id] = self._next(session)
        return True

    def _free(self, member: StoredMessage) -> bool:
        stored = self.stored_messages[member.message_id]
        return (stored.session_id, stored.formation_id, stored.deleted) == (member.session_id, None, False)

    def _session(self, name: str, partition: int) -> Session:
        stored = self.stored_sessions.get(name)
        return Session(name, partition, self._limits) if stored is None else self._next(stored, 0)

    def _next(self, one: Session, more: int = 1) -> Session:
        return Session(
            one.session_id,
            one.partition,
            self._limits,
            rev=one.rev + more,
            seq=one.seq,
            waiting=list(one.pending.waiting),
            outbox=deepcopy(one.outbox),
            waits_for=one.waits_for,
            controls=list(one.controls),
            audiences=deepcopy(one.audiences),
            users=one.users,
        )

    def _of(self, partition: int) -> list[Session]:
        return [one for one in self.stored_sessions.values() if one.partition == partition]

    def _shuffled(self, things: Iterable[T]) -> list[T]:
        shuffled = list(things)
        self._dice.shuffle(shuffled)
        return shuffled
