"""Which spans a unit leaves, whose children they are, and what is exported."""

import time
from collections.abc import Generator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from eden_memory.names import following, span_id, traceparent
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ModelCalled
from eden_memory.schemas.example_files import examples_of
from eden_memory.settings import OtelSettings, Settings
from eden_memory.stages.outcome import StoredRecord
from eden_memory.telemetry.otlp import gathered
from eden_memory.telemetry.spans import (
    TRACING,
    EndedSpan,
    OpenSpan,
    Processing,
    RequestSpan,
    called,
    exporting,
    sent,
)

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


class Kept:
    """A SpanSink."""

    def __init__(self) -> None:
        self.spans: list[EndedSpan] = []

    def take(self, span: EndedSpan) -> None:
        self.spans.append(span)


class Taken(NamedTuple):
    envelope: Envelope
    topic: str = "chat.messages"
    partition: int = 3


@pytest.fixture
def kept() -> Generator[Kept]:
    sink = Kept()
    TRACING.begin(sink)
    yield sink
    TRACING.end()


def said(identity: str, session: str) -> Taken:
    """A message that nothing caused."""
    own = traceparent(session, identity)
    return Taken(Envelope(identity, "MessageRecorded", 1, "tailer", NOON, "s", session, traceparent=own))


def made_of(cause: Taken, identity: str) -> StoredRecord:
    envelope = Envelope(
        identity, "FormationRequested", 1, "stage", NOON, "s", "s1", traceparent=following(cause.envelope)
    )
    return StoredRecord("memory.formations", b"s1", b"k", b"{}", tuple(envelope.headers()))


def hexadecimal(number: int | None) -> str | None:
    return None if number is None else f"{number:016x}"


def test_a_unit_is_the_child_of_its_last_record_and_links_to_the_others(kept: Kept) -> None:
    first, last = said("a", "s1"), said("b", "s2")
    with Processing("trigger", "eden.trigger", [first, last], 7):
        sent([made_of(last, "w")], time.time_ns())
    published, handled = kept.spans
    assert (handled.name, handled.kind) == ("process chat.messages", "consumer")
    assert hexadecimal(handled.parent) == span_id("b")
    assert [hexadecimal(link.span) for link in handled.links] == [span_id("a")]
    assert handled.attributes["messaging.batch.message_count"] == 2
    assert hexadecimal(published.place.span) == span_id("w")
    assert published.parent == handled.place.span


def test_what_belongs_to_another_trace_is_linked_and_stays_the_child_of_its_cause(kept: Kept) -> None:
    first, last = said("a", "s1"), said("b", "s2")
    with Processing("trigger", "eden.trigger", [first, last], 7):
        sent([made_of(first, "w")], time.time_ns())
    published, handled = kept.spans
    assert published.place.trace != handled.place.trace
    assert hexadecimal(published.parent) == span_id("a")
    assert list(published.links) == [handled.place]


def test_a_message_that_nothing_caused_is_a_root(kept: Kept) -> None:
    message = said("a", "s1")
    record = StoredRecord("chat.messages", b"s1", b"k", None, tuple(message.envelope.headers()))
    sent([record], time.time_ns())
    (span,) = kept.spans
    assert span.parent is None
    assert span.attributes["messaging.kafka.message.tombstone"] is True


@pytest.mark.parametrize(
    "identity",
    ["derived/blob/user:s.bot:s.ada@5", "forgotten/user:s.ada/1", "inbox/s.ada", "s.ada@0000000000000001"],
)
def test_no_id_of_a_user_or_a_message_is_exported(kept: Kept, identity: str) -> None:
    with Processing("stage", "eden.stage", [said(identity, "s1")], 1):
        sent([made_of(said(identity, "s1"), identity)], time.time_ns())
    assert [span.attributes["messaging.message.id"] for span in kept.spans] == [span_id(identity)] * 2
    assert "s.ada" not in str(kept.spans)


def test_a_unit_that_waits_for_others_leaves_none_and_one_that_fails_says_how(kept: Kept) -> None:
    with Processing("stage", "eden.stage", [said("a", "s1")], 1) as span:
        span.drop()
    with Processing("stage", "eden.stage", [said("a", "s1")], 1) as span:
        span.failed("provider")
    assert [span.error for span in kept.spans] == ["provider"]


def test_a_call_has_the_attributes_of_the_conventions_and_no_text(kept: Kept) -> None:
    example = next(iter(examples_of("ModelCalled", 1).values()))
    call = ModelCalled.model_validate(example, strict=False).model_copy(
        update={"outcome": "answered", "error": None, "requests": 1, "provider": "google"}
    )
    with Processing("fact-extraction", "eden.fact-extraction", [said("a", "s1")], 1):
        called(call)
        called(call.model_copy(update={"requests": 0}))  # a share of a call that another unit has paid
    span, handled = kept.spans
    assert span.name == f"{call.operation} {call.model}"
    assert span.parent == handled.place.span
    assert span.attributes["gen_ai.provider.name"] == "gcp.gemini"
    assert span.attributes["gen_ai.usage.input_tokens"] == call.input_tokens
    assert span.ended - span.started == pytest.approx(call.seconds * 1e9, abs=1_000)


def test_a_share_of_traces_is_exported_whole_or_not_at_all(kept: Kept) -> None:
    TRACING.begin(kept, 0.3)
    for number in range(300):
        message = said(f"m{number}", f"session {number}")
        with Processing("stage", "eden.stage", [message], number):
            sent([made_of(message, f"w{number}")], time.time_ns())
    traces = [span.place.trace for span in kept.spans]
    assert all(traces.count(trace) == 2 for trace in traces)
    assert 50 <= len(set(traces)) <= 130


def test_nothing_is_kept_where_nothing_is_exported() -> None:
    with exporting(Settings()):
        assert TRACING.sink is None
        with Processing("stage", "eden.stage", [said("a", "s1")], 1):
            sent([made_of(said("a", "s1"), "w")], time.time_ns())


@pytest.mark.timeout(30)
def test_a_collector_that_is_away_holds_nothing_up() -> None:
    otel = OtelSettings(endpoint="http://127.0.0.1:1")  # pyright: ignore[reportCallIssue]
    with exporting(Settings(otel=otel)), Processing("stage", "eden.stage", [said("a", "s1")], 1):
        pass
    assert TRACING.sink is None


def test_metrics_have_the_names_of_the_page_and_buckets_of_their_own() -> None:
    registry = CollectorRegistry()
    Counter("eden_calls", "Calls", ["kind"], registry=registry).labels("a").inc(3)
    Gauge("eden_lag", "Lag", registry=registry).set(2)
    seconds = Histogram("eden_seconds", "Seconds", buckets=(1, 5), registry=registry)
    for value in (0.5, 0.7, 3, 9):
        seconds.observe(value)
    (resource,) = gathered(Resource({}), registry).resource_metrics
    found: dict[str, Any] = {metric.name: metric.data for metric in resource.scope_metrics[0].metrics}
    (calls,), (lag,) = found["eden_calls"].data_points, found["eden_lag"].data_points
    assert (calls.value, calls.attributes, lag.value) == (3, {"kind": "a"}, 2)
    assert found["eden_calls"].is_monotonic
    (point,) = found["eden_seconds"].data_points
    assert (point.bucket_counts, point.explicit_bounds, point.count) == ([2, 1, 1], [1.0, 5.0], 4)


def asked(path: str, cause: str | None = None) -> dict[str, Any]:
    """An ASGI request."""
    headers = [] if cause is None else [(b"traceparent", cause.encode())]
    return {"path": path, "headers": headers, "scheme": "http", "http_version": "1.1"}


def test_a_request_is_the_parent_of_its_work_and_the_child_of_its_caller(kept: Kept) -> None:
    with RequestSpan(asked("/v1/agents/a/search", f"00-{7:032x}-{5:016x}-01"), "POST") as span:
        with OpenSpan("search facts"):
            pass
        span.answered("/v1/agents/{agent}/search", 200)
    work, request = kept.spans
    assert (work.place.trace, work.parent, work.kind) == (7, request.place.span, "internal")
    assert (request.place.trace, request.parent, request.kind) == (7, 5, "server")
    assert request.name == "POST /v1/agents/{agent}/search"
    assert request.attributes["http.route"] == request.attributes["url.path"] == "/v1/agents/{agent}/search"
    assert (request.attributes["http.response.status_code"], request.error) == (200, None)


@pytest.mark.parametrize(
    "cause", ["", "00-x-y-01", f"00-{0:032x}-{5:016x}-01", "00-1", f"00-{'f' * 40}-{5:016x}-01"]
)
def test_a_request_without_a_valid_cause_begins_a_trace(kept: Kept, cause: str) -> None:
    with RequestSpan(asked("/v1/search", cause), "GET") as span:
        span.answered("none", 503)
    (request,) = kept.spans
    assert (request.parent, request.name, request.error) == (None, "GET", "503")
    assert "url.path" not in request.attributes


def test_probes_and_processes_without_a_collector_leave_no_span(kept: Kept) -> None:
    with RequestSpan(asked("/readyz"), "GET") as span:
        span.answered("/readyz", 200)
    TRACING.end()
    with RequestSpan(asked("/v1/search"), "GET") as span, OpenSpan("search facts"):
        span.answered("/v1/search", 200)
    assert kept.spans == []
