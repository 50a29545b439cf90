"""Formation by 1, 2 and 4 processes beside its simulation, by partitions and by what the provider allows.

`python -m tests.bench.scaling [--rounds N] [--sessions N] [--of PLANT …]`. Private servers, the model server as a
process of its own, calls of 1 s. Each process may make only 4 calls at once: so it waits for calls nearly all the
time, and four processes mean something on two cores. 24 sessions of 90 messages are written at once; the clock
starts when the first window closes.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from tests.bench.formation_load import conversations
from tests.bench.formation_run import PARTITIONS, WINDOW, Run, of_known_size, run
from tests.bench.formation_work import CHATS
from tests.bench.report import Report, Row, median
from tests.bench.scaling_simulation import Plant, burst, simulated
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.servers import TestServers, running_servers

SESSIONS, WINDOWS_EACH = 24, 2
AT_ONCE, QUOTA = 4, 3.0
PLANTS: Mapping[str, Plant] = {
    "1 process": Plant(1, 12, AT_ONCE),
    "2 processes": Plant(2, 12, AT_ONCE),
    "4 processes": Plant(4, 12, AT_ONCE),
    "4 processes, 6 partitions": Plant(4, 6, AT_ONCE),
    "2 processes, 3 calls/s allowed": Plant(2, 12, AT_ONCE, calls_per_second=QUOTA),
}
ASSIGNMENTS = range(15)
"""Seeds of simulated assignments of partitions: each run has one of its own."""


async def real(servers: TestServers, models: ModelServerProcess, plant: Plant, sessions: int) -> Run:
    """Form the load by real processes."""
    models.change(base_seconds=plant.call_seconds, calls_per_second=plant.calls_per_second)
    more = {
        **of_known_size(models),
        "EDEN_MODELS_AT_ONCE": str(plant.at_once),
        PARTITIONS: str(plant.partitions),
    }
    load = list(conversations(sessions, WINDOWS_EACH * WINDOW))
    return await run(servers, models, load, None, more, processes=plant.processes)


def seconds_of(done: Run) -> float:
    """From the first closed window to the last memory."""
    return done.formed.ended - min(done.formed.opened.values())


def busy_of_a_call(runs: Sequence[Run]) -> float:
    """Seconds for which a model call, with all the work around it, occupies an event loop."""
    return median([done.busy / sum(done.counts["calls"][kind] for kind in CHATS) for done in runs])


def seconds_of_a_call(runs: Sequence[Run]) -> float:
    """Mean of the answered chat calls, as the processes saw them: a busy machine adds to the server's second."""
    calls = (call for done in runs for call in done.formed.calls)
    return mean(call.seconds for call in calls if (call.operation, call.outcome) == ("chat", "answered"))


def simulated_rates(plant: Plant, sessions: int) -> list[float]:
    """Messages a second of simulated runs, by assignment of partitions."""
    windows = burst(sessions, WINDOWS_EACH)
    return [len(windows) * WINDOW / simulated(plant, windows, seed).seconds for seed in ASSIGNMENTS]


def describe(report: Report, name: str, runs: Sequence[Run], plant: Plant) -> None:
    """Add rates, measured and simulated, CPU and what was lost or paid twice."""
    rates = [done.messages / seconds_of(done) for done in runs]
    foretold = median(simulated_rates(plant, runs[0].messages // (WINDOWS_EACH * WINDOW)))
    found = {
        "messages_per_s": median(rates),
        "call_s": plant.call_seconds,
        "busy_s_per_call": plant.busy_seconds,
        "cpu_s_per_1000": median([1_000 * done.cpu / done.messages for done in runs]),
        "markers_lost": float(sum(done.formed.expected - len(done.formed.markers) for done in runs)),
        "answers_paid_twice": float(sum(len(done.counts["repeated"]) for done in runs)),
    }
    report.results |= {f"{name}: {key}": value for key, value in found.items()}
    report.bounds[f"{name}: simulated"] = foretold
    report.ratios[f"{name}: of simulated"] = found["messages_per_s"] / foretold
    report.rows += [
        Row(name, found["messages_per_s"], "messages/s", foretold, "simulated"),
        Row("least and most of the rounds", min(rates), "messages/s", max(rates), "the most"),
        Row("seconds of a call", found["call_s"], "s"),
        Row("seconds that a call occupies a process", found["busy_s_per_call"], "s"),
        Row("CPU per 1,000 messages", found["cpu_s_per_1000"], "s"),
        Row("markers lost", found["markers_lost"], "markers"),
        Row("answers paid twice", found["answers_paid_twice"], "answers"),
    ]


async def measured(rounds: int, sessions: int, names: Sequence[str]) -> Mapping[str, Sequence[Run]]:
    """Run these plants by turns."""
    runs: dict[str, list[Run]] = {name: [] for name in names}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
        model_server_process() as models,
    ):
        for _ in range(rounds):
            for name in names:
                runs[name].append(await real(servers, models, PLANTS[name], sessions))
    return runs


def compared(runs: Mapping[str, Sequence[Run]]) -> Report:
    """Simulate each plant with the seconds of its own runs; a simulation has an event loop of its own."""
    messages = next(iter(runs.values()))[0].messages
    report = Report("scaling", f"{messages:,} messages, {AT_ONCE} calls at once a process")
    for name, done in runs.items():
        of_call, busy = seconds_of_a_call(done), busy_of_a_call(done)
        describe(report, name, done, replace(PLANTS[name], call_seconds=of_call, busy_seconds=busy))
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--of", action="append", choices=PLANTS, help="of these plants alone")
    given = parser.parse_args()
    compared(asyncio.run(measured(given.rounds, given.sessions, given.of or list(PLANTS)))).show()


if __name__ == "__main__":
    main()
