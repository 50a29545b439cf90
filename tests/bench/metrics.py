"""What metrics cost: CPU of a stage with and without them, in turns; and how long `/metrics` takes.

`python -m tests.bench.metrics [--records N] [--rounds N]`: the worst there is, a handler that does nothing and keeps
nothing. Servers of its own, or EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP.
"""

import argparse
import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog
from prometheus_client import Counter, Gauge, Histogram, generate_latest

from eden_memory.runtime.exposition import Labelled
from eden_memory.runtime.metrics import CallMetrics, FormationMetrics
from schemas.events import ModelCalled
from schemas.example_files import examples_of
from tests.bench.lanes import PARTITIONS, _settings, lanes_cpu  # pyright: ignore[reportPrivateUsage]
from tests.bench.report import Report, Row, median
from tests.integration.runtime.harness import asked, bench
from tests.servers import running_servers

SHARE, SCRAPE_MS = 1.03, 50.0
AGENTS, MODELS, STAGES = 20, 4, 5


@contextmanager
def without_metrics() -> Generator[None]:
    """Every increment and observation does nothing."""
    with ExitStack() as stack:
        for kind, names in ((Counter, ("inc",)), (Gauge, ("set", "inc")), (Histogram, ("observe",))):
            for name in names:
                stack.enter_context(patch.object(kind, name, _nothing))
        stack.enter_context(patch.object(Histogram, "time", _untimed))
        yield


def _nothing(*_args: Any, **_more: Any) -> None:
    """In the place of an increment."""


def _untimed(*_args: Any) -> Any:
    return nullcontext()


async def overhead(mongodb: str, kafka: str, records: int, rounds: int) -> dict[str, float]:
    """Medians of CPU in µs a record, on and off by turns, so that both meet the same load."""
    figures: dict[str, float] = {}
    async with bench(_settings(mongodb, kafka), PARTITIONS) as kit:
        for start in range(0, records, 10_000):
            most = min(records, start + 10_000)
            await kit.put([asked(f"s{one % 5_000}", one // 5_000) for one in range(start, most)])
        for what, decides in (("", True), ("bare_", False)):
            await lanes_cpu(kit, records, decides=decides)
            on, off = await _by_turns(kit, records, rounds, decides=decides)
            pairs = [one / other for one, other in zip(on, off, strict=True)]
            figures |= {f"{what}on": median(on), f"{what}off": median(off), f"{what}ratio": median(pairs)}
    return figures


async def _by_turns(kit: Any, records: int, rounds: int, *, decides: bool) -> tuple[list[float], list[float]]:
    on: list[float] = []
    off: list[float] = []
    for _ in range(rounds):
        on.append(1e6 * await lanes_cpu(kit, records, decides=decides) / records)
        with without_metrics():
            off.append(1e6 * await lanes_cpu(kit, records, decides=decides) / records)
    return on, off


def scrape_ms(rounds: int = 20) -> tuple[float, int]:
    """Milliseconds of one page of a process that has met as many agents, models and stages as labels allow; bytes."""
    example = next(iter(examples_of("ModelCalled", 1).values()))
    call = ModelCalled.model_validate(example, strict=False)
    counting = CallMetrics(AGENTS)
    for number in range(AGENTS * MODELS * STAGES):
        more = {
            "agent_id": f"s.{number % AGENTS}",
            "model": f"m{number // AGENTS % MODELS}",
            "stage": f"stage{number // AGENTS // MODELS}",
        }
        counting.called(call.model_copy(update=more))
    FormationMetrics().decided([])
    took: list[float] = []
    size = 0
    for _ in range(rounds):
        begun = time.perf_counter()
        size = len(generate_latest(Labelled("bench")))
        took.append(1_000 * (time.perf_counter() - begun))
    return median(took), size


def report(figures: dict[str, float], page: tuple[float, int]) -> Report:
    """As every benchmark prints it."""
    made = Report("metrics", "what metrics cost")
    took, size = page
    made.results = {**figures, "scrape_ms": took, "page_bytes": size}
    made.bounds = {"off": figures["off"], "bare_off": figures["bare_off"], "scrape_ms": SCRAPE_MS}
    made.ratios = {"on_to_off": figures["ratio"], "bare": figures["bare_ratio"], "scrape": took / SCRAPE_MS}
    off = "off, the same run"
    made.rows = [
        Row("one record of a stage that decides", figures["on"], "µs CPU", figures["off"], off),
        Row("one record, nothing done, nothing kept", figures["bare_on"], "µs CPU", figures["bare_off"], off),
        Row("a page of /metrics, labels at their bounds", took, "ms", SCRAPE_MS, "the target"),
    ]
    return made


def main(records: int, rounds: int) -> Report:
    """Both parts."""
    logging.disable(logging.WARNING)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    given = dict(os.environ)
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(given, Path(folder), Path(".eden/jars")) as servers,
    ):
        figures = asyncio.run(overhead(servers.mongodb_uri, servers.kafka_bootstrap, records, rounds))
    return report(figures, scrape_ms())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    main(arguments.records, arguments.rounds).show()
