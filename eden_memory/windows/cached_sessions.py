"""Sessions in memory: cached between batches, and scanned for those that a Watermark may close."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush

from eden_memory.windows.session_state import Session

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
