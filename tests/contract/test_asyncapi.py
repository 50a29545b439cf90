"""docs/asyncapi.yaml: valid, in step with topics.yaml and schemas/, and every reference leads somewhere."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
import yaml

from eden_memory.kafka.topics import load_topics
from eden_memory.names import Placement
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import REGISTRY
from eden_memory.settings import KafkaSettings
from tools.reference.asyncapi import HEADERS, document, document_text

PUBLISHED = Path(__file__).parent / "published" / "asyncapi" / "asyncapi-3.0.0.json"


@pytest.fixture(scope="module")
def generated() -> dict[str, Any]:
    return document(load_topics(KafkaSettings()))  # pyright: ignore[reportCallIssue]


def validate(written: dict[str, Any]) -> None:
    validator: Any = jsonschema.Draft7Validator(json.loads(PUBLISHED.read_text()))
    validator.validate(written)


def references(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for value in cast("list[Any]", node):
            yield from references(value)
    elif isinstance(node, dict):
        items = cast("dict[str, Any]", node)
        if isinstance(items.get("$ref"), str):
            yield items["$ref"]
        for value in items.values():
            yield from references(value)


def test_it_is_valid_by_the_published_schema(generated: dict[str, Any]) -> None:
    validate(generated)


def test_a_wrong_document_is_noticed(generated: dict[str, Any]) -> None:
    wrong = json.loads(json.dumps(generated))
    next(iter(wrong["operations"].values()))["action"] = "publish"
    with pytest.raises(jsonschema.ValidationError):
        validate(wrong)


def test_the_checked_in_document_is_in_step(pytestconfig: pytest.Config) -> None:
    text = document_text(load_topics(KafkaSettings()))  # pyright: ignore[reportCallIssue]
    assert (pytestconfig.rootpath / "docs" / "asyncapi.yaml").read_text() == text, "run `make schemas`"


def test_every_reference_leads_somewhere(generated: dict[str, Any], pytestconfig: pytest.Config) -> None:
    found = set(references(generated))
    assert found
    for reference in found:
        if reference.startswith("#/"):
            node: Any = generated
            for part in reference[2:].split("/"):
                node = node[part.replace("%20", " ")]
        else:
            assert (pytestconfig.rootpath / "docs" / reference).is_file(), reference


def test_every_topic_operation_and_group_of_topics_yaml_is_in_it(pytestconfig: pytest.Config) -> None:
    written = yaml.safe_load((pytestconfig.rootpath / "docs" / "asyncapi.yaml").read_text())
    topics = load_topics(KafkaSettings())  # pyright: ignore[reportCallIssue]
    assert set(written["channels"]) == {topic.name for topic in topics}
    groups = {
        (operation["channel"]["$ref"], operation["bindings"]["kafka"]["groupId"]["enum"][0])
        for operation in written["operations"].values()
        if operation["action"] == "receive"
    }
    assert groups == {
        (f"#/channels/{topics.name(short)}", topics.group(group))
        for short, topic in topics.file.topics.items()
        for group in topic.groups
    }


def test_the_headers_are_those_of_the_envelope() -> None:
    full = Envelope(
        id="1",
        name="MessageRecorded",
        version=1,
        source="tailer",
        time=datetime(2026, 1, 1, tzinfo=UTC),
        subject="s.m",
        ordering_key="s.s",
        traceparent="00-0-0-00",
        entity_version="0" * 16,
        scope="s.s",
        reason="deleted",
    )
    assert [name for name, _ in full.headers()] == list(HEADERS)


def test_every_example_has_the_key_and_headers_that_its_own_description_promises(
    generated: dict[str, Any],
) -> None:
    messages = generated["components"]["messages"]
    found = [(name, one) for name, message in messages.items() for one in message.get("examples", ())]
    assert {name for name, _ in found} == set(messages)
    for name, example in found:
        if name in older_versions():
            assert "headers" not in example, "no program of today writes this version"
            continue
        described: list[dict[str, Any]] = [
            generated["components"]["schemas"]["CloudEvent"],
            messages[name]["headers"]["allOf"][1],
        ]
        for schema in described:
            jsonschema.validate(example["headers"], schema)
        assert (example["payload"] is None) == name.endswith(".tombstone")
        assert example["summary"].startswith("Kafka key: ")
    erased = messages["FactChanged.tombstone"]["examples"][0]
    fact, _, version = erased["summary"].removeprefix("Kafka key: ").rpartition("@")
    assert (erased["headers"]["ce_subject"], erased["headers"]["ce_entityversion"]) == (fact, version)


def older_versions() -> set[str]:
    return {f"{name}.v{n}" for name, event in REGISTRY.events.items() for n in range(1, event.VERSION)}


def test_the_description_names_the_prefixes_that_are_used(generated: dict[str, Any]) -> None:
    said, settings = generated["info"]["description"], KafkaSettings()  # pyright: ignore[reportCallIssue]
    assert (settings.topic_prefix, f"`{settings.group_prefix}` unless set" in said) == ("", True)
    apart = load_topics(
        settings.model_copy(update={"topic_prefix": "<prefix>"}), Placement("<NAME>", "<NAME>")
    )
    assert f"`{apart.name('memory.facts')}`" in said
    assert not [
        one for one in ("chat.messages", "memory.forgotten", "memory.usage") if "ns." in apart.name(one)
    ]
