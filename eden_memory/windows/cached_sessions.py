"""Sessions of one partition as they are stored, kept between batches for as long as nobody else writes to it."""

from collections import OrderedDict
from collections.abc import Iterable

from eden_memory.windows.session_state import Session

MOST_CHARACTERS = 24_000_000
"""Of texts that wait, kept of one partition; beyond it the sessions that were quiet longest are let go."""
OVERHEAD = 300
"""What a message or session costs besides its text, roughly."""


class Kept:
    """`place` is the partition's last, as stored: a write that finds another one knows that all this is old."""

    def __init__(self, place: int, most: int = MOST_CHARACTERS) -> None:
        self.place = place
        self._most = most
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, ids: Iterable[str]) -> dict[str, Session]:
        """Those of the sessions that are kept."""
        return {name: self._sessions[name] for name in ids if name in self._sessions}

    def keep(self, sessions: Iterable[Session]) -> None:
        """Sessions as they are stored now."""
        for session in sessions:
            name = session.session_id
            size = OVERHEAD * (1 + len(session.held)) + session.characters
            self._total += size - self._sizes.get(name, 0)
            self._sizes[name] = size
            self._sessions[name] = session
            self._sessions.move_to_end(name)
        while self._total > self._most:
            name, _ = self._sessions.popitem(last=False)
            self._total -= self._sizes.pop(name)

    def drop(self, session_id: str) -> None:
        """Let a session go: it is not as it is stored."""
        if self._sessions.pop(session_id, None) is not None:
            self._total -= self._sizes.pop(session_id)

    def published(self, entries: Iterable[tuple[str, str]]) -> None:
        """(session id, formation id) that have left the outboxes."""
        for name, formation_id in entries:
            session = self._sessions.get(name)
            if session is not None:
                session.outbox = [one for one in session.outbox if one.formation_id != formation_id]
