"""CPU of the process with all stages where few chats arrive in bursts, and where nothing arrives at all.

`python -m tests.bench.formation_pace [--rounds N] [--chats N N] [--each N] [--idle SECONDS]`. Private servers, the
model server as a process of its own, calls of 1 s, settings as `eden run` has them (a watermark every 10 s). Users
write at random moments, each message by itself; the assistant answers within 0.3 s. The provider is one of known
size (`of_known_size`): before, calls waited seconds for a place at an endpoint that was still being tried out, and
the delay beyond calls was mostly that.
"""

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.formation_load import conversations
from tests.bench.formation_run import (
    Run,
    Stand,
    cpu_seconds,
    of_known_size,
    run,
    running,
    stand,
    until_followed,
)
from tests.bench.report import Report, Row, median, percentile
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.servers import TestServers, running_servers

PACES: Mapping[str, tuple[float, float]] = {"busy": (60.0, 2.5), "quiet": (6.0, 5.0)}
"""Messages a second, target of CPU seconds per 1,000 messages."""
CHATS, EACH = (16, 4), 90
"""Chats of each pace, messages of each chat."""
IDLE_CORE, IDLE_SECONDS, SETTLED_SECONDS = 0.02, 40.0, 10.0
ANSWERS = 0.1, 0.3
"""Seconds after which the assistant answers."""
LIKE_EDEN_RUN = {"EDEN_TAILER_WATERMARK_SECONDS": "10"}

Message = dict[str, Any]


def arrivals(load: Sequence[Message], pace: float, *, seed: int = 1) -> list[tuple[float, Message]]:
    """Return seconds and message: users write at random, the assistant answers, each chat stays in order.

    Together the chats write at the pace, until the first of them have said all.
    """
    dice = random.Random(seed)
    chats = len({message["session_id"] for message in load})
    pause = 2 * chats / pace - sum(ANSWERS) / 2  # between an answer and the next question, on average
    clocks: dict[str, float] = {}
    found: list[tuple[float, Message]] = []
    for message in load:
        of_user = message["role"] == "user"
        after = dice.expovariate(1 / pause) if of_user else dice.uniform(*ANSWERS)
        now = clocks[message["session_id"]] = clocks.get(message["session_id"], 0.0) + after
        found.append((now, message))
    return sorted(found, key=lambda arrival: arrival[0])


async def write_chats(made: Stand, load: Sequence[Message], pace: float | None) -> None:
    """Insert each message by itself at its moment."""
    assert pace is not None
    began = time.monotonic()
    for at, message in arrivals(load, pace):
        await asyncio.sleep(began + at - time.monotonic())
        await made.database["messages"].insert_one(message)


async def paced(
    servers: TestServers,
    models: ModelServerProcess,
    name: str,
    code: Path | None = None,
    chats: Sequence[int] = CHATS,
    each: int = EACH,
) -> Run:
    """Run the chats of a pace."""
    pace, _ = PACES[name]
    load = list(conversations(chats[list(PACES).index(name)], each))
    more = {**LIKE_EDEN_RUN, **of_known_size(models)}
    return await run(servers, models, load, pace, more, writes=write_chats, code=code)


async def idle(
    servers: TestServers,
    models: ModelServerProcess,
    code: Path | None = None,
    seconds: float = IDLE_SECONDS,
) -> float:
    """Return the share of a core that a process takes to which nothing comes."""
    with tempfile.TemporaryDirectory() as folder:
        async with stand(servers, models, LIKE_EDEN_RUN, code) as made:
            with running(made, Path(folder) / "run.log") as process:
                await until_followed(made)
                await asyncio.sleep(min(SETTLED_SECONDS, seconds))
                before, began = cpu_seconds(process), time.monotonic()
                await asyncio.sleep(seconds)
                return (cpu_seconds(process) - before) / (time.monotonic() - began)


def describe(report: Report, name: str, runs: Sequence[Run]) -> None:
    """Add CPU, delays beyond the calls and lost markers of the rounds of a pace."""
    pace, target = PACES[name]
    beyond = [(delay - calls) * 1_000 for done in runs for delay, calls in done.formed.delays()]
    cpu = [1_000 * done.cpu / done.messages for done in runs]
    found = {
        "cpu_s_per_1000": median(cpu),
        "beyond_calls_p50_ms": percentile(beyond, 0.5),
        "beyond_calls_p99_ms": percentile(beyond, 0.99),
        "markers_lost": float(sum(done.formed.expected - len(done.formed.markers) for done in runs)),
    }
    report.results |= {f"{name}_{key}": value for key, value in found.items()}
    report.rows += [
        Row(f"CPU per 1,000 messages, {pace:.0f}/s", found["cpu_s_per_1000"], "s", target, "target"),
        Row("of the rounds the least", min(cpu), "s", max(cpu), "the most"),
        Row(
            "messages/s",
            median([done.messages / done.seconds for done in runs]),
            "messages/s",
            pace,
            "written",
        ),
        Row("delay of a window minus its calls, p50", found["beyond_calls_p50_ms"], "ms"),
        Row("delay of a window minus its calls, p99", found["beyond_calls_p99_ms"], "ms"),
        Row("markers lost", found["markers_lost"], "markers"),
    ]


async def measure(rounds: int, chats: Sequence[int], each: int, seconds: float) -> Report:
    """Measure idling and both paces, by turns."""
    report = Report("formation-pace", "CPU of all stages in one process by how much arrives")
    runs: dict[str, list[Run]] = {name: [] for name in PACES}
    cores: list[float] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
        model_server_process(base_seconds=1.0) as models,
    ):
        for _ in range(rounds):
            cores.append(await idle(servers, models, seconds=seconds))
            for name in PACES:
                runs[name].append(await paced(servers, models, name, chats=chats, each=each))
    report.results["idle_core"] = median(cores)
    report.rows += [
        Row("idle process, 1,000 times", 1_000 * median(cores), "of a core", 1_000 * IDLE_CORE, "target"),
        Row("of the rounds the least", 1_000 * min(cores), "of a core", 1_000 * max(cores), "the most"),
        Row("load of the machine, last minute", os.getloadavg()[0], ""),
    ]
    for name, done in runs.items():
        describe(report, name, done)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chats", type=int, nargs=2, default=CHATS, help="of each pace")
    parser.add_argument("--each", type=int, default=EACH, help="messages of a chat")
    parser.add_argument("--idle", type=float, default=IDLE_SECONDS, help="seconds of idling")
    given = parser.parse_args()
    asyncio.run(measure(given.rounds, given.chats, given.each, given.idle)).show()


if __name__ == "__main__":
    main()
