"""Keeps what the stages of one search did: time, candidates, scores, and what failed."""

import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager

from eden_memory.logs import LibraryLogger
from eden_memory.metrics import SEARCH_DEGRADED, SEARCH_SECONDS, SEARCHES
from eden_memory.search.fact_candidates import Scored
from eden_memory.search.search_requests import FoundFact, SearchReport, StageReport, TextOnly

log = LibraryLogger()
SHOWN = 50
"""Scores of a stage that a report holds."""
for _part in ("embedding", "semantic", "text", "reflections", "rerank", "newer"):
    SEARCH_DEGRADED.labels(_part)


class Trace:
    """Of one search; stages that run side by side each count their own time."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._stages: list[StageReport] = []
        self.warnings: list[str] = []
        self.text_only: TextOnly | None = None

    @contextmanager
    def timed(self, name: str) -> Generator[list[Scored]]:
        """Time a stage; the block puts the candidates that remain into the list."""
        begun, left = time.perf_counter(), list[Scored]()
        yield left
        self.ran(name, begun, len(left), ((scored.fact.fact_id, scored.score) for scored in left[:SHOWN]))

    def ran(self, name: str, begun: float, count: int, scores: Iterable[tuple[str, float]] = ()) -> None:
        """A stage that began at `begun` (time.perf_counter) has ended."""
        seconds = time.perf_counter() - begun
        self._stages.append(StageReport(name, 1000 * seconds, count, tuple(scores)))
        SEARCH_SECONDS.labels(name).observe(seconds)

    def degraded(self, part: str, error: Exception) -> None:
        """Go on without it; what a query says never stands in the reason."""
        reason = f"{part}: {type(error).__name__}"
        self.warnings.append(reason)
        log.warning("a search does without a part", part=part, error=type(error).__name__)
        SEARCH_DEGRADED.labels(part).inc()

    def report(self, kind: str, facts: tuple[FoundFact, ...]) -> SearchReport:
        """All of it."""
        seconds = time.perf_counter() - self._begun
        SEARCHES.labels(kind, "something" if facts else "nothing").inc()
        SEARCH_SECONDS.labels("all").observe(seconds)
        return SearchReport(facts, tuple(self._stages), tuple(self.warnings), 1000 * seconds, self.text_only)
