"""Topics keep records for years: a newer program reads the older versions, an older one says what it cannot read."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiokafka import AIOKafkaConsumer

from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY
from eden_memory.schemas.events import FactChanged as FactChangedV1
from eden_memory.schemas.registry import Payload, Registry, SchemaViolation
from eden_memory.settings import Settings
from tests.integration.subscribing.published import Writing, writing

pytestmark = pytest.mark.servers
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "subscribe.md"


class FactChanged(FactChangedV1):
    """A version 2 as it might come: the text's language stands in it."""

    VERSION: ClassVar[int] = 2

    language: str


def from_v1(payload: Payload) -> Payload:
    """v1 → v2: nobody wrote the language down then."""
    return {**payload, "language": "und"}


NEWER = Registry(events=(FactChanged,), upcasts={("FactChanged", 1): from_v1})


@pytest.fixture
async def topics(settings: Settings) -> AsyncGenerator[Writing]:
    async with writing(settings, ["memory.facts"]) as ready:
        yield ready


async def test_records_of_version_1_are_read_by_a_program_of_version_2(topics: Writing) -> None:
    written = await topics.examples("memory.facts")
    old = [record async for record in _records(topics, written)]
    facts = [NEWER.decode(about.name, about.version, value) for about, value in old if value is not None]
    assert {about.version for about, _ in old} == {1}
    assert len(facts) == written - 1
    assert all(isinstance(one, FactChanged) and one.language == "und" for one in facts)

    newest = facts[0].model_copy(update={"language": "pt"})
    about = topics.envelope("FactChanged", "new", newest.subject(), newest.ordering_key())
    headers = [
        (name, value.replace(b".v1", b".v2") if name in ("ce_type", "ce_dataschema") else value)
        for name, value in about.headers()
    ]
    await topics.record("memory.facts", newest.key().encode(), newest.json_bytes(), headers)
    (about, value), *_ = [one async for one in _records(topics, written + 1) if one[0].version == 2]
    assert value is not None
    assert NEWER.decode(about.name, about.version, value) == newest
    with pytest.raises(SchemaViolation, match="v2 is not known here, only v1 to v1"):
        REGISTRY.decode(about.name, about.version, value)


def test_the_page_shows_the_step_that_was_tested() -> None:
    (block,) = re.findall(r"```python\n(def from_v1.*?)```", PAGE.read_text(), re.DOTALL)
    shown: dict[str, object] = {"Payload": dict}
    exec(block, shown)
    step = shown["from_v1"]
    assert callable(step)
    assert step({"text": "a"}) == from_v1({"text": "a"})


async def _records(topics: Writing, number: int) -> AsyncGenerator[tuple[Envelope, bytes | None]]:
    """So many records of `memory.facts`, from the start."""
    kafka = topics.settings.kafka
    consumer: Any = AIOKafkaConsumer(
        f"{kafka.topic_prefix}memory.facts",
        bootstrap_servers=kafka.bootstrap or "",
        auto_offset_reset="earliest",
    )
    async with consumer:
        for _ in range(number):
            record = await consumer.getone()
            yield Envelope.of_headers(record.headers), record.value
