"""What traces cost: CPU of a stage with and without them, in turns, at every trace and at one in ten.

The stages are those of tests/bench/metrics.py; spans go over OTLP to a collector in a process of its own, which
throws them away. `python -m tests.bench.traces [--records N] [--rounds N]`.
"""

import argparse
import asyncio
import logging
import multiprocessing
import os
import tempfile
import timeit
from collections.abc import Generator
from contextlib import contextmanager, nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

from eden_memory.settings import OtelSettings, Settings
from eden_memory.telemetry import otlp
from eden_memory.telemetry.spans import Processing, exporting, sent
from tests.bench.metrics import STAGES_OF, Turns, overhead
from tests.bench.report import Report, Row
from tests.servers import running_servers

SHARES = {"all": 1.0, "tenth": 0.1}


class _Discarding(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Nothing."""


def _collect(ports: Any) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Discarding)
    ports.put(server.server_port)
    server.serve_forever()


@contextmanager
def discarding_collector() -> Generator[str]:
    """A collector's address; it runs in another process."""
    context = multiprocessing.get_context("spawn")
    ports = context.Queue()
    process = context.Process(target=_collect, args=(ports,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{ports.get(timeout=60)}"
    finally:
        process.terminate()
        process.join()


@contextmanager
def traced(endpoint: str, share: float) -> Generator[None]:
    """Spans go there; metrics do not (they would be of the whole bench)."""
    otel = OtelSettings(endpoint=endpoint, share=share)  # pyright: ignore[reportCallIssue]
    with patch.object(otlp, "METRICS_SECONDS", 3_600.0), exporting(Settings(otel=otel)):
        yield


def off_ns(runs: int = 200_000) -> float:
    """Nanoseconds that a unit pays where nothing is exported."""

    def unit() -> None:
        with Processing("stage", "group", (), 0):
            pass
        sent((), 0)

    return 1e9 * min(timeit.repeat(unit, number=runs, repeat=5)) / runs


def report(figures: dict[str, dict[str, float]], off: float) -> Report:
    """As every benchmark prints it."""
    made = Report("traces", "what traces cost")
    made.results = {
        f"{share}_{name}": figure for share, found in figures.items() for name, figure in found.items()
    }
    made.results["off_ns"] = off
    made.ratios = {
        f"{share}_{what}": figures[share][f"{what}_ratio"] for share in SHARES for what in STAGES_OF
    }
    made.rows = [
        Row(f"{about}; {SHARES[share]:.0%} of traces, median of pairs {found[f'{what}_ratio']:.3f}",
            found[f"{what}_on"], "µs CPU", found[f"{what}_off"], "off, the same run")
        for share, found in figures.items()
        for what, about in STAGES_OF.items()
    ]  # fmt: skip
    made.rows.append(Row("what a unit pays where nothing is exported", off, "ns", off, "itself"))
    return made


def main(records: int, rounds: int) -> Report:
    """Each share of traces against none."""
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
        discarding_collector() as endpoint,
    ):
        figures = {
            name: asyncio.run(
                overhead(
                    servers.mongodb_uri,
                    servers.kafka_bootstrap,
                    Turns(records, rounds, partial(traced, endpoint, share), nullcontext),
                )
            )
            for name, share in SHARES.items()
        }
    return report(figures, off_ns())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    main(arguments.records, arguments.rounds).show()
