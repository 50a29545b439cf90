"""Every metric of the program, by its name: nothing is measured that does not stand here."""

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

from eden_memory.domain.trigger_batch import Counts

TAILER_LEADING = Gauge("eden_tailer_leading", "1 while this process is the active tailer")
TAILER_TAKEOVERS = Counter("eden_tailer_takeovers", "Times this process became the active tailer")
TAILER_RECORDS = Counter("eden_tailer_records", "Records published, by what they came from", ["origin"])
TAILER_EVENTS = Counter("eden_tailer_events", "Change events read, by operation", ["operation"])
TAILER_EMPTY = Counter("eden_tailer_empty_messages", "Messages without text, left out until text arrives")
TAILER_UNMAPPED = Counter("eden_tailer_unmapped", "Documents that could not become a record (dead letters)")
TAILER_POSITION_LOST = Counter(
    "eden_tailer_position_lost", "Times the stream's position was lost and a merge closed the gap"
)
TAILER_MISSING = Counter(
    "eden_tailer_missing_messages", "Messages that a merge found to have no document any more"
)
TAILER_LAG = Gauge("eden_tailer_lag_seconds", "How far the published changes are behind the database's time")
TAILER_COMMITS = Counter("eden_tailer_commits", "Kafka transactions committed")
TAILER_BACKFILL_READ = Gauge(
    "eden_tailer_backfill_messages", "Messages read in by the backfill or merge under way"
)
TAILER_BACKFILL_TOTAL = Gauge(
    "eden_tailer_backfill_total_messages", "Messages that the backfill or merge has to read"
)

STAGE_RECORDS = Counter(
    "eden_stage_records", "Records finished by a stage: decided, dead or skipped", ["stage", "how"]
)
STAGE_REPUBLISHED = Counter(
    "eden_stage_republished", "Outcomes found in the ledger and published again", ["stage"]
)
STAGE_FAILED = Counter(
    "eden_stage_failed_attempts", "Failed attempts of a stage's units, by kind", ["stage", "kind"]
)
STAGE_HANDLER = Histogram(
    "eden_stage_handler_seconds",
    "How long a stage's handler took",
    ["stage"],
    buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300),
)
STAGE_RUNNING = Gauge("eden_stage_running", "Units that a stage works on now", ["stage"])
STAGE_WAITING = Gauge("eden_stage_waiting_records", "Records fetched that wait in a stage's lanes", ["stage"])
STAGE_PAUSED = Gauge(
    "eden_stage_paused",
    "1 while a stage stands still: by hand, for dead letters, in an outage",
    ["stage", "kind"],
)

TRIGGER_WINDOWS = Counter("eden_trigger_windows", "Windows closed, by reason", ["because"])
TRIGGER_EMPTY = Counter("eden_trigger_empty_messages", "Recorded messages without text: nothing to form yet")
TRIGGER_MISSING = Counter(
    "eden_trigger_missing_messages", "Tombstones of messages that a merge found to be gone; memory stays"
)
TRIGGER_WAITING = Gauge(
    "eden_trigger_waiting_sessions",
    "Sessions with a closed window that wait for a document of the application, as of the last watermark",
    ["partition"],
)


class TriggerMetrics:
    """What formation-trigger counts (eden_memory.ports.TriggerWatch)."""

    def wrote(self, counts: Counts) -> None:
        """A batch is stored."""
        for because, number in counts.windows.items():
            TRIGGER_WINDOWS.labels(because).inc(number)
        TRIGGER_EMPTY.inc(counts.empty)
        TRIGGER_MISSING.inc(counts.missing)

    def waiting(self, partition: int, sessions: int) -> None:
        """So many sessions of a partition wait for a document."""
        TRIGGER_WAITING.labels(str(partition)).set(sessions)


EXTRACTION_ITEMS = Counter(
    "eden_extraction_items",
    "Facts and reflections that models stated: formed, and those left out or changed, by how",
    ["stage", "how"],
)


class ExtractionMetrics:
    """What the extractions count (eden_memory.ports.ExtractionWatch)."""

    def extracted(self, stage: str, items: int, left: Mapping[str, int]) -> None:
        """One window's items."""
        for how, number in {"formed": items, **left}.items():
            EXTRACTION_ITEMS.labels(stage, how).inc(number)
