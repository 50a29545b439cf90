"""What metrics cost: CPU of a stage with and without them, in turns; and how long `/metrics` takes.

A stage that answers each record and stores its decision; formation-trigger's batches; and the worst there is, a
handler that does nothing and keeps nothing. `python -m tests.bench.metrics [--records N] [--rounds N]`: so many
records that are decided, ten times as many of the others. Servers of its own, or EDEN_MONGODB_URI and
EDEN_KAFKA_BOOTSTRAP.
"""

import argparse
import asyncio
import logging
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
)
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog
from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.openmetrics.exposition import generate_latest  # pyright: ignore[reportUnknownVariableType]

from eden_memory.metrics import CallMetrics, count_decided
from eden_memory.schemas.events import ModelCalled
from eden_memory.schemas.example_files import examples_of
from eden_memory.stages.health_server import Labelled, exposition
from eden_memory.stages.worker import Bounds, Worker
from tests.bench.formation_trigger import TEXT, namespace
from tests.bench.lanes import PARTITIONS, _cpu, _settings, lanes_cpu  # pyright: ignore[reportPrivateUsage]
from tests.bench.report import Report, Row, median
from tests.integration.stages.harness import Bench, answer, asked, bench, running, stage, until
from tests.integration.windows.harness import Kit
from tests.servers import running_servers
from tests.unit.windows.records import message

SHARE, SCRAPE_MS = 1.03, 50.0
AGENTS, MODELS, STAGES = 20, 4, 5
STAGES_OF = {
    "deciding": "a record that is answered, the decision stored",
    "trigger": "a message in formation-trigger's batches",
    "bare": "a record, nothing done, nothing kept",
}


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


Measure = Callable[[int], Awaitable[float]]
"""A number of records → CPU seconds of one of them."""


@dataclass(frozen=True, slots=True)
class Turns:
    """What is compared, by turns, so that both meet the same load."""

    records: int
    rounds: int
    on: Callable[[], AbstractContextManager[None]] = nullcontext
    off: Callable[[], AbstractContextManager[None]] = without_metrics


async def overhead(mongodb: str, kafka: str, turns: Turns) -> dict[str, float]:
    """Medians of CPU in µs a record, on and off."""
    figures: dict[str, float] = {}
    records = turns.records
    async with bench(_settings(mongodb, kafka), PARTITIONS) as kit:

        async def nothing_done(number: int) -> float:
            return await lanes_cpu(kit, number, decides=False) / number

        figures |= await _by_turns("deciding", _deciding(kit), turns, records)
        await kit.put([asked(f"s{one % 500}", one // 500) for one in range(10 * records)])
        figures |= await _by_turns("bare", nothing_done, turns, 10 * records)
    async with namespace(mongodb, kafka) as trigger:
        figures |= await _by_turns("trigger", _triggering(trigger), turns, 10 * records)
    return figures


async def _by_turns(what: str, measure: Measure, turns: Turns, records: int) -> dict[str, float]:
    """Pairs of neighbours, each the other way round than the one before; the first run warms up."""
    await measure(records)
    on: list[float] = []
    off: list[float] = []
    for number in range(turns.rounds):
        for kept in (True, False) if number % 2 else (False, True):
            with turns.on() if kept else turns.off():
                (on if kept else off).append(1e6 * await measure(records))
    pairs = [one / other for one, other in zip(on, off, strict=True)]
    return {f"{what}_on": median(on), f"{what}_off": median(off), f"{what}_ratio": median(pairs)}


def _deciding(kit: Bench) -> Measure:
    """A stage that answers: one outcome stored and one record published for each question, anew each time."""
    runs = count()

    async def measure(number: int) -> float:
        run = f"run{next(runs)}-"
        await kit.put([asked(f"{run}{one % 200}", one // 200) for one in range(number)])
        worker = Worker(stage(answer), kit.around(bounds=Bounds()))
        return await _from_the_first_on(kit.database["memory_outcomes"], number, running(worker))

    return measure


def _triggering(kit: Kit) -> Measure:
    """formation-trigger over new messages, ten to a session."""
    numbers = count(1)

    async def measure(number: int) -> float:
        await kit.put([_said(next(numbers)) for _ in range(number)])
        return await _from_the_first_on(kit.database["memory_messages"], number, kit.running())

    return measure


async def _from_the_first_on(stored: Any, number: int, at_work: AbstractAsyncContextManager[Any]) -> float:
    """CPU seconds for each document of `number`, without what comes before the first."""
    before = await stored.estimated_document_count()

    async def more_than(least: int) -> bool:
        return await stored.estimated_document_count() > before + least

    async with at_work:
        await until(lambda: more_than(0), "the first", 120)
        had, begun = await stored.estimated_document_count(), _cpu()
        await until(lambda: more_than(number - 1), "all", 600)
        return (_cpu() - begun) / max(1, before + number - had)


def _said(number: int) -> Any:
    return message(f"s.m{number}", f"s.{number // 10}", number, number / 10_000, TEXT)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of `/metrics` as Prometheus asks for it (OpenMetrics): milliseconds, bytes."""

    took: float
    library: float
    """What the library's own encoder takes for the same page, by turns."""
    size: int


def scrape(rounds: int = 20) -> Page:
    """Of a process that has met as many agents, models and stages as labels allow."""
    _meet_everything()
    took: list[float] = []
    library: list[float] = []
    size = 0
    for _ in range(rounds):
        begun = time.perf_counter()
        size = len(exposition("bench", openmetrics=True))
        half = time.perf_counter()
        generate_latest(Labelled("bench"))
        took.append(1_000 * (half - begun))
        library.append(1_000 * (time.perf_counter() - half))
    return Page(median(took), median(library), size)


def _meet_everything() -> None:
    disable_created_metrics()
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
    count_decided([])


def report(figures: dict[str, float], page: Page) -> Report:
    """As every benchmark prints it."""
    made = Report("metrics", "what metrics cost")
    made.results = {
        **figures,
        "scrape_ms": page.took,
        "scrape_library_ms": page.library,
        "page_bytes": page.size,
    }
    made.bounds = {f"{what}_off": figures[f"{what}_off"] for what in STAGES_OF} | {"scrape_ms": SCRAPE_MS}
    made.ratios = {what: figures[f"{what}_ratio"] for what in STAGES_OF} | {
        "scrape": page.took / SCRAPE_MS,
        "scrape_to_library": page.took / page.library,
    }
    made.rows = [
        Row(f"{about}; median of pairs {figures[f'{what}_ratio']:.3f}", figures[f"{what}_on"], "µs CPU",
            figures[f"{what}_off"], "off, the same run")
        for what, about in STAGES_OF.items()
    ]  # fmt: skip
    at_bounds = "a page of /metrics, labels at their bounds"
    made.rows.append(Row(at_bounds, page.took, "ms", SCRAPE_MS, "the target"))
    made.rows.append(Row("the same", page.took, "ms", page.library, "the library's encoder, the same run"))
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
        figures = asyncio.run(overhead(servers.mongodb_uri, servers.kafka_bootstrap, Turns(records, rounds)))
    return report(figures, scrape())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    main(arguments.records, arguments.rounds).show()
