"""The whole of formation against a model server: throughput, calls, tokens, CPU, delay of a window.

`python -m tests.bench.formation [--sessions N] [--each N]`; `HOT=1` asks for one hot scope instead. Private servers,
all stages in one process as `eden run` starts it, the model server in another. Workload: 20 sessions of 90
messages, user and assistant alternating, 28 words on average, every user message with one marker, which the
server returns as a fact; 2 user reflections and 1 session reflection per window.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.bare_clients import bare_cpu
from tests.bench.formation_load import conversations, hot, staggered
from tests.bench.formation_run import WINDOW, Run, run
from tests.bench.report import Report, Row, percentile
from tests.model_server.serving import model_server_process
from tests.servers import running_servers

CALLS, TOKENS, CPU, RATE, DELAY, HOT_RATE = 85.0, 200_000.0, 1.0, 200.0, 150.0, 10.0
"""The targets: per 1,000 messages, messages a second, ms, facts a second."""
HOT_WINDOW = 4
PACE = 100.0
"""Messages a second of the run that measures delays: windows of a session do not overlap."""


def describe(report: Report, name: str, seconds: float, one: Run) -> None:
    """What a burst says: throughput, calls, tokens, CPU, markers lost."""
    thousand = one.messages / 1_000
    chats = sum(
        one.counts["calls"].get(kind, 0) for kind in ("facts", "decisions", "reflections", "consolidation")
    )
    found = {
        "messages_per_s": one.messages / one.seconds,
        "calls_per_1000": chats / thousand,
        "prompt_tokens_per_1000": one.counts["input_tokens"] / thousand,
        "cpu_s_per_1000": one.cpu / thousand,
        "markers_lost": one.formed.expected - len(one.formed.markers),
    }
    report.results |= {f"{name}_{key}": value for key, value in found.items()}
    chain = _longest_chain(one, seconds)
    report.bounds[f"{name}_longest_session_per_s"] = chain
    report.rows += [
        Row(f"throughput, calls of {seconds:.1f} s", found["messages_per_s"], "messages/s", RATE, "target"),
        Row("LLM calls per 1,000 messages", found["calls_per_1000"], "calls", CALLS, "target"),
        Row("prompt tokens per 1,000", found["prompt_tokens_per_1000"], "tokens", TOKENS, "target"),
        Row("CPU per 1,000, all stages", found["cpu_s_per_1000"], "s", CPU, "target"),
        Row("markers lost", found["markers_lost"], "markers"),
    ]
    if chain:
        report.ratios[f"{name}_of_longest_session"] = found["messages_per_s"] / chain
        report.rows.append(
            Row(
                "throughput again",
                found["messages_per_s"],
                "messages/s",
                chain,
                "the longest session's calls",
            )
        )


def describe_bare(report: Report, name: str, one: Run, bare: Mapping[str, float]) -> None:
    """CPU beside that of the clients alone, for the same calls, commands and records."""
    thousand = one.messages / 1_000
    whole = sum(bare.values()) / thousand
    report.bounds |= {f"{name}_bare_{client}_cpu_s_per_1000": cpu / thousand for client, cpu in bare.items()}
    report.ratios[f"{name}_cpu_of_bare_clients"] = one.cpu / thousand / whole
    did = one.work
    commands = sum(did.commands.values()) / thousand
    report.rows += [
        Row("CPU again", one.cpu / thousand, "s", whole, "provider, MongoDB and Kafka clients alone"),
        Row("MongoDB commands per 1,000", commands, "commands"),
        Row("records per 1,000, as read by groups", did.deliveries / thousand, "records"),
    ]


def _longest_chain(one: Run, seconds: float) -> float:
    """What nothing could beat: a session's windows one after the other, each with two calls."""
    if not seconds:
        return 0.0
    windows: dict[int, int] = {}
    for session, _ in one.formed.windows.values():
        windows[session] = windows.get(session, 0) + 1
    return one.messages / ((max(windows.values()) + 1) * seconds)


def describe_delays(report: Report, one: Run) -> None:
    """Delay of windows in a paced run."""
    delays = one.formed.delays()
    beyond = [(delay - calls) * 1_000 for delay, calls in delays]
    report.results |= {
        "delay_p50_s": percentile([delay for delay, _ in delays], 0.5),
        "delay_p99_s": percentile([delay for delay, _ in delays], 0.99),
        "beyond_calls_p50_ms": percentile(beyond, 0.5),
        "beyond_calls_p99_ms": percentile(beyond, 0.99),
    }
    report.rows += [
        Row(
            "delay of a window, p50",
            report.results["delay_p50_s"],
            "s",
            median_calls(delays),
            "its calls, p50",
        ),
        Row(
            "delay of a window, p99",
            report.results["delay_p99_s"],
            "s",
            median_calls(delays),
            "its calls, p50",
        ),
        Row("delay minus its calls, p50", report.results["beyond_calls_p50_ms"], "ms", DELAY, "target"),
        Row("delay minus its calls, p99", report.results["beyond_calls_p99_ms"], "ms"),
    ]


def median_calls(delays: Sequence[tuple[float, float]]) -> float:
    """Seconds of a window's calls, the median."""
    return percentile([calls for _, calls in delays], 0.5)


async def measure(sessions: int, each: int) -> Report:
    """Three runs over the same conversations."""
    report = Report("formation", f"formation of {sessions * each:,} messages in one process")
    load = list(conversations(sessions, each))
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers({}, Path(folder), Path(".eden/jars")) as servers,
        model_server_process(base_seconds=1.0) as models,
    ):
        describe(report, "slow", 1.0, await run(servers, models, load, None))
        paced = staggered(load, sessions, WINDOW)
        describe_delays(report, await run(servers, models, paced, PACE))
        models.change(base_seconds=0.0)
        fast = await run(servers, models, load, None)
        describe(report, "fast", 0.0, fast)
        describe_bare(report, "fast", fast, await bare_cpu(fast.work))
    return report


async def measure_hot(sessions: int) -> Report:
    """One agent, many sessions: half of the facts go to the one scope of the agent."""
    report = Report("formation-hot", f"one hot scope, {sessions:,} sessions, calls of 1 s + 5 ms a token")
    load = list(conversations(sessions, HOT_WINDOW))
    more = {"EDEN_WINDOWS_MESSAGES": str(HOT_WINDOW)}
    script = "tests.bench.formation_load:hot_script"
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers({}, Path(folder), Path(".eden/jars")) as servers,
        model_server_process(script, base_seconds=1.0, token_seconds=0.005) as models,
    ):
        done = await run(servers, models, load, None, more)
    agents = [at for marker, at in done.formed.markers.items() if hot(marker)]
    others = [at for marker, at in done.formed.markers.items() if not hot(marker)]
    first = min(done.formed.markers.values())
    report.results = {
        "hot_facts_per_s": len(agents) / (max(agents) - first),
        "other_facts_per_s": len(others) / (max(others) - first),
        "markers_lost": done.formed.expected - len(done.formed.markers),
    }
    report.bounds = {"target_facts_per_s": HOT_RATE}
    report.rows = [
        Row("facts of the hot scope", report.results["hot_facts_per_s"], "facts/s", HOT_RATE, "target"),
        Row("facts of the other scopes", report.results["other_facts_per_s"], "facts/s"),
        Row("markers lost", report.results["markers_lost"], "markers"),
    ]
    report.ratios = {
        "hot_of_target": report.results["hot_facts_per_s"] / HOT_RATE,
        "others_of_hot": report.results["other_facts_per_s"] / report.results["hot_facts_per_s"],
    }
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--each", type=int, default=90)
    parser.add_argument("--hot", action="store_true", help="one hot scope, 1,000 sessions or --sessions")
    given = parser.parse_args()
    if given.hot:
        asyncio.run(measure_hot(given.sessions or 1_000)).show()
    else:
        asyncio.run(measure(given.sessions or 20, given.each)).show()


if __name__ == "__main__":
    main()
