"""What formation-trigger counts."""

from eden_memory.metrics import (
    TRIGGER_EMPTY,
    TRIGGER_MISSING,
    TRIGGER_OPTED_OUT,
    TRIGGER_WAITING,
    TRIGGER_WINDOWS,
)
from eden_memory.windows.trigger_batch import Counts


class TriggerMetrics:
    """What formation-trigger counts (eden_memory.windows.trigger_protocols.TriggerWatch)."""

    def wrote(self, counts: Counts) -> None:
        """A batch is stored."""
        for because, number in counts.windows.items():
            TRIGGER_WINDOWS.labels(because).inc(number)
        TRIGGER_EMPTY.inc(counts.empty)
        TRIGGER_MISSING.inc(counts.missing)
        TRIGGER_OPTED_OUT.inc(counts.opted_out)

    def waiting(self, partition: int, sessions: int) -> None:
        """So many sessions of a partition wait for a document."""
        TRIGGER_WAITING.labels(str(partition)).set(sessions)
