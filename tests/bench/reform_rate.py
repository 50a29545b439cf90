"""How fast a reform is, against live formation of the same messages with the same model server: messages/s.

`python -m tests.bench.reform_rate [--sessions N] [--each N] [--calls SECONDS …]`. Private servers, live stages in
one process, the reform as the command in another, the model server in a third; calls of 0 s and of 1 s. Live
formation forms the history, written at once; then it is formed anew with another prompt (every call is paid), and
with none changed (every answer is there). Of a reform the time counts from its first window to the end of the
command; its start is shown apart.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.formation_run import (
    MOST_SECONDS,
    Stand,
    running,
    stand,
    until_followed,
)
from tests.bench.reform import lived, numbered, streams
from tests.bench.report import Report, Row
from tests.model_server.serving import model_server_process
from tests.servers import TestServers, running_servers

EDEN = (sys.executable, "-m", "eden_memory.cli.main")
SESSIONS, EACH = 112, 90
OTHER, SAME = "other", "same"
"""Namespaces: another prompt, nothing changed."""


@dataclass(frozen=True)
class Reformed:
    """One reform, in seconds."""

    start: float
    """Of the command, until its first window is on its way."""
    forming: float
    windows: int


async def reformed(made: Stand, name: str, folder: Path, options: Sequence[str]) -> Reformed:
    """Run the command to its end; a SystemExit with what it said if it fails."""
    begun, log = time.monotonic(), folder / f"{name}.log"
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *EDEN,
            *("reform", name, "--yes", *options),
            env={**os.environ, **made.environment},
            stdout=file,
            stderr=file,
        )
        outcomes = made.database[f"memory_ns_{name}_outcomes"]
        while process.returncode is None and await outcomes.find_one({}, {"_id": 1}) is None:
            if time.monotonic() - begun > MOST_SECONDS:
                process.kill()
            await asyncio.sleep(0.02)
        first = time.monotonic()
        if await process.wait():
            raise SystemExit(log.read_text())
    forming = time.monotonic() - first
    return Reformed(first - begun, forming, await outcomes.count_documents({"stage": "fact-extraction"}))


async def rates(
    report: Report, servers: TestServers, sessions: int, each: int, seconds: float, *, same: bool = True
) -> None:
    """Live formation's rate, then a reform's of the same messages."""
    load, asked = numbered(sessions, each, 0), f"calls of {seconds:g} s"
    with tempfile.TemporaryDirectory() as name, model_server_process(base_seconds=seconds) as models:
        folder = Path(name)
        async with stand(servers, models, {}) as made:
            with running(made, folder / "run.log"):
                await until_followed(made)
                began = time.time()
                live = await lived(made, load, None)
                live_rate = len(load) / (live.ended - began)
                prompt = ("--streams", str(streams(folder, "s.default")))
                found = {OTHER: await reformed(made, OTHER, folder, prompt)}
                if same:
                    found[SAME] = await reformed(made, SAME, folder, ())
    short = f"{seconds:g}s"
    report.results |= {f"live_per_s_{short}": live_rate, f"windows_{short}": float(len(live.windows))}
    report.rows.append(Row(f"live formation, {asked}", live_rate, "messages/s"))
    for which, one in found.items():
        rate = len(load) / one.forming
        report.results |= {
            f"{which}_per_s_{short}": rate,
            f"{which}_start_s_{short}": one.start,
            f"{which}_windows_{short}": float(one.windows),
        }
        report.ratios[f"{which}_to_live_{short}"] = rate / live_rate
        what = "another prompt" if which == OTHER else "answers reused"
        report.rows += [
            Row(f"reform, {what}, {asked}", rate, "messages/s", live_rate, "live formation, same run"),
            Row("its start, with the estimate", one.start, "s"),
        ]


async def measure(servers: TestServers, sessions: int, each: int, calls: Sequence[float]) -> Report:
    """Measure with calls that take so many seconds."""
    report = Report("reform-rate", f"a reform of {sessions * each:,} messages against live formation")
    for seconds in calls:
        await rates(report, servers, sessions, each, seconds)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--each", type=int, default=EACH)
    parser.add_argument("--calls", type=float, nargs="+", default=[0.0, 1.0], help="seconds of a call")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        running_servers(os.environ, Path(name), Path(".eden/jars")) as servers,
    ):
        asyncio.run(measure(servers, given.sessions, given.each, given.calls)).show()


if __name__ == "__main__":
    main()
