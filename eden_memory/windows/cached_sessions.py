"""Sessions in memory: cached between batches, and scanned for those that a Watermark may close."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from heapq import heappop, heappush

from eden_memory.windows.session_state import Session

MOST_CHARACTERS = 24_000_000
"""Of texts that wait, cached of one partition; beyond it the sessions that were quiet longest are dropped."""
OVERHEAD = 300
"""Characters that a message or session takes besides its text, roughly."""


class CachedSessions:
    """Sessions of one partition as they are stored, for as long as nobody else writes to it.

    `place` is the partition's last, as stored: a write that finds another one knows that the cache is old.
    """

    def __init__(self, place: int, most: int = MOST_CHARACTERS) -> None:
        self.place = place
        self._most = most
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, ids: Iterable[str]) -> dict[str, Session]:
        """Return those of the sessions that are cached."""
        return {name: self._sessions[name] for name in ids if name in self._sessions}

    def keep(self, sessions: Iterable[Session]) -> None:
        """Cache sessions as they are stored now."""
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
        """Remove a session that is not as it is stored."""
        if self._sessions.pop(session_id, None) is not None:
            self._total -= self._sizes.pop(session_id)

    def published(self, entries: Iterable[tuple[str, str]]) -> None:
        """Take (session id, formation id) out of the outboxes."""
        for name, formation_id in entries:
            session = self._sessions.get(name)
            if session is not None:
                session.outbox = [entry for entry in session.outbox if entry.formation_id != formation_id]


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
