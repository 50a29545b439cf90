"""Spans of the pipeline and of requests, by OpenTelemetry's conventions, and the switch of their export.

The span of a record, `send TOPIC`, has an id that follows from the record's (eden_memory/names.py), so every
process knows it without anything more in the record. A stage's span, `process TOPIC`, is a child of the last record
that it takes and links to the others; its model calls and what it publishes are its children. Ids of records leave
the installation only hashed, as in the ids of spans: some contain ids of users, which forgetting could not take back.

No URL is recorded, only the template of its route: paths and queries contain ids of users and texts of searches.
(OpenTelemetry's own instrumentation of ASGI records them, and cannot be told not to.)
"""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import timedelta
from secrets import randbits
from types import TracebackType
from typing import Any, Literal, NamedTuple, Protocol, Self

from eden_memory.errors import needs
from eden_memory.names import PARTS, span_id, traceparent
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import Settings

SpanKind = Literal["producer", "consumer", "client", "server", "internal"]

Attributes = Mapping[str, str | int | float | bool]

MOST_LINKS = 128
"""As many as OpenTelemetry keeps by default."""

PROVIDERS = {"google": "gcp.gemini"}
"""Our names of providers, where the conventions have other names."""

SAMPLED_BITS = 64
"""Range of trace ids that the exported share is cut from, as in OpenTelemetry's own sampler."""


class SpanPlace(NamedTuple):
    """A span in its trace."""

    trace: int
    span: int


@dataclass(frozen=True, slots=True)
class EndedSpan:
    """A span that is over. Times are nanoseconds since 1970."""

    name: str
    kind: SpanKind
    place: SpanPlace
    parent: int | None
    started: int
    ended: int
    attributes: Attributes
    links: Sequence[SpanPlace] = ()
    error: str | None = None


class SpanSink(Protocol):
    """Takes spans as they end."""

    def take(self, span: EndedSpan) -> None:
        """Take one; it must not wait."""
        ...


class SentRecord(Protocol):
    """A record that was published."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    @property
    def value(self) -> bytes | None:
        """None: a tombstone."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The envelope."""
        ...


class TakenRecord(Protocol):
    """A record that a stage handles."""

    @property
    def envelope(self) -> Envelope:
        """Its CloudEvents attributes."""
        ...

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    @property
    def partition(self) -> int:
        """Of the topic."""
        ...


class Tracing:
    """Where the spans of this process go, and which share of the traces."""

    def __init__(self) -> None:
        self.sink: SpanSink | None = None
        self._bound = 0

    def begin(self, sink: SpanSink, share: float = 1.0) -> None:
        """Send spans there from now on."""
        self.sink, self._bound = sink, round(share * 2**SAMPLED_BITS)

    def end(self) -> None:
        """Send none any more."""
        self.sink = None

    def samples(self, trace: int) -> bool:
        """Whether a trace is exported: all of its spans, in every process with the same share."""
        return trace & (2**SAMPLED_BITS - 1) < self._bound


TRACING = Tracing()

CURRENT: ContextVar[SpanPlace | None] = ContextVar("span of the work in hand", default=None)
"""The unit of records, request or search whose part is running."""


class Processing:
    """The span of one attempt at a unit of records; entered, it is the parent of what happens inside."""

    def __init__(self, stage: str, group: str, taken: Sequence[TakenRecord], offset: int) -> None:
        self._stage, self._group, self._taken, self._offset = stage, group, taken, offset
        self._error: str | None = None
        self._counts = TRACING.sink is not None and bool(taken)
        self._begun = time.time_ns() if self._counts else 0
        self._token: Token[SpanPlace | None] | None = None

    def __enter__(self) -> Self:
        if self._counts:
            self._last = _place_of(self._taken[-1].envelope)
            self._place = SpanPlace(self._last.trace, randbits(64))
            self._token = CURRENT.set(self._place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is None:
            return
        CURRENT.reset(self._token)
        sink = TRACING.sink
        if self._counts and sink is not None and TRACING.samples(self._place.trace):
            sink.take(self._span(self._error or (kind and kind.__name__)))

    def failed(self, error: str) -> None:
        """Note that the attempt has failed, and the kind of failure."""
        self._error = error

    def drop(self) -> None:
        """Note that nothing was done: the records wait for others."""
        self._counts = False

    def _span(self, error: str | None) -> EndedSpan:
        last, others = self._taken[-1], self._taken[:-1]
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": last.topic,
            "messaging.destination.partition.id": str(last.partition),
            "messaging.consumer.group.name": self._group,
            "eden.stage": self._stage,
        }
        if others:
            attributes["messaging.batch.message_count"] = len(self._taken)
        else:
            attributes["messaging.kafka.offset"] = self._offset
            attributes["messaging.message.id"] = span_id(last.envelope.id)
        return EndedSpan(
            f"process {last.topic}",
            "consumer",
            self._place,
            self._last.span,
            self._begun,
            time.time_ns(),
            attributes,
            [_place_of(record.envelope) for record in others[-MOST_LINKS:]],
            error,
        )


def sent(records: Sequence[SentRecord], begun: int) -> None:
    """Record that each of these records was published, beginning at `begun` (`time.time_ns`)."""
    sink = TRACING.sink
    if sink is None:
        return
    now, current = time.time_ns(), CURRENT.get()
    for record in records:
        span = _sent(record, begun, now, current)
        if span is not None:
            sink.take(span)


def _sent(record: SentRecord, begun: int, now: int, current: SpanPlace | None) -> EndedSpan | None:
    headers = {name: value or b"" for name, value in record.headers}
    parts = headers.get("traceparent", b"").split(b"-")
    if len(parts) != PARTS:
        return None
    name = span_id(headers["ce_id"].decode())
    place = SpanPlace(int(parts[1], 16), int(name, 16))
    if not TRACING.samples(place.trace):
        return None
    cause = int(parts[2], 16)
    inside = current is not None and current.trace == place.trace
    attributes: dict[str, str | bool] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": record.topic,
        "messaging.message.id": name,
        "cloudevents.event_type": headers["ce_type"].decode(),
    }
    if record.value is None:
        attributes["messaging.kafka.message.tombstone"] = True
    return EndedSpan(
        f"send {record.topic}",
        "producer",
        place,
        current.span if current is not None and inside else None if cause == place.span else cause,
        begun,
        now,
        attributes,
        [] if current is None or inside else [current],
    )


def called(call: ModelCalled) -> None:
    """Record a model call that has ended: a child of the current unit, or a trace of its own."""
    sink, current = TRACING.sink, CURRENT.get()
    if sink is None or not call.requests:
        return
    place = SpanPlace(current.trace if current is not None else randbits(128), randbits(64))
    if TRACING.samples(place.trace):
        sink.take(_called(call, place, current))


def _called(call: ModelCalled, place: SpanPlace, current: SpanPlace | None) -> EndedSpan:
    started = int(call.started_at.timestamp() * 1_000_000) * 1_000
    optional = {
        "gen_ai.response.model": call.response_model,
        "gen_ai.prompt.name": call.prompt,
        "eden.cost_usd": None if call.cost_usd is None else float(call.cost_usd),
    }
    attributes = {
        "gen_ai.operation.name": call.operation,
        "gen_ai.provider.name": PROVIDERS.get(call.provider, call.provider),
        "gen_ai.request.model": call.model,
        "gen_ai.usage.input_tokens": call.input_tokens,
        "gen_ai.usage.output_tokens": call.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": call.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": call.reasoning_tokens,
        "eden.stage": call.stage,
    } | {name: value for name, value in optional.items() if value is not None}
    return EndedSpan(
        f"{call.operation} {call.model}",
        "client",
        place,
        None if current is None else current.span,
        started,
        started + timedelta(seconds=call.seconds) // timedelta(microseconds=1) * 1_000,
        attributes,
        error=None if call.outcome == "answered" else call.error or call.outcome,
    )


def _place_of(envelope: Envelope) -> SpanPlace:
    """The span of a record: its id follows from the record's, its trace from what caused it."""
    own = envelope.traceparent or traceparent(envelope.ordering_key, envelope.id)
    parts = own.split("-")
    if len(parts) != PARTS:
        parts = traceparent(envelope.ordering_key, envelope.id).split("-")
    return SpanPlace(int(parts[1], 16), int(span_id(envelope.id), 16))


PROBES = frozenset(("/livez", "/readyz", "/health", "/metrics"))
"""Asked every few seconds; they leave no spans."""

SERVER_ERROR = 500


class OpenSpan:
    """A span of work in this process; entered, it is the parent of what happens inside."""

    def __init__(self, name: str, kind: SpanKind = "internal", parent: SpanPlace | None = None) -> None:
        self.name = name
        self.attributes: dict[str, str | int] = {}
        self.error: str | None = None
        self._kind: SpanKind = kind
        self._parent, self._begun = parent, 0
        self._token: Token[SpanPlace | None] | None = None

    def __enter__(self) -> Self:
        if TRACING.sink is not None:
            self._parent = self._parent or CURRENT.get()
            trace = randbits(128) if self._parent is None else self._parent.trace
            self._place, self._begun = SpanPlace(trace, randbits(64)), time.time_ns()
            self._token = CURRENT.set(self._place)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is None:
            return
        CURRENT.reset(self._token)
        sink = TRACING.sink
        if sink is not None and TRACING.samples(self._place.trace):
            sink.take(self._ended(self.error or (kind and kind.__name__)))

    def _ended(self, error: str | None) -> EndedSpan:
        parent = None if self._parent is None else self._parent.span
        ended = time.time_ns()
        return EndedSpan(
            self.name, self._kind, self._place, parent, self._begun, ended, self.attributes, error=error
        )


class RequestSpan(OpenSpan):
    """The span of an HTTP request, in the trace that its `traceparent` names; `scope` is ASGI's."""

    def __init__(self, scope: Mapping[str, Any], method: str) -> None:
        super().__init__(method, "server", _caller(scope))
        self._method, self._scope = method, scope

    def __enter__(self) -> Self:
        return self if self._scope["path"] in PROBES else super().__enter__()

    def answered(self, route: str, status: int) -> None:
        """Note the template of the route ("none": no such page) and the status of the answer."""
        if self._token is None:
            return
        shown = "HTTP" if self._method == "other" else self._method
        self.name = shown if route == "none" else f"{shown} {route}"
        self.attributes |= {
            "http.request.method": "_OTHER" if self._method == "other" else self._method,
            "http.response.status_code": status,
            "network.protocol.version": self._scope.get("http_version", "1.1"),
            "url.scheme": self._scope.get("scheme", "http"),
        }
        if route != "none":
            self.attributes |= {"http.route": route, "url.path": route}
        if status >= SERVER_ERROR:
            self.error = str(status)


def _caller(scope: Mapping[str, Any]) -> SpanPlace | None:
    """Return the span that the request names as its cause; None where it names none, or not by W3C's rules."""
    if TRACING.sink is None:
        return None
    given = next((value for name, value in scope["headers"] if name == b"traceparent"), b"")
    parts = given.split(b"-")
    try:
        place = SpanPlace(int(parts[1], 16), int(parts[2], 16)) if len(parts) >= PARTS else None
    except ValueError:
        return None
    return place if place and 0 < place.trace < 2**128 and 0 < place.span < 2**64 else None


@contextmanager
def exporting(settings: Settings) -> Generator[None]:
    """Export inside the block, if `otel.endpoint` is set; MissingExtra where the SDK is not installed."""
    if settings.otel.endpoint is None:
        yield
        return
    needs("otel", "EDEN_OTEL_ENDPOINT")
    from eden_memory.telemetry.otlp import OtlpExport  # noqa: PLC0415 - an extra

    export = OtlpExport(settings)
    TRACING.begin(export, settings.otel.share)
    try:
        yield
    finally:
        TRACING.end()
        export.close()
