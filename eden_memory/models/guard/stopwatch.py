"""How long a request took, and whether it was sent at all: only what was sent is a call."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

LEAST = 1e-6


@dataclass(slots=True)
class Stopwatch:
    """When a call left, by the wall clock, and how many seconds it took."""

    started_at: datetime = datetime.min
    seconds: float = 0.0
    left: bool = False

    @property
    def ended_at(self) -> datetime:
        """When its answer was here."""
        return self.started_at + timedelta(seconds=self.seconds)

    @contextmanager
    def timing(self) -> Generator[None]:
        """Time the request that is sent inside."""
        self.left, self.started_at, begun = True, datetime.now(UTC), time.perf_counter()
        try:
            yield
        finally:
            self.seconds = max(LEAST, time.perf_counter() - begun)
