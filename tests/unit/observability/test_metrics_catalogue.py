"""The catalogue of metrics: nothing is measured outside it, nothing in it is unused, labels are bounded."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    Summary,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.openmetrics.exposition import generate_latest as open_latest  # pyright: ignore
from starlette.testclient import TestClient

from eden_memory import metrics
from eden_memory.metrics import LLM_COST, CallMetrics
from eden_memory.schemas.events import ModelCalled
from eden_memory.schemas.example_files import examples_of
from eden_memory.stages.health_server import Labelled, exposition, health_app
from tools.reference.reference_pages import listed, metrics_page

ROOT = Path(__file__).parents[3]
CATALOGUE = ROOT / "eden_memory/metrics.py"
KINDS = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
FORBIDDEN = ("user", "session", "message", "fact", "scope_key", "group_id", "key", "id")
NAMES = {name for name, one in vars(metrics).items() if isinstance(one, MetricWrapperBase)}


def sources() -> Iterator[Path]:
    for folder in ("eden_memory", "processors", "schemas"):
        yield from (ROOT / folder).rglob("*.py")


def mentioned(path: Path) -> set[str]:
    """Names that a file reads, imports or takes from a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
    return found


def test_no_metric_is_made_outside_the_catalogue() -> None:
    for path in sources():
        if path == CATALOGUE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prometheus_client"):
                assert not {alias.name for alias in node.names} & KINDS, path


def test_no_metric_of_the_catalogue_is_unused() -> None:
    tree = ast.parse(CATALOGUE.read_text())
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    elsewhere = set[str]().union(*(mentioned(path) for path in sources() if path != CATALOGUE))
    assert classes <= elsewhere, f"nobody uses {classes - elsewhere}"
    assert NAMES - elsewhere - mentioned(CATALOGUE) == set()


@pytest.mark.parametrize("one", listed(), ids=lambda one: one.name)
def test_a_metric_says_what_it_is_and_has_bounded_labels(one: Any) -> None:
    assert re.fullmatch(r"(eden|kafka|gen_ai)_[a-z_]+", one.name)
    assert len(one.about) > 10
    assert not set(one.labels) & set(FORBIDDEN)
    assert f"`{one.name}`" in metrics_page()


def test_agents_beyond_a_bound_share_a_label() -> None:
    example = next(one for one in examples_of("ModelCalled", 1).values() if one.get("cost_usd"))
    call = ModelCalled.model_validate_json(__import__("json").dumps(example))
    counting = CallMetrics(agents=2)
    for agent in ("s.a", "s.b", "s.c", "s.d", "s.a"):
        counting.called(call.model_copy(update={"agent_id": agent, "stage": "a-test"}))
    agents = {
        labels["agent"]
        for labels in (sample.labels for sample in of(LLM_COST))
        if labels["stage"] == "a-test"
    }
    assert agents == {"s.a", "s.b", "other"}


def test_every_figure_says_its_namespace() -> None:
    registry = CollectorRegistry()
    Counter("some", "thing", ["kind"], registry=registry).labels("a").inc()
    page = generate_latest(Labelled("one", registry)).decode()
    assert 'some_total{kind="a",namespace="one"} 1.0' in page


@pytest.mark.parametrize("openmetrics", [True, False], ids=["OpenMetrics", "text"])
def test_the_page_is_what_the_library_would_make_of_it(openmetrics: bool) -> None:
    registry = CollectorRegistry()
    for one in vars(metrics).values():
        if isinstance(one, MetricWrapperBase):
            registry.register(one)
    odd = 'back\\slash "quoted"\nline, ünïcode'
    gauge = Gauge("g", odd, ["kind"], registry=registry)
    for number in (1, 0.1, 1e15, 123_456_789.5, float("inf")):
        gauge.labels(f"{odd} {number}").set(number)
    Histogram("h_seconds", "buckets", ["b", "a"], unit="seconds", registry=registry).labels("x", "").observe(
        3
    )
    Summary("s", "sum", registry=registry).observe(2)
    Info("i", "info", registry=registry).info({"version": odd})
    Enum("e", "state", states=["on", "off"], registry=registry).state("off")
    encode = cast(Callable[[CollectorRegistry], bytes], open_latest if openmetrics else generate_latest)
    expected = encode(Labelled(odd, registry)).decode()
    assert exposition(odd, openmetrics=openmetrics, registry=registry).decode() == expected


@pytest.mark.parametrize(
    ("accept", "begins"),
    [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
            "application/openmetrics",
        ),
        ("text/plain;version=1.0.0;escaping=dots", "text/plain; version=1.0.0"),
        ("", "text/plain; version=0.0.4"),
    ],
)
def test_a_scraper_gets_the_format_that_it_asks_for(accept: str, begins: str) -> None:
    client = TestClient(health_app(list, "one"))
    page = client.get("/metrics", headers={"accept": accept})
    assert page.headers["content-type"].startswith(begins)
    assert page.text.endswith("# EOF\n") == ("openmetrics" in begins)
    name = "eden__stage__running" if "dots" in accept else "eden_stage_running"
    assert f"# TYPE {name} gauge" in page.text
    assert "_created" not in page.text


def of(metric: Any) -> list[Any]:
    return [sample for one in metric.collect() for sample in one.samples]
