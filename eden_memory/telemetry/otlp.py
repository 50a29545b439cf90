"""Spans and metrics over OTLP, by OpenTelemetry's SDK: in batches, from threads of its own."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from itertools import pairwise

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
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
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from eden_memory.settings import Settings
from eden_memory.telemetry.spans import EndedSpan, SpanPlace

KINDS = {kind.name.lower(): kind for kind in SpanKind}

FLUSH_MS = 3_000
METRICS_SECONDS = 30.0
"""Between two exports of the metrics."""
"""Milliseconds for the last export; without a collector, what is left is lost."""


class GivenIds(RandomIdGenerator):
    """Gives the SDK the ids of the span that is being created."""

    place = SpanPlace(0, 0)

    def generate_span_id(self) -> int:
        """Return the span's."""
        return self.place.span

    def generate_trace_id(self) -> int:
        """Return the trace's; asked for spans without a parent."""
        return self.place.trace


class OtlpExport:
    """A SpanSink; its metrics are those of `/metrics`, by the same names."""

    def __init__(self, settings: Settings) -> None:
        told = {
            "service.name": "eden-memory",
            "service.version": version("eden-memory"),
            "service.namespace": settings.mongodb.database,
        }
        resource = Resource(told).merge(Resource.create({}))  # what OTEL_… variables say wins
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": told["service.name"]}))
        address = (settings.otel.endpoint or "").rstrip("/")
        self._ids = GivenIds()
        self._spans = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, id_generator=self._ids)
        self._spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
        self._tracer = self._spans.get_tracer("eden-memory", version("eden-memory"))
        self._metrics = OTLPMetricExporter(f"{address}/v1/metrics")
        self._resource, self._seconds = resource, METRICS_SECONDS
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._export_metrics, name="otlp metrics", daemon=True)
        self._thread.start()

    def take(self, span: EndedSpan) -> None:
        """Put a span into the next batch; the SDK drops it if too many wait."""
        self._ids.place = span.place
        parent = Context() if span.parent is None else _within(SpanPlace(span.place.trace, span.parent))
        made = self._tracer.start_span(
            span.name,
            parent,
            KINDS[span.kind],
            dict(span.attributes),
            [Link(_context(place)) for place in span.links],
            span.started,
        )
        if span.error is not None:
            made.set_attribute("error.type", span.error)
            made.set_status(Status(StatusCode.ERROR))
        made.end(span.ended)

    def close(self) -> None:
        """Send what is left; give up after a few seconds."""
        self._stopping.set()
        closing = threading.Thread(target=self._close, name="otlp close", daemon=True)
        closing.start()
        closing.join(FLUSH_MS / 1_000)

    def _close(self) -> None:
        self._spans.shutdown()
        self._metrics.shutdown(FLUSH_MS)  # pyright: ignore[reportUnknownMemberType] - of any keywords

    def _export_metrics(self) -> None:
        while not self._stopping.wait(self._seconds):
            data = gathered(self._resource)
            self._metrics.export(data, FLUSH_MS)  # pyright: ignore[reportUnknownMemberType] - of any keywords


def _context(place: SpanPlace) -> SpanContext:
    return SpanContext(place.trace, place.span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _within(place: SpanPlace) -> Context:
    return set_span_in_context(NonRecordingSpan(_context(place)), Context())


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
