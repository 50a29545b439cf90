"""What the gate runs, and which figures it compares: a row for each benchmark.

A figure is a ratio that the benchmark prints, or one of its results divided by a bound or another result of the same
run (`/` between them). Counts and megabytes stand alone, because they hardly depend on the machine. What has no bound
is divided by `json`: the µs that this machine takes in the same minute to write and read a message as JSON.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

JSON = "json"
Better = Literal["less", "more", "one"]
"""Which values are better: smaller ones, greater ones, those nearer to one."""


class Figure(NamedTuple):
    """A figure of a benchmark."""

    field: str
    what: str
    better: Better = "less"
    shown: str = ""
    """The result that people read beside it, and its unit; it is not compared."""

    def value(self, line: Mapping[str, Any], json_us: float) -> float | None:
        """Return it from the last line of a benchmark; None where the line lacks it."""
        if self.field in line["ratios"]:
            return line["ratios"][self.field]
        upper, _, lower = self.field.partition(" / ")
        found = line["results"].get(upper)
        if found is None or not lower:
            return found
        bound = {**line["results"], **line["bounds"], JSON: json_us}.get(lower)
        return found / bound if bound else None


class Bench(NamedTuple):
    """A benchmark's short form."""

    module: str
    arguments: str
    figures: tuple[Figure, ...]


LOST = "markers lost"
BENCHES = (
    Bench(
        "tailer",
        "--messages 40000 --rounds 1",
        (
            Figure("catch_up_of_serial", "catch-up: rate, of the bound", "more", "catch_up_per_s messages/s"),
            Figure("catch_up_us_cpu / json", "catch-up: CPU a message", shown="catch_up_us_cpu µs"),
            Figure(
                "backfill_of_catch_up", "reading in: rate, of catch-up", "more", "backfill_per_s messages/s"
            ),
            Figure("memory_mb", "memory, MB"),
        ),
    ),
    Bench(
        "tailer_pairs",
        "--pairs 1 --seconds 3 --messages 20000",
        (
            Figure(
                "read_uncommitted_p50",
                "insert → consumer, p50, of a minimal tailer's",
                shown="read_uncommitted_p50 ms",
            ),
            Figure("read_uncommitted_p99", "the same, p99", shown="read_uncommitted_p99 ms"),
            Figure(
                "cpu_s_per_1000", "CPU of catch-up, of a minimal tailer's", shown="cpu_s_per_1000 s/1,000"
            ),
        ),
    ),
    Bench(
        "lanes",
        "--records 40 --overhead 8000 --trigger 12000 --sessions 2400 --rounds 1",
        (
            Figure("uniform_of_simulated", "rate, uniform keys, of the simulated one", "more"),
            Figure("zipf_of_simulated", "rate, Zipf keys, of the simulated one", "more"),
            Figure("lanes_us / bare_us", "CPU a record, of aiokafka alone", shown="lanes_us µs"),
            Figure(
                "lanes_with_store_us / bare_us",
                "the same with an outcome store",
                shown="lanes_with_store_us µs",
            ),
            Figure(
                "trigger_of_left",
                "formation-trigger: rate, of a bulk write of what remains",
                "more",
                "trigger_stage_per_s messages/s",
            ),
            Figure("trigger_of_all", "the same, of all necessary writes", "more"),
        ),
    ),
    Bench(
        "formation",
        "--sessions 6 --rounds 1",
        (
            Figure(
                "fast_cpu_of_bare_clients",
                "CPU, calls of 0 s, of the clients alone",
                shown="fast_cpu_s_per_1000 s/1,000",
            ),
            Figure("slow_cpu_s_per_1000 / json", "CPU, calls of 1 s", shown="slow_cpu_s_per_1000 s/1,000"),
            Figure(
                "slow_of_longest_session",
                "rate, calls of 1 s, of the longest session's",
                "more",
                "slow_messages_per_s messages/s",
            ),
            Figure(
                "beyond_calls_p50_of_bare_cpu",
                "delay of a window minus its calls, p50, of the clients' CPU",
                shown="beyond_calls_p50_ms ms",
            ),
            Figure("slow_calls_per_1000", "calls per 1,000 messages"),
            Figure("slow_prompt_tokens_per_1000", "prompt tokens per 1,000 messages"),
            Figure("slow_markers_lost", LOST),
        ),
    ),
    Bench(
        "formation_pace",
        "--rounds 1 --each 45 --chats 16 2 --idle 8",
        (
            Figure("busy_cpu_s_per_1000 / json", "CPU at 60 messages/s", shown="busy_cpu_s_per_1000 s/1,000"),
            Figure(
                "quiet_cpu_s_per_1000 / json", "CPU at 6 messages/s", shown="quiet_cpu_s_per_1000 s/1,000"
            ),
            Figure("idle_core / json", "CPU of an idle process", shown="idle_core cores"),
            Figure("busy_markers_lost", f"{LOST} at 60/s"),
        ),
    ),
    Bench(
        "formation_backfill",
        "--messages 40000",
        (
            Figure("cpu_us / json", "formation-trigger: CPU a message", shown="cpu_us µs"),
            Figure("memory_mb_5", "its memory in the last fifth, MB"),
            Figure("unformed", "messages in no window"),
        ),
    ),
    Bench(
        "context",
        "--reads 200 --writes 50 --mongodb {mongodb}",
        (
            Figure(
                "warm_p99_ms / find_p50_ms",
                "warm read, p99, of a bare find's p50",
                shown="warm_p99_ms ms",
            ),
            Figure(
                "warm_heavy_p99_ms / find_p50_ms",
                "the same of a heavy user",
                shown="warm_heavy_p99_ms ms",
            ),
            Figure(
                "recent_2000_over_10",
                "`<Recent>` of 2,000 messages looked up, p50, of 10 messages'",
                shown="recent_looked_up_p50_ms ms",
            ),
            Figure(
                "cold_heavy_p95_ms / find_p95_ms",
                "cold read of a heavy user, p95, of a bare find",
                shown="cold_heavy_p95_ms ms",
            ),
            Figure("cold_over_find_p50", "cold read, p50, of a bare find", shown="cold_p50_ms ms"),
            Figure("cold_over_find_p95", "the same, p95", shown="cold_p95_ms ms"),
            Figure("cold_grouped_p95_ms / find_p95_ms", "with a group, p95", shown="cold_grouped_p95_ms ms"),
            Figure(
                "fresh_p50_ms / find_p50_ms",
                "committed write → fresh elsewhere, p50, of a bare find",
                shown="fresh_p50_ms ms",
            ),
            Figure(
                "fresh_p99_ms / event_p99_ms",
                "the same, p99, of a bare change stream",
                shown="fresh_p99_ms ms",
            ),
            Figure(
                "recent_p50_ms / find_p50_ms",
                "insert → `<Recent>` elsewhere, p50, of a bare find",
                shown="recent_p50_ms ms",
            ),
        ),
    ),
    Bench(
        "gateway",
        "--chats 150 --tokens 1000 --mongodb {mongodb}",
        (
            Figure(
                "first_p50",
                "first byte, p50, of the provider's own (and what is added)",
                shown="first_added_p50_ms ms",
            ),
            Figure(
                "first_added_p50",
                "added to the first byte, p50, of the provider's own",
                shown="first_added_p50_ms ms",
            ),
            Figure(
                "first_added_heavy_p50",
                "the same of a heavy user",
                shown="first_heavy_added_p50_ms ms",
            ),
            Figure(
                "searching_over_alone_p50",
                "added with the search, p50, of embedding and search alone",
                shown="first_searching_added_p50_ms ms",
            ),
            Figure(
                "token",
                "a token of a stream, of the provider's own (and what is added)",
                shown="token_added_us µs",
            ),
        ),
    ),
    Bench(
        "search",
        "--facts 10000 --scopes 100 --searches 200 --changes 20 --rounds 1 --mongodb {mongodb}",
        (
            Figure("10000_over_numpy_p50", "10,000 facts, p50, of numpy's", shown="10000_p50_ms ms"),
            Figure(
                "10000_spread_over_numpy_p50",
                "the same over 100 scopes, 3 in each search",
                shown="10000_spread_p50_ms ms",
            ),
            Figure(
                "10000_findable_over_told",
                "write begun → findable, p50, of a bare change stream",
                shown="10000_findable_p50_ms ms",
            ),
            Figure(
                "10000_384_first_over_read",
                "first search, of reading the documents",
                shown="10000_384_first_ms ms",
            ),
            Figure("10000_recall", "recall@10", "more"),
            Figure("10000_other_form_mrr", "words in another form, 1/rank", "more"),
        ),
    ),
    Bench(
        "metrics",
        "--records 300 --rounds 2",
        (
            Figure("deciding", "CPU of an answered record, of that without metrics", shown="deciding_on µs"),
            Figure("trigger", "of a message in formation-trigger's batches", shown="trigger_on µs"),
            Figure("bare", "of a record with nothing done", shown="bare_on µs"),
            Figure(
                "scrape_to_library", "a page of `/metrics`, of the library's encoder", shown="scrape_ms ms"
            ),
        ),
    ),
    Bench(
        "traces",
        "--records 300 --rounds 1",
        (
            Figure("all_deciding", "CPU of an answered record, all traces, of that without"),
            Figure("all_trigger", "of a message in formation-trigger's batches"),
            Figure("tenth_deciding", "of an answered record, one trace in ten"),
        ),
    ),
    Bench(
        "replay",
        "--facts 10000 --reflections 3000 --blobs 300 --scopes 30 --rounds 1",
        (
            Figure("rebuild_to_upsert", "rebuilding: rate, of a bulk upsert", "more", "rebuild documents/s"),
            Figure("cpu_ms / json", "CPU a record, with the command's start", shown="cpu_ms ms"),
            Figure("peak_mb", "memory, MB"),
        ),
    ),
    Bench(
        "reform",
        "",
        (Figure("estimated_to_spent", "estimated cost, of what was spent", "one", "spent_usd USD"),),
    ),
    Bench(
        "reform_delays",
        "--sessions 3 --rounds 1",
        (
            Figure(
                "p50_beside_to_alone", "delay of a live window, p50, of that alone", shown="beside_p50_s s"
            ),
            Figure("p99_beside_to_alone", "the same, p99", shown="beside_p99_s s"),
        ),
    ),
    Bench(
        "reform_rate",
        "--sessions 8 --calls 0",
        (
            Figure(
                "other_to_live_0s",
                "rate with another prompt, of live formation",
                "more",
                "other_per_s_0s messages/s",
            ),
            Figure("same_to_live_0s", "rate with all answers kept", "more", "same_per_s_0s messages/s"),
        ),
    ),
    Bench(
        "imports",
        "--items 3000",
        (
            Figure("cpu / json", "CPU of the command and `eden run`, an item", shown="cpu ms"),
            Figure("mb", "memory of the command, MB"),
        ),
    ),
    Bench(
        "forgetting",
        "--messages 2000 --undo 200 --live 4 --each 45",
        (
            Figure(
                "seconds_to_formed",
                "2,000 messages forgotten, of the time to form them",
                shown="forgotten_s s",
            ),
            Figure(
                "p50_beside_to_alone", "delay of a live window, p50, of that alone", shown="beside_p50_s s"
            ),
            Figure("undo_s / json", "a session of 200 messages undone", shown="undo_s s"),
        ),
    ),
    Bench(
        "comparing",
        "--facts 30000",
        (
            Figure("seconds", "30,000 facts each, of reading and multiplying", shown="seconds s"),
            Figure("peak_mb", "memory of the command, MB"),
        ),
    ),
    Bench(
        "inspector",
        "--large 20000 --rounds 6",
        (
            Figure("overview", "overview, 20,000 facts, of 1,000", shown="overview ms"),
            Figure("facts", "page of facts", shown="facts ms"),
            Figure("fact", "page of a fact", shown="fact ms"),
        ),
    ),
    Bench(
        "start",
        "--rounds 2",
        (
            Figure("help_cpu_over_bound", "`eden --help`: CPU, of typer's import", shown="help_s s"),
            Figure(
                "import_cpu_over_bound",
                "`MemoryService`: CPU of its import, of the libraries'",
                shown="import_s s",
            ),
            Figure(
                "ready_cpu_over_bound",
                "`eden run` until ready: CPU, of importing its code",
                shown="ready_s s",
            ),
        ),
    ),
    Bench(
        "scaling",
        "--rounds 1 --sessions 5 --of '1 process' --of '4 processes'",
        (
            Figure(
                "1 process: of simulated",
                "1 process: rate, of the simulated one",
                "more",
                "1 process: messages_per_s messages/s",
            ),
            Figure(
                "4 processes: of simulated",
                "4 processes: rate, of the simulated one",
                "more",
                "4 processes: messages_per_s messages/s",
            ),
            Figure(
                "4 processes: cpu_s_per_1000 / 1 process: cpu_s_per_1000",
                "CPU of 4 processes, of 1",
                shown="4 processes: cpu_s_per_1000 s/1,000",
            ),
            Figure("4 processes: markers_lost", LOST),
            Figure("4 processes: answers_paid_twice", "answers paid twice"),
        ),
    ),
    Bench(
        "scaling_rebalances",
        "--rounds 1 --sessions 11 --seconds 6 --only-kill",
        (
            Figure(
                "kill: pause_s / calm: pause_s",
                "longest time without a new call after a kill, of the calm's",
                shown="kill: pause_s s",
            ),
            Figure("markers_lost", LOST),
        ),
    ),
    Bench(
        "scaling_simulation",
        "--rates 100 1000",
        (
            Figure("1000_processes", "processes for 1,000 messages/s"),
            Figure("1000_beyond_calls_p99_s", "delay minus calls at 1,000 messages/s, p99, simulated s"),
            Figure("100_quota_of_calls_per_minute", "limit of calls a minute for 100 messages/s"),
        ),
    ),
    Bench(
        "tokens",
        "--windows 2 --of OpenAI",
        (
            Figure("OpenAI, new memory: full_price_per_1000", "at full price per 1,000 messages, new memory"),
            Figure("OpenAI, grown memory: full_price_per_1000", "the same, grown memory"),
            Figure("OpenAI, new memory: full_price_per_fact", "the same per remembered fact, new memory"),
            Figure(
                "OpenAI, new memory, one call: full_price_per_1000", "at full price, one call for both kinds"
            ),
            Figure(
                "OpenAI, new memory, one call: calls_per_1000",
                "calls per 1,000 messages, one call for both kinds",
            ),
        ),
    ),
)
