"""The metrics of `/metrics` as OpenTelemetry's data, under the same names."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

STARTED = time.time_ns()
CUMULATIVE = AggregationTemporality.CUMULATIVE
Labels = tuple[tuple[str, str], ...]


def gathered(resource: Resource, registry: CollectorRegistry = REGISTRY) -> MetricsData:
    """Return what `/metrics` would show now."""
    now = time.time_ns()
    found = [metric for family in registry.collect() if (metric := _metric(family, now)) is not None]
    scope = ScopeMetrics(InstrumentationScope("eden-memory"), found, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, now: int) -> Metric | None:
    if not family.samples:
        return None
    if family.type == "histogram":
        data = Histogram(_histograms(family, now), CUMULATIVE)
    elif family.type == "counter":
        counts = (sample for sample in family.samples if sample.name.endswith("_total"))
        data = Sum(_points(counts, now), CUMULATIVE, is_monotonic=True)
    else:
        data = Gauge(_points(family.samples, now))
    return Metric(family.name, family.documentation, family.unit, data)


def _points(samples: Iterable[Sample], now: int) -> list[NumberDataPoint]:
    return [NumberDataPoint(dict(sample.labels), STARTED, now, sample.value) for sample in samples]


def _histograms(family: Family, now: int) -> list[HistogramDataPoint]:
    """One for each set of labels; Prometheus' buckets hold those below them, too."""
    series: dict[Labels, dict[str, float]] = defaultdict(dict)
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != "le"}
        kind = sample.name.removeprefix(family.name)
        series[tuple(sorted(labels.items()))][sample.labels["le"] if kind == "_bucket" else kind] = (
            sample.value
        )
    return [_histogram(dict(labels), values, now) for labels, values in series.items()]


def _histogram(labels: Mapping[str, str], values: Mapping[str, float], now: int) -> HistogramDataPoint:
    bounds = [bound for bound in values if not bound.startswith("_") and bound != "+Inf"]
    below = [0, *(int(values[bound]) for bound in bounds), int(values["+Inf"])]
    counts = [upper - lower for lower, upper in pairwise(below)]
    return HistogramDataPoint(
        labels,
        STARTED,
        now,
        int(values["_count"]),
        values["_sum"],
        counts,
        [float(bound) for bound in bounds],
        min=float("nan"),
        max=float("nan"),
    )
