"""A provider that is away for a while, told by the dashboards' own queries; `python -m tests.dashboards.night`.

A conversation every second; after some the provider answers 503 for a while, then it is back. Prints what panels
showed, as the table of docs/operations.md. Servers of its own, or EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from uuid import uuid4

from tests.dashboards.live import Live, live
from tests.dashboards.panels import OF, OURS
from tests.integration.system.conftest import namespaced
from tests.servers import Namespace, TestServers, running_servers

COLUMNS = {
    "written": 'sum(eden_tailer_records_total{record="MessageRecorded"})',
    "windows": f"sum(eden_trigger_windows_total{{{OF}}})",
    "behind, s": f"max(kafka_consumergroup_lag_seconds{{{OURS}}})",
    "behind, records": f"sum(eden_stage_pending_records{{{OF}}})",
    "away": f"max(eden_provider_away{{{OF}}})",
    "paused": f"count(max by (stage) (eden_stage_paused{{{OF}}}) > 0) or vector(0)",
    "facts": f"sum(eden_facts_decided_total{{{OF}}})",
    "failed calls": 'sum(eden_llm_calls_total{outcome!="answered"}) or vector(0)',
    "given up": f"sum(eden_dead_letters_total{{{OF}}}) or vector(0)",
    "USD": f"sum(eden_llm_cost_usd_total{{{OF}}})",
}


async def night(running: Live, before: float, away: float, after: float, step: float) -> list[list[str]]:
    """Rows of (what happens, seconds, figures)."""
    rows: list[list[str]] = []
    begun = time.monotonic()
    talking = asyncio.create_task(running.talk())
    try:
        for what, seconds, outage in (("", before, False), ("provider away", away, True), ("", after, False)):
            running.models.change(outage=outage)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                await asyncio.sleep(step)
                figures = [await running.ask(expr) for expr in COLUMNS.values()]
                shown = [f"{found[0][1]:.4g}" if found else "0" for found in figures]
                rows.append([f"{time.monotonic() - begun:.0f} s", what, *shown])
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
    return rows


async def _play(folder: Path, servers: TestServers, arguments: argparse.Namespace) -> list[list[str]]:
    mine = Namespace(f"t{uuid4().hex[:12]}")
    async with live(namespaced(servers, mine, folder), folder) as running:
        return await night(running, arguments.before, arguments.away, arguments.after, arguments.step)


def main() -> None:
    """Print it as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, seconds in (("before", 15), ("away", 30), ("after", 30), ("step", 5)):
        parser.add_argument(f"--{name}", type=float, default=seconds, help="seconds")
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(dict(os.environ), Path(folder), Path(".eden/jars")) as servers,
    ):
        rows = asyncio.run(_play(Path(folder) / "night", servers, arguments))
    for row in (["at", "", *COLUMNS], ["---"] * (len(COLUMNS) + 2), *rows):
        print(f"| {' | '.join(row)} |")  # noqa: T201


if __name__ == "__main__":
    main()
