"""A subscriber as its author tests it: with FastStream's test broker, without Kafka."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faststream.kafka import KafkaBroker, TestKafkaBroker
from faststream.kafka.annotations import KafkaMessage
from faststream.kafka.opentelemetry import KafkaTelemetryMiddleware
from faststream.kafka.prometheus import KafkaPrometheusMiddleware
from faststream.specification import AsyncAPI
from jsonschema import Draft7Validator
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from eden_memory.kafka.topics import load_topics
from eden_memory.names import traceparent
from eden_memory.schemas.events import FactChanged, ReflectionFormed
from eden_memory.schemas.example_files import examples_of
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.subscribe import About, MemoryRouter, NewestVersions, Retries, Tombstone
from eden_memory.subscribe.router import DEAD_HEADERS

EXAMPLE = next(iter(examples_of("FactChanged", 1).values()))
PUBLISHED = Path(__file__).parents[2] / "contract/published/asyncapi/asyncapi-3.0.0.json"
Record = dict[str, Any]


def fact_of(user: str, version: int = 1) -> FactChanged:
    scope = Scope.of_user("s.a", user).model_dump(mode="json")
    return FactChanged.model_validate_json(json.dumps({**EXAMPLE, "scope": scope, "version": version}))


FACT = fact_of("s.ana")


def router(**options: Any) -> MemoryRouter:
    return MemoryRouter("mine", topics=load_topics(Settings().kafka), **options)


class Subscriber:
    """Handlers that note what they take, and the dead letters."""

    def __init__(self, memory: MemoryRouter, *failures: Exception | None, **options: Any) -> None:
        self.memory, self.failures = memory, list(failures)
        self.taken, self.tries, self.letters = list[Any](), 0, list[dict[str, str]]()
        self.broker = KafkaBroker(**options)
        self.broker.include_router(memory)
        self.broker.subscriber("mine.dead")(self._on_dead)

    async def on_fact(self, fact: FactChanged) -> None:
        self.tries += 1
        if self.failures and (failure := self.failures.pop(0)) is not None:
            raise failure
        self.taken.append(fact)

    async def on_fact_about(self, fact: FactChanged, about: About) -> None:
        self.taken.append((fact.key(), about.id))

    async def on_erased(self, erased: Tombstone) -> None:
        self.taken.append((erased.event, erased.key))

    async def _on_dead(self, message: KafkaMessage) -> None:
        self.letters.append({**message.headers, "body": message.body.decode()})

    async def receive(self, *records: Record) -> None:
        async with TestKafkaBroker(self.broker):
            for record in records:
                await self.broker.publish(**record)


def subscriber(memory: MemoryRouter, *failures: Exception | None, **options: Any) -> Subscriber:
    """Handles all facts."""
    here = Subscriber(memory, *failures, **options)
    memory.on(FactChanged)(here.on_fact)
    return here


async def test_handlers_take_events_of_their_scopes_and_tombstones() -> None:
    memory = router()
    here = Subscriber(memory)
    memory.on(FactChanged, scope="user:*:s.ana")(here.on_fact_about)
    memory.on_tombstone(FactChanged)(here.on_erased)
    await here.receive(memory.record(FACT), memory.record(fact_of("s.bob")), memory.record(FACT, erased=True))
    assert here.taken == [(FACT.key(), f"test-{FACT.key()}"), ("FactChanged", FACT.key())]
    assert not here.letters


async def test_an_older_version_arrives_in_the_newest() -> None:
    memory = router()
    here = subscriber(memory)
    old = next(iter(examples_of("FactChanged", 1).values()))
    record = memory.record(FACT)
    record["headers"]["ce_type"] = "eden.FactChanged.v1"
    record["message"] = json.dumps(old).encode()
    await here.receive(record)
    assert [fact.fact_id for fact in here.taken] == [old["fact_id"]]


def not_an_event(record: Record) -> Record:
    return {"message": b"x", "topic": record["topic"], "key": b"k"}


def broken(record: Record) -> Record:
    return record | {"message": b'{"fact_id": 1}'}


def newer(record: Record) -> Record:
    return record | {"headers": record["headers"] | {"ce_type": "eden.FactChanged.v99"}}


@pytest.mark.parametrize("spoil", [not_an_event, broken, newer])
async def test_what_cannot_be_read_is_a_dead_letter_at_once(spoil: Callable[[Record], Record]) -> None:
    memory = router()
    here = subscriber(memory)
    await here.receive(spoil(memory.record(FACT)))
    (letter,) = here.letters
    assert (here.tries, letter[f"{DEAD_HEADERS}attempts"]) == (0, "1")
    assert letter[f"{DEAD_HEADERS}exception.message"]


async def test_a_failing_handler_is_called_again_and_its_error_text_stays_out_of_the_dead_letter() -> None:
    memory, error = router(retries=Retries(3, first_seconds=0)), RuntimeError(FACT.text)
    here = subscriber(memory, error, None, error, error, error)
    await here.receive(memory.record(FACT), memory.record(FACT))
    (letter,) = here.letters
    assert (here.tries, here.taken) == (5, [FACT])
    assert letter[f"{DEAD_HEADERS}attempts"] == "3"
    assert letter[f"{DEAD_HEADERS}exception.class.name"] == "builtins.RuntimeError"
    assert letter["body"] == FACT.json_bytes().decode()
    assert not any(FACT.text in value for name, value in letter.items() if name != "body")


async def test_after_a_permanent_error_a_handler_is_not_called_again() -> None:
    memory = router(retries=Retries(permanent=(KeyError,)))
    here = subscriber(memory, KeyError())
    await here.receive(memory.record(FACT))
    assert (here.tries, len(here.letters)) == (1, 1)


@pytest.mark.parametrize("of_router", [True, False])
async def test_middlewares_of_faststream_count_records_and_continue_the_trace_of_the_message(
    of_router: bool,
) -> None:
    registry, spans, provider = CollectorRegistry(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    telemetry = KafkaTelemetryMiddleware(tracer_provider=provider)
    options = {"middlewares": [KafkaPrometheusMiddleware(registry=registry), telemetry]}
    memory = router(**options if of_router else {})
    here = subscriber(memory, **{} if of_router else options)
    record = memory.record(FACT)
    record["headers"]["traceparent"] = traceparent("s.c1", "e1")
    await here.receive(record)
    labels = {"app_name": "faststream", "broker": "kafka", "handler": "memory.facts", "status": "acked"}
    assert registry.get_sample_value("faststream_received_processed_messages_total", labels) == 1
    traces = {f"{span.context.trace_id:032x}" for span in spans.get_finished_spans() if span.context}
    assert record["headers"]["traceparent"].split("-")[1] in traces


async def on_reflection(reflection: ReflectionFormed) -> None:
    """A reflection."""


def test_the_consumer_has_an_asyncapi_document() -> None:
    memory = router()
    here = subscriber(memory)
    memory.on(ReflectionFormed)(on_reflection)
    document = json.loads(AsyncAPI(here.broker, schema_version="3.0.0").to_specification().to_json())
    validator: Any = Draft7Validator(json.loads(PUBLISHED.read_text()))
    validator.validate(document)
    addresses = {channel["address"] for channel in document["channels"].values()}
    assert addresses == {"memory.facts", "memory.reflections", "mine.dead"}
    assert document["components"]["schemas"]["FactChanged"]["properties"]["retired_at"]["description"]


def test_the_highest_version_that_is_not_erased_wins_in_any_order() -> None:
    second, facts = fact_of("s.ana", 2), NewestVersions[FactChanged]()
    assert facts.take(second)
    assert not facts.take(FACT)
    assert not facts.take(second)
    assert facts.get(FACT.fact_id) == second
    erased = Tombstone.of(second.envelope("t", "test", FACT.formed_at), second.key().encode())
    assert facts.erase(erased)
    assert not facts.take(second)
    assert list(facts) == [FACT]
