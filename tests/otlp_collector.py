"""A collector that takes OTLP over HTTP, as real ones do, and keeps what it was sent."""

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class SeenSpan:
    """A span as it arrived."""

    name: str
    trace: str
    span: str
    parent: str
    """Empty: a root."""
    kind: int
    started: int
    ended: int
    attributes: dict[str, Any]
    links: tuple[str, ...]
    failed: bool


@dataclass
class Collector:
    """What arrived."""

    endpoint: str = ""
    spans: list[SeenSpan] = field(default_factory=list[SeenSpan])
    metrics: dict[str, Any] = field(default_factory=dict[str, Any])
    resources: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    raw: bytes = b""

    def take_spans(self, body: bytes) -> None:
        self.raw += body
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(values(group.resource.attributes))
            for scope in group.scope_spans:
                self.spans += [seen(span) for span in scope.spans]

    def take_metrics(self, body: bytes) -> None:
        self.raw += body
        for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for scope in group.scope_metrics:
                self.metrics |= {metric.name: metric for metric in scope.metrics}


def seen(span: Any) -> SeenSpan:
    return SeenSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        values(span.attributes),
        tuple(link.span_id.hex() for link in span.links),
        span.status.code == 2,
    )


def values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@contextmanager
def collector() -> Generator[Collector]:
    """Listening on loopback for the block."""
    found = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            (found.take_spans if self.path == "/v1/traces" else found.take_metrics)(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
