"""The metrics of formation-trigger."""

from collections import Counter
from dataclasses import dataclass, field

from eden_memory.metrics import (
    TRIGGER_EMPTY,
    TRIGGER_MISSING,
    TRIGGER_OPTED_OUT,
    TRIGGER_REFUSED,
    TRIGGER_WINDOWS,
)


@dataclass(slots=True)
class TriggerCounts:
    """Counts of one batch; exported when it is written, so a repeat counts nothing twice."""

    windows: Counter[str] = field(default_factory=Counter[str])
    """Closed, by reason."""
    empty: int = 0
    """Messages without text."""
    missing: int = 0
    """Messages that a merge found to be gone."""
    opted_out: int = 0
    """Messages whose session or author is switched off: nothing is kept of them."""
    refused: int = 0
    """Messages of new users in sessions that have as many users as they can."""

    def export(self) -> None:
        """Add them to the metrics, once the batch is stored."""
        for because, number in self.windows.items():
            TRIGGER_WINDOWS.labels(because).inc(number)
        TRIGGER_EMPTY.inc(self.empty)
        TRIGGER_MISSING.inc(self.missing)
        TRIGGER_OPTED_OUT.inc(self.opted_out)
        TRIGGER_REFUSED.inc(self.refused)
