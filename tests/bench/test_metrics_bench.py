"""The benchmark of metrics in a short form: ratios, and what is switched off is off."""

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from tests.bench.metrics import SCRAPE_MS, STAGES_OF, Turns, overhead, report, scrape, without_metrics
from tests.servers import TestServers


@pytest.mark.servers
@pytest.mark.slow
async def test_each_kind_of_stage_is_measured_with_and_without_metrics(servers: TestServers) -> None:
    figures = await overhead(servers.mongodb_uri, servers.kafka_bootstrap, Turns(150, 2))
    made = report(figures, scrape(5))
    assert made.ratios.keys() == {*STAGES_OF, "scrape", "scrape_to_library"}
    assert all(made.ratios[what] > 0 for what in ("deciding", "bare")), (
        "so few records show no ratio, but that there is one"
    )
    assert all(figures[f"{what}_on"] > 0 for what in STAGES_OF)
    assert made.bounds["scrape_ms"] == SCRAPE_MS
    assert made.ratios["scrape_to_library"] < 1


def test_without_metrics_nothing_is_counted_and_afterwards_it_is() -> None:
    registry = CollectorRegistry()
    counter = Counter("turns", "of the test", ["way"], registry=registry)
    histogram = Histogram("length_seconds", "of the test", registry=registry)
    for _ in range(2):
        with without_metrics():
            counter.labels("off").inc()
            with histogram.time():
                histogram.observe(1)
        counter.labels("on").inc()
        histogram.observe(2)
    assert registry.get_sample_value("turns_total", {"way": "off"}) == 0
    assert registry.get_sample_value("turns_total", {"way": "on"}) == 2
    assert registry.get_sample_value("length_seconds_count") == 2
