"""Every metric of the program, by its name: nothing is measured that does not stand here."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from prometheus_client import Counter, Gauge, Histogram, Info

from eden_memory.schemas.events import FactChanged, ModelCalled, ReflectionFormed, ScopeConsolidated

BUILD = Info("eden_build", "Version of the program")

TAILER_LEADING = Gauge("eden_tailer_leading", "1 while this process is the active tailer")
TAILER_TAKEOVERS = Counter("eden_tailer_takeovers", "Times this process became the active tailer")
TAILER_RECORDS = Counter(
    "eden_tailer_records",
    "Records published, by what they came from (stream, backfill, merge, watermark) and what they are",
    ["origin", "record"],
)
TAILER_EVENTS = Counter("eden_tailer_events", "Change events read, by operation", ["operation"])
TAILER_EMPTY = Counter("eden_tailer_empty_messages", "Messages without text, left out until text arrives")
TAILER_LEFT_OUT = Counter(
    "eden_tailer_parts_left_out",
    "What of messages became no text, by kind: images without a caption, results within calls, broken JSON; "
    "elements of a list that are no documents, each time that it is read",
    ["kind"],
)
TAILER_AUTHORLESS = Counter(
    "eden_tailer_authorless_messages", "Records of messages of the role user that name no author"
)
TAILER_UNDATED = Counter(
    "eden_tailer_undated_messages",
    "Messages read from the collection that say no time in any form: they count as written when they were read",
)
TAILER_UNMAPPED = Counter("eden_tailer_unmapped", "Documents that could not become a record (dead letters)")
REDACTED = Counter(
    "eden_redacted_secrets",
    "Secrets replaced in texts on their way to Kafka and to a search, by kind; a text read again counts again",
    ["kind"],
)
UNREADABLE = Counter(
    "eden_unreadable_documents",
    "Documents left out of an answer because they cannot be read, by what they are; one read again counts again",
    ["document"],
)
TAILER_POSITION_LOST = Counter(
    "eden_tailer_position_lost", "Times the stream's position was lost and a merge closed the gap"
)
TAILER_MISSING = Counter(
    "eden_tailer_missing_messages", "Messages that a merge found to have no document any more"
)
TAILER_LAG = Gauge(
    "eden_tailer_lag_seconds", "How far the published changes are behind now; 0 where another process leads"
)
TAILER_POSITION_AGE = Gauge(
    "eden_tailer_position_age_seconds", "Age of the saved resume token; 0 where another process leads"
)
TAILER_OPLOG_LEFT = Gauge(
    "eden_tailer_oplog_left_seconds",
    "Time until the oplog has no place for the tailer's position any more, at the pace of its window",
)
TAILER_OPLOG_BYTES_LEFT = Gauge(
    "eden_tailer_oplog_left_bytes", "Bytes of the oplog between its oldest entry and the tailer's position"
)
TAILER_OPLOG_WINDOW = Gauge("eden_tailer_oplog_window_seconds", "Time between the oplog's ends")
TAILER_COMMITS = Counter(
    "eden_tailer_commits", "Times that published records were confirmed and the position saved"
)
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
STAGE_WAITING = Gauge(
    "eden_stage_waiting_records",
    "Records that wait in a stage's lanes, by reason: order (behind one of the same key), turn (all places are "
    "taken), retry (to be tried again), pause",
    ["stage", "reason"],
)
STAGE_PENDING = Gauge("eden_stage_pending_records", "Records fetched and not finished", ["stage"])
STAGE_OLDEST = Gauge(
    "eden_stage_oldest_unfinished_seconds", "Since when the oldest unfinished record is here", ["stage"]
)
STAGE_COMMIT_GAP = Gauge(
    "eden_stage_commit_gap_records", "Records finished behind an unfinished one: not committed yet", ["stage"]
)
STAGE_PARTITIONS = Gauge("eden_stage_partitions", "Partitions that this process holds", ["stage"])
STAGE_HELD_BACK = Gauge(
    "eden_stage_held_back_partitions", "Partitions not fetched for now: their bound is full", ["stage"]
)
STAGE_REBALANCES = Counter("eden_stage_rebalances", "Times that partitions were assigned", ["stage"])
STAGE_PAUSES = Counter(
    "eden_stage_pauses", "Times that a stage began to stand still, by kind", ["stage", "kind"]
)
DEAD_LETTERS = Counter(
    "eden_dead_letters", "Records given up, by the kind of error that ended them", ["stage", "reason"]
)
DEAD_LETTERS_UNSETTLED = Gauge(
    "eden_dead_letters_unsettled",
    "Dead letters that were neither tried again with success nor dropped",
    ["stage"],
)
STAGE_PAUSED = Gauge(
    "eden_stage_paused",
    "1 while a stage stands still: by hand, for dead letters, in an outage",
    ["stage", "kind"],
)

JANITOR_REMOVED = Counter(
    "eden_janitor_removed",
    "Answers and outcomes removed because they are beyond their bounds, by what",
    ["what"],
)

TRIGGER_WINDOWS = Counter("eden_trigger_windows", "Windows closed, by reason", ["because"])
TRIGGER_EMPTY = Counter("eden_trigger_empty_messages", "Recorded messages without text: nothing to form yet")
TRIGGER_MISSING = Counter(
    "eden_trigger_missing_messages", "Tombstones of messages that a merge found to be gone; memory stays"
)
TRIGGER_OPTED_OUT = Counter(
    "eden_trigger_opted_out_messages",
    "Messages whose session or author is switched off, or that another branch replaced: no text of them is kept",
)
TRIGGER_REFUSED = Counter(
    "eden_trigger_refused_messages",
    "Messages of new users in sessions that have as many users as they can: dead letters",
)
TRIGGER_WAITING = Gauge(
    "eden_trigger_waiting_sessions",
    "Sessions with a closed window that wait for a document of the application, as of the last watermark",
    ["partition"],
)

EXTRACTION_ITEMS = Counter(
    "eden_extraction_items",
    "Facts and reflections that models stated: formed, and those left out or changed, by how",
    ["stage", "how"],
)
EXTRACTION_SPLITS = Counter(
    "eden_extraction_splits",
    "Windows asked for scope by scope, or by halves, as two answers about all of it were invalid",
    ["stage"],
)

DEDUP = Counter(
    "eden_dedup",
    "What was decided about proposed facts and commands, and what was left out, by what",
    ["what"],
)
DEDUP_INCOMPARABLE = Gauge(
    "eden_dedup_incomparable_facts",
    "Facts of the scope last searched whose vectors another model made: not compared until `eden reembed`",
)

CONSOLIDATIONS = Counter(
    "eden_consolidations",
    "Blob versions decided, by kind of scope, why, and whether the text was cut to its limit",
    ["scope", "because", "cut"],
)

PROPAGATIONS = Counter(
    "eden_propagations",
    "Reflections judged for a broader scope, by that scope and what became of each",
    ["scope", "result"],
)
MEMORY_COMMANDS = Counter(
    "eden_memory_commands",
    "Commands on reflections and blobs, by action and by what became of them",
    ["action", "result"],
)
FACTS_DECIDED = Counter(
    "eden_facts_decided", "Versions of facts decided, by scope and decision", ["scope", "decision"]
)
FACTS_RETIRED = Counter("eden_facts_retired", "Facts retired, by scope and why", ["scope", "because"])
REFLECTIONS_FORMED = Counter("eden_reflections_formed", "Reflections formed, by scope", ["scope"])
BLOB_WORDS = Histogram(
    "eden_blob_words",
    "Words of the blob versions decided, by scope",
    ["scope"],
    buckets=(25, 50, 100, 150, 200, 300, 400, 600, 900, 1_200, 2_000),
)
BLOB_FILL = Histogram(
    "eden_blob_limit_share",
    "Share of their word limit that the blob versions decided take, by scope",
    ["scope"],
    buckets=(0.25, 0.5, 0.75, 0.9, 1.0),
)

CONTEXTS_BUILT = Counter("eden_contexts_built", "Ready contexts of active sessions built anew")
CONTEXT_DELAY = Histogram(
    "eden_context_delay_seconds",
    "From a write of memory to the ready contexts built from it",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300),
)
MESSAGE_TO_CONTEXT = Histogram(
    "eden_message_to_context_seconds",
    "From the time of a window (its last message, or the watermark that found it cold) to the fresh context",
    buckets=(1, 2, 5, 10, 20, 30, 60, 120, 300, 900, 3_600),
)
CONTEXT_READS = Counter(
    "eden_context_reads",
    "Contexts asked for, by where they came from: kept in the process, or stored",
    ["how"],
)

RECENT_SECONDS = Histogram(
    "eden_recent_seconds",
    "Time to read the messages that are not formed yet, for one context or search",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1),
)
RECENT_FAILED = Counter(
    "eden_recent_failed", "Contexts and searches returned without the messages that are not formed yet"
)

MEMORY_DOCUMENTS = Gauge("eden_memory_documents", "Documents of a memory collection, about", ["collection"])
SPENT = Gauge(
    "eden_spent_usd",
    "US dollars in the stored totals of usage, of the day and the month so far (UTC)",
    ["period", "stage", "model", "agent"],
)
CONSOLIDATION_DUE = Gauge("eden_consolidation_due_scopes", "Scopes whose buffer is to be consolidated now")
CONSOLIDATION_DUE_SECONDS = Gauge(
    "eden_consolidation_due_seconds", "Since when the scope that is due for the longest has been found so"
)

GROUP_LAG = Gauge(
    "kafka_consumergroup_lag",
    "Offsets between what a group has committed and the partition's end",
    ["consumergroup", "topic", "partition"],
)
GROUP_LAG_SUM = Gauge(
    "kafka_consumergroup_lag_sum", "The same, of all partitions of a topic", ["consumergroup", "topic"]
)
GROUP_LAG_SECONDS = Gauge(
    "kafka_consumergroup_lag_seconds",
    "Since when the first record that a group has not committed past is in the partition; 0: there is none",
    ["consumergroup", "topic", "partition"],
)
GROUP_OFFSET = Gauge(
    "kafka_consumergroup_current_offset",
    "The offset that a group has committed",
    ["consumergroup", "topic", "partition"],
)
GROUP_MEMBERS = Gauge("kafka_consumergroup_members", "Consumers in a group", ["consumergroup"])
TOPIC_OFFSET = Gauge("kafka_topic_partition_current_offset", "The end of a partition", ["topic", "partition"])
TOPIC_OLDEST = Gauge(
    "kafka_topic_partition_oldest_offset", "The first offset still in a partition", ["topic", "partition"]
)
TOPIC_PARTITIONS = Gauge("kafka_topic_partitions", "Partitions of a topic", ["topic"])
LAG_READ_AT = Gauge(
    "eden_lag_read_timestamp_seconds", "When the lag figures were read; 0: by another process"
)
LAG_READ_SECONDS = Gauge("eden_lag_read_seconds", "How long the last reading of the lag figures took")

LLM_CALLS = Counter(
    "eden_llm_calls", "Model calls by how they ended", ["stage", "provider", "model", "agent", "outcome"]
)
LLM_TOKENS = Counter(
    "eden_llm_tokens",
    "Tokens of model calls, by kind: input, output, cached (a part of input), reasoning (a part of output)",
    ["stage", "model", "agent", "kind"],
)
LLM_COST = Counter(
    "eden_llm_cost_usd", "US dollars of model calls whose price is known", ["stage", "model", "agent"]
)
LLM_UNPRICED = Counter("eden_llm_unpriced_calls", "Model calls whose price is not known", ["stage", "model"])
LLM_REPAIRS = Counter(
    "eden_llm_repairs", "Calls that asked again because an answer was not valid", ["stage", "model"]
)
LLM_UNREADABLE = Counter(
    "eden_llm_unreadable_items",
    "Facts, reflections and decisions of answers that could not be read beside others that could",
    ["stage", "model"],
)
GENAI_SECONDS = Histogram(
    "gen_ai_client_operation_duration_seconds",
    "Duration of model calls (OpenTelemetry's GenAI conventions; error_type is empty for answered ones)",
    ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "error_type", "stage"],
    buckets=(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
GENAI_TOKENS = Histogram(
    "gen_ai_client_token_usage",
    "Tokens of one model call (OpenTelemetry's GenAI conventions)",
    ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_token_type", "stage"],
    buckets=(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576),
)

PROVIDER_LIMIT = Gauge("eden_provider_limit", "Calls of a provider that may run at once", ["provider"])
PROVIDER_RUNNING = Gauge("eden_provider_running", "Calls of a provider that run", ["provider"])
PROVIDER_AWAY = Gauge(
    "eden_provider_away", "1 while a provider's model does not answer", ["provider", "model"]
)

USAGE_CALLS = Counter(
    "eden_usage_calls",
    "Model calls of live memory counted in the stored totals, each once",
    ["stage", "model"],
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

WEBHOOK_SENT = Counter("eden_webhook_sent", "Notices that a webhook's receiver has taken", ["webhook"])
WEBHOOK_FAILED = Counter(
    "eden_webhook_failed",
    "Attempts that a webhook's receiver did not take, or that did not reach it",
    ["webhook"],
)
WEBHOOK_WAITING = Gauge(
    "eden_webhook_waiting", "Notices that wait for a webhook, where this process sends", ["webhook"]
)

BUDGET_LIMIT = Gauge(
    "eden_budget_limit_usd",
    "What a budget allows in its period; those of single users stand together",
    ["budget", "per"],
)
BUDGET_SPENT = Gauge("eden_budget_spent_usd", "What was spent of a budget in its period", ["budget", "per"])
BUDGET_IN_FLIGHT = Gauge(
    "eden_budget_in_flight_usd",
    "What windows that were asked for under a budget, and whose calls are not all counted, are expected to cost",
    ["budget", "per"],
)
BUDGET_REACHED = Gauge(
    "eden_budget_reached",
    "Budgets that have no room left for a window of ordinary cost (a hundredth of the limit)",
    ["budget", "per"],
)
BUDGET_HELD_BACK = Counter(
    "eden_budget_held_back_windows", "Windows that a budget held back, each when it was held back first"
)
BUDGET_UNPRICED = Counter(
    "eden_budget_unpriced_windows", "Windows published under a budget though no price is known for them"
)
BUDGET_WAITING = Gauge(
    "eden_budget_waiting_windows",
    "Closed windows that budgets hold back: as all gauges of budgets the same in every formation-trigger",
)

GATEWAY_CHATS = Counter(
    "eden_gateway_chats",
    "Chats through the gateway, by how they ended: answered, error (the provider's), away, broken, left",
    ["how"],
)
GATEWAY_ADDED = Histogram(
    "eden_gateway_added_seconds",
    "From a chat's arrival until it is sent to the provider, the query's embedding included",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)
GATEWAY_HITS = Counter("eden_gateway_memory_hits", "Facts found for chats")
GATEWAY_DEGRADED = Counter(
    "eden_gateway_degraded",
    "Chats that went on without a part of memory: it failed or was slow",
    ["part", "why"],
)
GATEWAY_TURNS = Counter(
    "eden_gateway_turns", "Turns of chats: stored, known already, or lost because storing failed", ["how"]
)

HTTP_REQUESTS = Counter(
    "eden_http_requests",
    "Requests to the doors, by route template and class of status",
    ["route", "method", "status"],
)
HTTP_SECONDS = Histogram(
    "eden_http_request_seconds",
    "Duration of requests to the doors, event streams included",
    ["route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60),
)
HTTP_STREAMS = Gauge("eden_http_event_streams", "Event streams that are open")

SEARCHES = Counter("eden_searches", "Searches, by type and whether they found anything", ["kind", "found"])
SEARCH_SECONDS = Histogram(
    "eden_search_seconds",
    "Duration of a search's stages; `all` is the whole search",
    ["stage"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
SEARCH_DEGRADED = Counter("eden_search_degraded", "Searches that went on without a part: it failed", ["part"])
SEARCH_UNCOUNTED = Counter("eden_search_uncounted_accesses", "Found facts whose access was not counted")
SEARCH_KEPT_BYTES = Gauge("eden_search_kept_bytes", "Memory that kept scopes take, about")
SEARCH_KEPT_SCOPES = Gauge("eden_search_kept_scopes", "Scopes whose facts are kept to be searched")
SEARCH_EVICTED = Counter("eden_search_evicted_scopes", "Kept scopes that left so that others fit")

NOBODY, OTHERS = "none", "other"


def count_extracted(stage: str, items: int, left: Mapping[str, int]) -> None:
    """Count the items of one window that stand, and in `left` the others by what happened to them."""
    for how, number in {"formed": items, **left}.items():
        EXTRACTION_ITEMS.labels(stage, how).inc(number)


def count_judged(to: str, results: Mapping[str, int]) -> None:
    """Count reflections judged for a broader scope: `propagated`, `kept`, `personal`, `private`, `nowhere` to go,
    shown `alone`, where several must show it."""
    for result, number in results.items():
        PROPAGATIONS.labels(to, result).inc(number)


def count_decided(events: Iterable[object]) -> None:
    """Count the events of one outcome, once: when it is stored and published."""
    for event in events:
        if isinstance(event, FactChanged):
            FACTS_DECIDED.labels(event.scope.kind, event.decision).inc()
            if event.retired_because is not None and event.decision != "UNMERGE":
                FACTS_RETIRED.labels(event.scope.kind, event.retired_because).inc()
        elif isinstance(event, ReflectionFormed):
            REFLECTIONS_FORMED.labels(event.scope.kind).inc()
        elif isinstance(event, ScopeConsolidated):
            BLOB_WORDS.labels(event.scope.kind).observe(event.words)
            BLOB_FILL.labels(event.scope.kind).observe(event.words / event.word_limit)


MOST_AGENTS = 20
"""Agents with a label value of their own in a process; others are `other`."""


class CallMetrics:
    """Count model calls, their tokens, time and cost.

    Labels are bounded: the first `agents` agents that this process meets keep their names, the rest is `other`.
    """

    def __init__(self, agents: int = MOST_AGENTS) -> None:
        self._most, self._agents = agents, set[str]()

    def called(self, call: ModelCalled) -> None:
        """A call has ended."""
        agent = self._agent(call.agent_id)
        LLM_CALLS.labels(call.stage, call.provider, call.model, agent, call.outcome).inc(call.requests)
        LLM_REPAIRS.labels(call.stage, call.model).inc(bool(call.repair))
        if unpriced(call):
            LLM_UNPRICED.labels(call.stage, call.model).inc(call.requests)
        if call.cost_usd is not None:
            LLM_COST.labels(call.stage, call.model, agent).inc(float(call.cost_usd))
        self._tokens(call, agent)
        if not call.requests:
            return
        error = "" if call.outcome == "answered" else call.outcome
        GENAI_SECONDS.labels(call.operation, call.provider, call.model, error, call.stage).observe(
            call.seconds
        )

    def _tokens(self, call: ModelCalled, agent: str) -> None:
        kinds = {
            "input": call.input_tokens,
            "output": call.output_tokens,
            "cached": call.cached_tokens,
            "reasoning": call.reasoning_tokens,
        }
        for kind, number in kinds.items():
            LLM_TOKENS.labels(call.stage, call.model, agent, kind).inc(number)
        for kind in ("input", "output"):
            if kinds[kind]:
                GENAI_TOKENS.labels(call.operation, call.provider, call.model, kind, call.stage).observe(
                    kinds[kind]
                )

    def _agent(self, agent: str | None) -> str:
        if agent is None:
            return NOBODY
        if len(self._agents) < self._most:
            self._agents.add(agent)
        return agent if agent in self._agents else OTHERS


def count_usage(calls: Sequence[ModelCalled], *, repeated: int) -> None:
    """Count calls that went into the totals, but no reform's, and the `repeated` ones that were there already."""
    USAGE_REPEATED.inc(repeated)
    for call in calls:
        if call.namespace != "live":
            continue
        USAGE_CALLS.labels(call.stage, call.model).inc(call.requests)
        if call.cost_usd is not None:
            USAGE_COST.labels(call.stage, call.model).inc(float(call.cost_usd))
        elif unpriced(call):
            USAGE_UNPRICED.labels(call.stage, call.model).inc(call.requests)


def count_cached(size: int, scopes: int, evicted: int) -> None:
    """Set the bytes and scopes that are cached, and count the scopes that left."""
    SEARCH_KEPT_BYTES.set(size)
    SEARCH_KEPT_SCOPES.set(scopes)
    SEARCH_EVICTED.inc(evicted)


CHARGED = frozenset({"answered", "invalid", "truncated"})
"""The outcomes of calls that a provider charges for."""


def unpriced(call: ModelCalled) -> bool:
    """Whether a call was charged for at a price that is not known; one that brought nothing was not."""
    used = call.input_tokens or call.output_tokens
    return call.cost_usd is None and (call.outcome in CHARGED or bool(used))


def known_cost(usd: Decimal, calls: int, unpriced_calls: int, tokens: int) -> Decimal | None:
    """Return a sum's cost in US dollars, or None where the price of nothing in it is known.

    `tokens` without calls are a share of requests that other sums count.
    """
    unknown = unpriced_calls > 0 or (calls == 0 and tokens > 0)
    return None if unknown and not usd else usd
