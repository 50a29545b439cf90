"""When the facts of one cached scope expire: those that have, without looking at all others."""

from collections.abc import Set
from datetime import datetime
from heapq import heappop, heappush


class ExpiringFacts:
    """Facts with a time at which they expire; few have expired at any moment, since these are soon retired."""

    def __init__(self) -> None:
        self._times: dict[str, datetime] = {}
        self._ahead: list[tuple[datetime, str]] = []
        """A heap by time; an entry whose time is no longer the fact's is left out once it is reached."""
        self._past: set[str] = set()
        """Facts whose time a search has met."""

    def clear(self) -> None:
        """Forget all facts."""
        self._times.clear()
        self._ahead.clear()
        self._past.clear()

    def put(self, fact_id: str, time: datetime | None) -> None:
        """Note when a fact expires; None: never, or it is gone."""
        if self._times.get(fact_id) == time:
            return
        self._past.discard(fact_id)
        if time is None:
            del self._times[fact_id]
        else:
            self._times[fact_id] = time
            heappush(self._ahead, (time, fact_id))

    def past(self, moment: datetime) -> Set[str]:
        """Return the facts that have expired by a moment."""
        while self._ahead and self._ahead[0][0] <= moment:
            time, fact_id = heappop(self._ahead)
            if self._times.get(fact_id) == time:
                self._past.add(fact_id)
        return {fact_id for fact_id in self._past if self._times[fact_id] <= moment}
