"""Spans and metrics over OTLP, by OpenTelemetry's SDK: in batches, from threads of its own."""

import threading
from importlib.metadata import version

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
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

from eden_memory.settings import Settings
from eden_memory.telemetry.metric_export import gathered
from eden_memory.telemetry.spans import EndedSpan, SpanPlace

KINDS = {kind.name.lower(): kind for kind in SpanKind}
FLUSH_MS = 3_000
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
            "service.namespace": settings.metrics_namespace,
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
        self._resource, self._seconds = resource, settings.otel.metrics_seconds
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
