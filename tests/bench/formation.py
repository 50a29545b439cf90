"""The whole of formation against a model server: throughput, calls, tokens, CPU, delay of a window.

`python -m tests.bench.formation [--sessions N] [--each N] [--rounds N]`; `HOT=1` asks for one hot scope instead.
Private servers, all stages in one process as `eden run` starts it, the model server in another. Workload: 20 sessions
of 90 messages, user and assistant alternating, 28 words on average, every user message with one marker, which the
server returns as a fact; 2 user reflections and 1 session reflection per window.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.bench.bare_clients import bare_cpu
from tests.bench.formation_load import conversations, hot, staggered
from tests.bench.formation_run import WINDOW, Run, of_known_size, run
from tests.bench.formation_work import CHATS
from tests.bench.report import Report, Row, median, percentile
from tests.model_server.serving import model_server_process
from tests.servers import running_servers

CALLS, TOKENS, RATE, HOT_RATE = 85.0, 200_000.0, 200.0, 10.0
"""The targets: per 1,000 messages, messages a second, facts a second."""
CPU: Mapping[float, float] = {0.0: 0.8, 1.0: 1.0}
"""The target of CPU seconds per 1,000 messages, by how long a call takes."""
DELAYS: Mapping[str, float] = {"p50": 120.0, "p99": 300.0}
"""The targets of what a window takes beyond its calls, in milliseconds."""
HOT_WINDOW = 4
PACE = 100.0
"""Messages a second of the run that measures delays: windows of a session do not overlap."""


def describe(report: Report, name: str, seconds: float, runs: Sequence[Run]) -> None:
    """Add medians of what bursts say: throughput, calls, tokens, CPU, markers lost; of CPU the spread, too."""
    found = {
        "messages_per_s": [done.messages / done.seconds for done in runs],
        "calls_per_1000": [_chats(done) / done.messages * 1_000 for done in runs],
        "prompt_tokens_per_1000": [done.counts["input_tokens"] / done.messages * 1_000 for done in runs],
        "cpu_s_per_1000": [done.cpu / done.messages * 1_000 for done in runs],
    }
    report.results |= {f"{name}_{key}": median(values) for key, values in found.items()}
    lost = report.results[f"{name}_markers_lost"] = sum(map(_lost, runs))
    cpu, rate = found["cpu_s_per_1000"], median(found["messages_per_s"])
    report.rows += [
        Row(f"throughput, calls of {seconds:.1f} s", rate, "messages/s", RATE, "target"),
        Row("LLM calls per 1,000 messages", median(found["calls_per_1000"]), "calls", CALLS, "target"),
        Row("prompt tokens per 1,000", median(found["prompt_tokens_per_1000"]), "tokens", TOKENS, "target"),
        Row("CPU per 1,000, all stages", median(cpu), "s", CPU[seconds], "target"),
        Row("of the rounds the least", min(cpu), "s", max(cpu), "the most"),
        Row("markers lost", lost, "markers"),
    ]
    chain = median([_longest_chain(done, seconds) for done in runs])
    report.bounds[f"{name}_longest_session_per_s"] = chain
    if chain:
        report.ratios[f"{name}_of_longest_session"] = rate / chain
        report.rows.append(Row("throughput again", rate, "messages/s", chain, "the longest session's calls"))


def _chats(done: Run) -> int:
    return sum(done.counts["calls"].get(kind, 0) for kind in CHATS)


def _lost(done: Run) -> int:
    return done.formed.expected - len(done.formed.markers)


def describe_bare(report: Report, name: str, one: Run, bare: Mapping[str, float]) -> None:
    """CPU beside that of the clients alone, for the same calls, commands and records."""
    thousand = one.messages / 1_000
    whole = sum(bare.values()) / thousand
    report.bounds |= {f"{name}_bare_{client}_cpu_s_per_1000": cpu / thousand for client, cpu in bare.items()}
    report.ratios[f"{name}_cpu_of_bare_clients"] = one.cpu / thousand / whole
    did = one.work
    commands = sum(did.commands.values()) / thousand
    report.rows += [
        Row(
            "CPU of the last round",
            one.cpu / thousand,
            "s",
            whole,
            "provider, MongoDB and Kafka clients alone",
        ),
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


def describe_delays(report: Report, runs: Sequence[Run]) -> None:
    """Add the delay of windows in paced runs: medians of the rounds, and their spread."""
    delays = [done.formed.delays() for done in runs]
    calls = median([median_calls(of) for of in delays])
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        whole = [percentile([delay for delay, _ in of], share) for of in delays]
        beyond = [percentile([(delay - own) * 1_000 for delay, own in of], share) for of in delays]
        report.results |= {f"delay_{name}_s": median(whole), f"beyond_calls_{name}_ms": median(beyond)}
        report.rows += [
            Row(f"delay of a window, {name}", median(whole), "s", calls, "its calls, p50"),
            Row(f"delay minus its calls, {name}", median(beyond), "ms", DELAYS[name], "target"),
            Row("of the rounds the least", min(beyond), "ms", max(beyond), "the most"),
        ]


def median_calls(delays: Sequence[tuple[float, float]]) -> float:
    """Seconds of a window's calls, the median."""
    return percentile([calls for _, calls in delays], 0.5)


async def measure(sessions: int, each: int, rounds: int) -> Report:
    """Measure three loads over the same conversations, round after round."""
    report = Report("formation", f"formation of {sessions * each:,} messages in one process, {rounds} rounds")
    load = list(conversations(sessions, each))
    paced = staggered(load, sessions, WINDOW)
    slow: list[Run] = []
    spread: list[Run] = []
    fast: list[Run] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
        model_server_process(base_seconds=1.0) as models,
    ):
        known = of_known_size(models)
        for _ in range(rounds):
            models.change(base_seconds=1.0)
            slow.append(await run(servers, models, load, None, known))
            spread.append(await run(servers, models, paced, PACE, known))
            models.change(base_seconds=0.0)
            fast.append(await run(servers, models, load, None, known))
        bare = await bare_cpu(fast[-1].work)
    describe(report, "slow", 1.0, slow)
    describe_delays(report, spread)
    describe(report, "fast", 0.0, fast)
    describe_bare(report, "fast", fast[-1], bare)
    bare_ms = 1_000 * sum(bare.values()) / (fast[-1].messages / WINDOW)
    report.ratios["beyond_calls_p50_of_bare_cpu"] = report.results["beyond_calls_p50_ms"] / bare_ms
    report.rows.append(Row("load of the machine, last minute", os.getloadavg()[0], ""))
    return report


async def measure_hot(sessions: int) -> Report:
    """One agent, many sessions: half of the facts go to the one scope of the agent."""
    report = Report("formation-hot", f"one hot scope, {sessions:,} sessions, calls of 1 s + 5 ms a token")
    load = list(conversations(sessions, HOT_WINDOW))
    more = {"EDEN_WINDOWS_MESSAGES": str(HOT_WINDOW)}
    script = "tests.bench.formation_load:hot_script"
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hot", action="store_true", help="one hot scope, 1,000 sessions or --sessions")
    given = parser.parse_args()
    if given.hot:
        asyncio.run(measure_hot(given.sessions or 1_000)).show()
    else:
        asyncio.run(measure(given.sessions or 20, given.each, given.rounds)).show()


if __name__ == "__main__":
    main()
