"""When the sessions of a batch are to be looked at: a Watermark finds those that it may close without asking all."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from heapq import heappop, heappush

from eden_memory.windows.session_state import Session


class Looks:
    """Moments by session; one that is not true any more only leads to a look in vain."""

    def __init__(self) -> None:
        self.touched: set[str] = set()
        """Sessions that something happened to since the last Watermark."""
        self._moments: list[tuple[datetime, str]] = []

    def passed(self, time: datetime, sessions: Mapping[str, Session]) -> Iterator[Session]:
        """Those that are to be looked at by `time`, each with its next moment noted after the look."""
        for name in self.touched:
            self._note(sessions[name])
        self.touched.clear()
        coming: list[tuple[datetime, str]] = []
        while self._moments and self._moments[0][0] <= time:
            session = sessions[heappop(self._moments)[1]]
            yield session
            if (due := session.due()) is not None:
                coming.append((due, session.session_id))
        for one in coming:
            heappush(self._moments, one)

    def _note(self, session: Session) -> None:
        moment = session.look_at()
        if moment is not None:
            heappush(self._moments, (moment, session.session_id))
