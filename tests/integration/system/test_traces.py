"""OpenTelemetry: one chat write as a trace through every stage, received by a collector over OTLP."""

from typing import Any

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.names import trace_id
from eden_memory.settings import OtelSettings, Settings
from eden_memory.telemetry import otlp
from eden_memory.telemetry.spans import exporting
from tests.integration.context.harness import Kit
from tests.integration.doors.conftest import doors_of
from tests.integration.replay.reform_kit import quiet
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.serving import Serving
from tests.otlp_collector import Collector, SeenSpan, collector

pytestmark = pytest.mark.servers
SAID = "fact user: Mara keeps seventeen beehives behind the old mill."
INTERNAL, SERVER, CLIENT, PRODUCER, CONSUMER = 1, 2, 3, 4, 5
CALLER = 0xBEE


def traced(settings: Settings, endpoint: str) -> Settings:
    otel = OtelSettings(endpoint=endpoint)  # pyright: ignore[reportCallIssue]
    return settings.model_copy(update={"otel": otel})


async def remembered(running: System) -> str:
    """A session whose messages have become memory that its context shows."""
    session = await running.session("mara")
    await running.write(session, "mara", SAID, "note user: Mara is proud of her honey.", "Thank you.")
    await running.form(session)

    async def shown() -> bool:
        return "beehives" in await running.service.get_memory_context(session, "mara", None)

    await until(shown, "the context to show what was said")
    await quiet(running)
    return session


async def test_a_chat_write_is_one_trace_through_every_stage(
    settings: Settings, shared_models: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otlp, "METRICS_SECONDS", 0.5)
    with collector() as seen:
        chosen = traced(fast(settings, shared_models), seen.endpoint)
        with exporting(chosen):
            async with system(chosen, shared_models) as running:
                session = await remembered(running)
                await searched(running, session)
    trace = trace_id(encode_id(session))
    spans = [one for one in seen.spans if one.trace == trace]
    names = {without_prefix(one.name, chosen) for one in spans}
    assert {
        "send chat.messages",
        "process chat.messages",
        "send memory.formations",
        "process memory.formations",
        "chat fast-model",
        "send memory.candidates",
        "process memory.candidates",
        "send memory.facts",
        "process memory.facts",
        "process memory.extractions",
        "send memory.reflections",
        "process memory.reflections",
    } <= names
    assert_no_branch_is_lost(spans)
    assert_conventions_are_kept(spans, chosen)
    assert {one["service.name"] for one in seen.resources} == {"eden-memory"}
    assert b"beehives" not in seen.raw
    assert_metrics_arrived(seen)
    assert_a_request_is_followed_to_its_embedding(seen)


async def searched(running: System, session: str) -> None:
    """A search over HTTP that continues the trace of its client, and a probe."""
    async with doors_of(Kit(running.settings, running.database.client)) as doors:
        where, queries = {"session": session, "user": "mara"}, ["Where does Mara keep her beehives?"]
        path, headers = f"/v1/agents/{AGENT}/search", {"traceparent": f"00-{CALLER:032x}-{CALLER:016x}-01"}
        answer = await doors.http.post(path, params=where, json={"queries": queries}, headers=headers)
        assert answer.json()["facts"]
        assert (await doors.http.get("/livez")).status_code == 200


def assert_a_request_is_followed_to_its_embedding(seen: Collector) -> None:
    request, search, call = sorted(
        (span for span in seen.spans if span.trace == f"{CALLER:032x}"), key=lambda span: span.started
    )
    assert [request.parent, search.parent, call.parent] == [f"{CALLER:016x}", request.span, search.span]
    assert [request.kind, search.kind, call.kind] == [SERVER, INTERNAL, CLIENT]
    assert request.name == "POST /v1/agents/{agent}/search"
    assert request.attributes["http.response.status_code"] == 200
    assert search.attributes["eden.search.facts"] > 0
    assert call.attributes["gen_ai.operation.name"] == "embeddings"
    assert not [span for span in seen.spans if "livez" in span.name]


def without_prefix(name: str, settings: Settings) -> str:
    return name.replace(settings.kafka.topic_prefix, "")


def assert_no_branch_is_lost(spans: list[SeenSpan]) -> None:
    """Every parent is a span of the same trace, and only the messages themselves have none."""
    known = {one.span for one in spans}
    assert len(known) == len(spans)
    assert all(one.parent in known for one in spans if one.parent)
    assert {one.name for one in spans if not one.parent} == {"send chat.messages"}


def assert_conventions_are_kept(spans: list[SeenSpan], settings: Settings) -> None:
    sends = [one for one in spans if one.kind == PRODUCER]
    taken = [one for one in spans if one.kind == CONSUMER]
    calls = [one for one in spans if one.kind == CLIENT]
    assert all(one.attributes["messaging.system"] == "kafka" for one in (*sends, *taken))
    assert all(one.attributes["messaging.operation.type"] == "send" for one in sends)
    groups = {one.attributes["messaging.consumer.group.name"] for one in taken}
    assert all(one.startswith(settings.kafka.group_prefix) for one in groups)
    together = [one for one in taken if one.name.endswith("chat.messages")]
    assert any(one.links for one in together), "several messages are taken together"
    for one in together:
        assert one.attributes.get("messaging.batch.message_count", 1) == len(one.links) + 1
    assert calls
    for one in calls:
        assert one.attributes["gen_ai.operation.name"] in ("chat", "embeddings")
        assert one.attributes["gen_ai.request.model"] in one.name
        assert one.attributes["gen_ai.usage.input_tokens"] > 0
        assert one.parent in {span.span for span in taken}


def assert_metrics_arrived(seen: Collector) -> None:
    calls = seen.metrics["eden_llm_calls"].sum
    assert calls.is_monotonic
    histogram: Any = seen.metrics["gen_ai_client_operation_duration_seconds"].histogram
    for point in histogram.data_points:
        assert sum(point.bucket_counts) == point.count
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
