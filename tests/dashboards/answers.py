"""Every panel with its answer on a live run, as a table for docs; `python -m tests.dashboards.answers`.

With `--url` and `--namespace` it asks a Prometheus that runs; without, it plays a short day on servers of its own
(or EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP).
"""

import argparse
import asyncio
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from tests.dashboards.export import BOARDS
from tests.dashboards.live import filled, live
from tests.dashboards.panels import Board, Panel, Unit
from tests.dashboards.prometheus import Prometheus, Vector
from tests.integration.system.conftest import namespaced
from tests.servers import Namespace, running_servers

SHOWN, TALK_SECONDS = 4, 25.0
UNITS: dict[Unit, str] = {
    "s": " s",
    "short": "",
    "currencyUSD": " USD",
    "percentunit": "",
    "bytes": " B",
    "ops": "/s",
}


async def tables(prom: Prometheus, namespace: str) -> str:
    """A table for each dashboard, as Markdown."""
    return "\n".join([await _table(prom, board, namespace) for board in BOARDS])


async def _table(prom: Prometheus, board: Board, namespace: str) -> str:
    lines = [f"## {board.title}\n", "| | answer |", "| --- | --- |"]
    for panel in board.panels:
        found = [(query.legend, await prom.query(filled(query.expr, namespace))) for query in panel.queries]
        lines.append(f"| {panel.title} | {'; '.join(_answers(panel, found, namespace)) or 'nothing yet'} |")
    return "\n".join([*lines, ""])


def _answers(panel: Panel, found: Sequence[tuple[str, Vector]], namespace: str) -> Iterator[str]:
    """The largest of each query, by their legends."""
    for legend, vector in found:
        finite = sorted((one for one in vector if math.isfinite(one[1])), key=lambda one: -one[1])
        for labels, value in finite[:SHOWN]:
            yield f"{_named(legend, labels, namespace)}{_figure(panel, value)}"
        if len(finite) > SHOWN:
            yield f"… {len(finite) - SHOWN} more"


def _named(legend: str, labels: dict[str, str], namespace: str) -> str:
    for name, value in labels.items():
        legend = legend.replace("{{" + name + "}}", value.replace(f"{namespace}.", ""))
    return f"{legend} " if legend else ""


def _figure(panel: Panel, value: float) -> str:
    if panel.unit == "percentunit":
        return f"{value:.0%}"
    if panel.unit == "currencyUSD":
        return f"{value:.4f} USD"
    return f"{value:,.3g}{UNITS[panel.unit]}" if abs(value) < 1_000 else f"{value:,.0f}{UNITS[panel.unit]}"


async def _day(folder: Path, mongodb: str, kafka: str) -> str:
    mine = Namespace(f"t{uuid4().hex[:12]}")
    from tests.servers import TestServers

    async with live(namespaced(TestServers(mongodb, kafka), mine, folder), folder) as running:
        await running.day()
        talking = asyncio.create_task(running.talk())
        await asyncio.sleep(TALK_SECONDS)
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        return await tables(running.prom, mine.database)


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--namespace", default="eden")
    arguments = parser.parse_args()
    if arguments.url is not None:
        print(asyncio.run(tables(Prometheus(arguments.url), arguments.namespace)))  # noqa: T201
        return
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(dict(os.environ), Path(folder), Path(".eden/jars")) as servers,
    ):
        print(asyncio.run(_day(Path(folder) / "day", servers.mongodb_uri, servers.kafka_bootstrap)))  # noqa: T201


if __name__ == "__main__":
    main()
