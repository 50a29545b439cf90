"""Every metric of the program, by its name: nothing is measured that does not stand here."""

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

from eden_memory.domain.windows.trigger_batch import Counts
from schemas.events import ModelCalled

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
TRIGGER_OPTED_OUT = Counter(
    "eden_trigger_opted_out_messages",
    "Messages whose session or author is switched off: no text of them is kept",
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
        TRIGGER_OPTED_OUT.inc(counts.opted_out)

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


DEDUP = Counter(
    "eden_dedup",
    "What was decided about proposed facts and commands, and what was left out, by what",
    ["what"],
)

DEDUP_INCOMPARABLE = Gauge(
    "eden_dedup_incomparable_facts",
    "Facts of the scope last searched whose vectors another model made: not compared until `eden reembed`",
)


class DedupMetrics:
    """What fact-dedup counts (eden_memory.ports.DedupWatch)."""

    def counted(self, what: str, number: int = 1) -> None:
        """So often."""
        DEDUP.labels(what).inc(number)

    def incomparable(self, facts: int) -> None:
        """So many facts of a scope were left out of a search: another model made their vectors."""
        DEDUP_INCOMPARABLE.set(facts)


CONSOLIDATIONS = Counter(
    "eden_consolidations",
    "Blob versions decided, by kind of scope, why, and whether the text was cut to its limit",
    ["scope", "because", "cut"],
)


class ConsolidationMetrics:
    """What consolidation counts (eden_memory.domain.consolidating.ConsolidationWatch)."""

    def consolidated(self, kind: str, because: str, *, cut: bool) -> None:
        """One version."""
        CONSOLIDATIONS.labels(kind, because, str(cut).lower()).inc()


LLM_CALLS = Counter(
    "eden_llm_calls", "Model calls by how they ended", ["stage", "provider", "model", "outcome"]
)
LLM_TOKENS = Counter(
    "eden_llm_tokens", "Tokens of model calls; cached ones are a part of input", ["stage", "model", "kind"]
)
LLM_COST = Counter("eden_llm_cost_usd", "Cost of model calls whose price is known", ["stage", "model"])
LLM_UNPRICED = Counter("eden_llm_unpriced_calls", "Model calls whose price is not known", ["stage", "model"])
LLM_SECONDS = Histogram(
    "eden_llm_call_seconds",
    "Duration of model calls",
    ["stage", "model"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64, 128),
)


class CallMetrics:
    """What is counted of model calls (eden_memory.models.accounts.CallWatch)."""

    def called(self, call: ModelCalled) -> None:
        """A call has ended."""
        LLM_CALLS.labels(call.stage, call.provider, call.model, call.outcome).inc()
        for kind, number in (
            ("input", call.input_tokens),
            ("cached", call.cached_tokens),
            ("output", call.output_tokens),
        ):
            LLM_TOKENS.labels(call.stage, call.model, kind).inc(number)
        if call.cost_usd is None:
            LLM_UNPRICED.labels(call.stage, call.model).inc()
        else:
            LLM_COST.labels(call.stage, call.model).inc(float(call.cost_usd))
        LLM_SECONDS.labels(call.stage, call.model).observe(call.seconds)


PROVIDER_LIMIT = Gauge("eden_provider_limit", "Calls of a provider that may run at once", ["provider"])
PROVIDER_RUNNING = Gauge("eden_provider_running", "Calls of a provider that run", ["provider"])
PROVIDER_AWAY = Gauge(
    "eden_provider_away", "1 while a provider's model does not answer", ["provider", "model"]
)


class GuardMetrics:
    """What is shown of providers (eden_memory.models.guard.guard.GuardWatch)."""

    def places(self, provider: str, limit: int, running: int) -> None:
        """So many calls of it may run at once, and so many do."""
        PROVIDER_LIMIT.labels(provider).set(limit)
        PROVIDER_RUNNING.labels(provider).set(running)

    def away(self, provider: str, model: str, away: bool) -> None:
        """A model of it went away, or answers again."""
        PROVIDER_AWAY.labels(provider, model).set(away)


USAGE_CALLS = Counter(
    "eden_usage_calls", "Model calls counted in the stored totals, each once", ["stage", "model"]
)
USAGE_COST = Counter(
    "eden_usage_cost_usd", "Cost in the stored totals, of calls whose price is known", ["stage", "model"]
)
USAGE_UNPRICED = Counter(
    "eden_usage_unpriced_calls", "Calls in the stored totals whose price is not known", ["stage", "model"]
)
USAGE_REPEATED = Counter(
    "eden_usage_repeated_calls", "Records of calls that were in the totals already: not counted again"
)
BUDGET_LIMIT = Gauge(
    "eden_budget_limit_usd",
    "What a budget allows in its period; those of single users stand together",
    ["budget", "per"],
)
BUDGET_SPENT = Gauge("eden_budget_spent_usd", "What was spent of a budget in its period", ["budget", "per"])
BUDGET_RESERVED = Gauge(
    "eden_budget_reserved_usd",
    "Estimates of windows that were published under a budget and are not complete",
    ["budget", "per"],
)
BUDGET_REACHED = Gauge(
    "eden_budget_reached", "Budgets that held a window back when they were asked last", ["budget", "per"]
)
BUDGET_HELD_BACK = Counter(
    "eden_budget_held_back_windows", "Windows that a budget held back, each when it was held back first"
)
BUDGET_UNPRICED = Counter(
    "eden_budget_unpriced_windows", "Windows published under a budget though no price is known for them"
)
BUDGET_ESTIMATE = Histogram(
    "eden_budget_estimate_ratio",
    "What windows under a budget cost, as a share of what was estimated",
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2, 4, 10),
)
BUDGET_WAITING = Gauge(
    "eden_budget_waiting_windows",
    "Closed windows that a budget holds back, as of the last watermark",
    ["partition"],
)
