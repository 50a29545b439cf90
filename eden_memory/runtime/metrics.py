"""Every metric of the program, by its name: nothing is measured that does not stand here."""

from prometheus_client import Counter, Gauge

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
