"""Formation by this code and by another checkout's, at the same moment on the same servers, pair by pair.

`python -m tests.bench.formation_pairs CHECKOUT [--pairs N] [--of NAME]`: the other checkout is set up as this one is.
Loads: 1,800 messages written at once, with calls of 0 s and of 1 s, the paces of `tests.bench.formation_pace`, and an
idle process. Both take the same load from the machine, so the ratios tell more than the figures.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.formation_load import conversations
from tests.bench.formation_pace import PACES, idle, paced
from tests.bench.formation_run import Run, run
from tests.bench.report import Report, Row, median, percentile
from tests.model_server.serving import ModelServerProcess, model_server_process
from tests.servers import TestServers, running_servers

BURSTS = {"burst, calls of 0 s": 0.0, "burst, calls of 1 s": 1.0}
IDLE = "idle"
LOADS = (*BURSTS, *PACES, IDLE)
SESSIONS, EACH = 20, 90

Figures = dict[str, float]


async def measured(servers: TestServers, models: ModelServerProcess, name: str, code: Path | None) -> Figures:
    """Return the figures of one of both programs under a load."""
    if name == IDLE:
        return {"cpu": 1_000 * await idle(servers, models, code)}
    if name in PACES:
        return figures(await paced(servers, models, name, code))
    return figures(await run(servers, models, list(conversations(SESSIONS, EACH)), None, code=code))


def figures(done: Run) -> Figures:
    """Return seconds of CPU per 1,000 messages, and milliseconds that windows took beyond their calls."""
    beyond = [1_000 * (delay - calls) for delay, calls in done.formed.delays()]
    return {
        "cpu": 1_000 * done.cpu / done.messages,
        "beyond_p50": percentile(beyond, 0.5),
        "beyond_p99": percentile(beyond, 0.99),
        "lost": done.formed.expected - len(done.formed.markers),
    }


async def measure(other: Path, pairs: int, names: Sequence[str]) -> Report:
    """Measure pair after pair, each load in turn."""
    report = Report("formation-pairs", f"this code beside {other.name}, {pairs} pairs")
    found: dict[str, list[tuple[Figures, Figures]]] = {name: [] for name in names}
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
        model_server_process(base_seconds=1.0) as models,
    ):
        for name in list(names) * pairs:
            models.change(base_seconds=BURSTS.get(name, 1.0))
            both = [measured(servers, models, name, code) for code in (None, other)]
            ours, theirs = await asyncio.gather(*both)
            found[name].append((ours, theirs))
    for name, of in found.items():
        describe(report, name, of)
    report.rows.append(Row("load of the machine, last minute", os.getloadavg()[0], ""))
    return report


def describe(report: Report, name: str, pairs: Sequence[tuple[Figures, Figures]]) -> None:
    """Add the medians of both, and of the pairs' ratios."""
    for what in pairs[0][0]:
        ours, theirs = zip(*((mine[what], other[what]) for mine, other in pairs), strict=True)
        report.results[f"{name}_{what}"], report.bounds[f"{name}_{what}"] = median(ours), median(theirs)
        unit = "" if what == "lost" else "ms" if what.startswith("beyond") else "s per 1,000"
        report.rows.append(Row(f"{name}: {what}", median(ours), unit, median(theirs), "the other's"))
        if what != "lost":
            ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
            report.ratios[f"{name}_{what}"] = median(ratios)
            least = Row(f"{name}: {what}, ratio, the least", min(ratios), "", max(ratios), "the most")
            report.rows += [Row(f"{name}: {what}, ratio, median", median(ratios), ""), least]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the checkout whose program runs beside")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--of", action="append", choices=LOADS, help="of these loads alone")
    given = parser.parse_args()
    asyncio.run(measure(given.other.absolute(), given.pairs, given.of or LOADS)).show()


if __name__ == "__main__":
    main()
