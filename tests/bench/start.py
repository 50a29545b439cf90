"""How soon commands and processes are there: help, the library's import, and `eden run` until it is ready.

`python -m tests.bench.start [--rounds N]`: private servers; everything was started once before, `eden run` in the
same namespace, so that files are in the system's cache and modules are compiled. Wall time of each whole process,
with the CPU that it took; bounds of the same run: a Python that imports nothing, one that imports the libraries
alone, and one that imports the code of `eden run`.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.bench.formation_pace import LIKE_EDEN_RUN
from tests.bench.formation_run import Stand, cpu_seconds, running, stand
from tests.bench.report import Report, Row, median
from tests.model_server.serving import model_server_process
from tests.servers import running_servers

PYTHON = (sys.executable, "-c")
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "bare": (*PYTHON, "pass"),
    "help": (sys.executable, "-m", "eden_memory.cli.main", "--help"),
    "typer": (*PYTHON, "import typer.rich_utils"),
    "import": (*PYTHON, "from eden_memory.api.service import MemoryService"),
    "libraries": (*PYTHON, "import pymongo, pydantic_settings, prometheus_client"),
    "code": (*PYTHON, "import eden_memory.cli.run"),
}
HELP, IMPORT, READY = 0.3, 0.5, 2.0
"""Seconds: targets of `eden --help`, of the import of MemoryService, and of `eden run` until it is ready."""


@dataclass
class Starts:
    """Seconds of wall time and of CPU, round by round."""

    wall: list[float] = field(default_factory=list[float])
    cpu: list[float] = field(default_factory=list[float])


def started(command: Sequence[str]) -> tuple[float, float]:
    """Run a command to its end; return its seconds of wall time and CPU."""
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, used


def ready(made: Stand, log: Path) -> tuple[float, float]:
    """Start all stages; return seconds and CPU until they say that they are ready."""
    began = time.perf_counter()
    with running(made, log) as process:
        return time.perf_counter() - began, cpu_seconds(process)


async def measure(rounds: int) -> Report:
    """Measure starts by turns."""
    report = Report("start", "seconds until commands and processes are there")
    # An installed program has its modules compiled; with this set, every start would compile those of a checkout.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    starts = {name: Starts() for name in (*COMMANDS, "ready")}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
        model_server_process() as models,
    ):
        async with stand(servers, models, LIKE_EDEN_RUN) as made:
            for number in range(rounds + 1):
                for name, command in COMMANDS.items():
                    _add(starts[name], await asyncio.to_thread(started, command), number)
                log = Path(folder) / "run.log"
                _add(starts["ready"], await asyncio.to_thread(ready, made, log), number)
    _describe(report, starts)
    return report


def _add(starts: Starts, found: tuple[float, float], number: int) -> None:
    """Leave out the first round, which fills caches."""
    if number:
        starts.wall.append(found[0])
        starts.cpu.append(found[1])


def _describe(report: Report, starts: Mapping[str, Starts]) -> None:
    for name, what, target, bound in (
        ("help", "eden --help", HELP, "typer"),
        ("import", "import of MemoryService", IMPORT, "libraries"),
        ("ready", "eden run until ready", READY, "code"),
    ):
        found, least = starts[name], starts[bound]
        report.rows += [
            Row(what, median(found.wall), "s", target, "target"),
            Row(what, median(found.wall), "s", median(least.wall), " ".join(COMMANDS[bound][2:])),
            Row(f"{what}: fastest", min(found.wall), "s", max(found.wall), "slowest"),
            Row(f"{what}: CPU", median(found.cpu), "s", median(least.cpu), "CPU of the bound"),
        ]
        report.results |= {f"{name}_s": median(found.wall), f"{name}_cpu_s": median(found.cpu)}
        report.bounds[f"{name}_s"] = median(least.wall)
        report.ratios[f"{name}_cpu_over_bound"] = median(found.cpu) / median(least.cpu)
    report.rows += [
        Row("Python that imports nothing", median(starts["bare"].wall), "s"),
        Row("load of the machine at the end", psutil.getloadavg()[0], ""),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    asyncio.run(measure(parser.parse_args().rounds)).show()
