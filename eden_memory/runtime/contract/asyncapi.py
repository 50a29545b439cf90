"""The AsyncAPI 3.0 document of all topics, made from topics.yaml, the events and their examples.

Payloads point to the exported JSON Schemas (`schemas/json`), which hold for every language.
"""

from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from inspect import getdoc
from typing import Any

import yaml

from eden_memory.domain.source.records import DEAD_HEADERS
from eden_memory.runtime.contract.topics import Declaration, Program, Tombstones, Topic, Topics
from schemas.envelope import CONTENT_TYPE, SPEC_VERSION, data_schema, event_type
from schemas.events import REGISTRY
from schemas.events.base import Event
from schemas.example_files import examples_of
from schemas.export import versions

Node = dict[str, Any]

BINDING = {"bindingVersion": "0.5.0"}
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
HEAD = "# Generated from topics.yaml and schemas/ by `eden topics asyncapi`. Do not edit.\n"
DESCRIPTION = """\
Topics of Eden Memory: chat messages, and the memory formed from them.

Topic names stand without the installation's prefix. The Kafka key says what a record is (compaction keeps the
newest record of a key); the header ce_orderingkey says what it stays in order with, and its murmur2 hash
chooses the partition. A record without a value is a tombstone: its headers say which entity ended and why.
Readers ignore fields that they do not know.
"""


class _Yaml(yaml.SafeDumper):
    """Lines of a text stay lines."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)  # pyright: ignore[reportUnknownMemberType]


_Yaml.add_representer(str, _Yaml.represent_str)


def document(topics: Topics) -> Node:
    """The whole document; relative references are seen from `docs/`."""
    declared = list(topics)
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Eden Memory",
            "version": version("eden-memory"),
            "description": DESCRIPTION,
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {"kafka": {"host": "localhost:9092", "protocol": "kafka"}},
        "channels": {topic.name: _channel(topic) for topic in declared},
        "operations": dict(_operations(topics)),
        "components": {
            "messages": dict(_messages(topics)),
            "schemas": {"CloudEvent": _cloud_event(), "DeadLetterReason": _dead_letter_reason()},
        },
    }


def document_text(topics: Topics) -> str:
    """The document as YAML."""
    return HEAD + yaml.dump(document(topics), Dumper=_Yaml, sort_keys=False, allow_unicode=True, width=110)


def _channel(topic: Topic) -> Node:
    declaration = topic.declaration
    kafka = {"partitions": topic.partitions, "topicConfiguration": _configuration(topic), **BINDING}
    channel: Node = {"address": topic.name}
    if declaration is None:
        channel["description"] = f"Records of {topic.dead_of} that could not be handled, with the reason."
        channel["messages"] = {"DeadLetter": _ref("components", "messages", "DeadLetter")}
    else:
        channel["description"] = declaration.description
        channel["messages"] = {
            name: _ref("components", "messages", name) for name in _message_names(declaration)
        }
        channel["x-key"], channel["x-ordering-key"] = declaration.key, declaration.ordering_key
    return {**channel, "bindings": {"kafka": kafka}}


def _configuration(topic: Topic) -> Node:
    policy = topic.config["cleanup.policy"].split(",")
    values = {name: _number(value) for name, value in topic.config.items() if name != "min.insync.replicas"}
    return {**values, "cleanup.policy": policy}


def _number(value: str) -> str | int:
    return int(value) if value.removeprefix("-").isdecimal() else value


def _message_names(declaration: Declaration) -> Iterator[str]:
    for event in declaration.events:
        yield from _versions_of(event)
    yield from _tombstone_names(declaration.tombstones)


def _versions_of(event: str) -> Iterator[str]:
    return (f"{event}.v{number}" for number in range(1, versions()[f"json/{event}"] + 1))


def _tombstone_names(tombstones: Tombstones | None) -> list[str]:
    return [f"{event}.tombstone" for event in tombstones.of] if tombstones else []


def _operations(topics: Topics) -> Iterator[tuple[str, Node]]:
    for program, described in topics.file.programs.items():
        for short, declaration in topics.file.topics.items():
            written = list(_written(program, declaration))
            if written:
                yield f"{program} writes {short}", _operation("send", described, topics.name(short), written)
            if program in declaration.groups:
                receive = _operation("receive", described, topics.name(short), _message_names(declaration))
                group = {"groupId": {"type": "string", "enum": [topics.group(program)]}, **BINDING}
                yield f"{program} reads {short}", {**receive, "bindings": {"kafka": group}}


def _written(program: str, declaration: Declaration) -> Iterator[str]:
    for event in declaration.producers.get(program, []):
        yield f"{event}.v{versions()[f'json/{event}']}"
    if declaration.tombstones and program in declaration.tombstones.by:
        yield from _tombstone_names(declaration.tombstones)


def _operation(action: str, program: Program, channel: str, messages: Iterable[str]) -> Node:
    operation: Node = {
        "action": action,
        "channel": _ref("channels", channel),
        "summary": program.does,
        "messages": [_ref("channels", channel, "messages", message) for message in messages],
    }
    return operation | ({"x-later": True} if program.later else {})


def _messages(topics: Topics) -> Iterator[tuple[str, Node]]:
    for declaration in topics.file.topics.values():
        for event in declaration.events:
            for number, name in enumerate(_versions_of(event), start=1):
                yield name, _message(REGISTRY.events[event], number, declaration)
        for name in _tombstone_names(declaration.tombstones):
            yield name, _tombstone(name, declaration)
    yield "DeadLetter", _dead_letter()


def _message(event: type[Event], number: int, declaration: Declaration) -> Node:
    name = f"{event.NAME}.v{number}"
    examples = examples_of(event.NAME, number)
    return {
        "name": name,
        "title": event.NAME,
        "summary": " ".join((getdoc(event) or "").split("\n\n")[0].split()),
        "contentType": CONTENT_TYPE,
        "headers": _headers({"ce_type": event_type(event.NAME, number)}),
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"../schemas/json/{name}.json"}},
        "bindings": {"kafka": _key(declaration)},
        "examples": [{"name": title, "payload": payload} for title, payload in examples.items()],
        "x-dataschema": data_schema(event.NAME, number),
    }


def _tombstone(name: str, declaration: Declaration) -> Node:
    event = name.removesuffix(".tombstone")
    reasons = declaration.tombstones.reasons if declaration.tombstones else ()
    reason = {"ce_reason": {"type": "string", "enum": list(reasons)}}
    return {
        "name": name,
        "title": f"Tombstone of a {event}",
        "summary": "No value: the entity of this key has ended; its headers say at which version and why.",
        "headers": _headers({"ce_type": event_type(event, REGISTRY.events[event].VERSION)}, reason),
        "payload": {"type": "null"},
        "bindings": {"kafka": _key(declaration)},
    }


def _dead_letter() -> Node:
    return {
        "name": "DeadLetter",
        "title": "Dead letter",
        "summary": "The original key, value and headers, byte for byte, and beside them why it was given up.",
        "contentType": "application/octet-stream",
        "headers": _ref("components", "schemas", "DeadLetterReason"),
        "payload": {},
    }


def _key(declaration: Declaration) -> Node:
    return {"key": {"type": "string", "description": declaration.key}, **BINDING}


def _headers(constants: Mapping[str, str], more: Mapping[str, Node] | None = None) -> Node:
    properties = {name: {"type": "string", "const": value} for name, value in constants.items()}
    own: Node = {"type": "object", "properties": {**properties, **(more or {})}, "required": [*(more or {})]}
    return {"allOf": [_ref("components", "schemas", "CloudEvent"), own]}


HEADERS: Mapping[str, str] = {
    "ce_specversion": "CloudEvents version.",
    "ce_id": "Deterministic: a repeat of the event has the same id.",
    "ce_type": "Type and version: `eden.<Type>.v<N>`.",
    "ce_source": "The program that wrote it.",
    "ce_time": "When what it tells of happened (RFC 3339, UTC, milliseconds); not when it was written.",
    "ce_subject": "The entity that it is about.",
    "ce_dataschema": "URN of the JSON Schema; ends as the exported file's name does.",
    "ce_orderingkey": "What it stays in order with; murmur2 of it chooses the partition.",
    "content-type": "Of the value.",
    "traceparent": "W3C trace context.",
    "ce_entityversion": "Tombstones: the version at which the entity ended.",
    "ce_scope": "Tombstones: the session or scope key that the entity was in, where known.",
    "ce_reason": "Tombstones: why the entity ended.",
}
ALWAYS = ("ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time")


def _cloud_event() -> Node:
    properties: Node = {name: {"type": "string", "description": said} for name, said in HEADERS.items()}
    properties["ce_specversion"]["const"] = SPEC_VERSION
    return {
        "type": "object",
        "description": "CloudEvents 1.0, Kafka binary binding: attributes as headers, all UTF-8 text.",
        "properties": properties,
        "required": list(ALWAYS),
    }


def _dead_letter_reason() -> Node:
    names = {
        "topic": "Where the record was read.",
        "partition": "Of that topic.",
        "offset": "Of that partition.",
        "stage": "The stage that gave it up.",
        "group": "That stage's consumer group.",
        "exception.class.name": "Type of the error.",
        "exception.message": "Why; holds no content of the record.",
        "exception.stacktrace": "Where in the program.",
        "attempts": "How often it was tried.",
        "time": "When it was given up.",
    }
    properties = {
        f"{DEAD_HEADERS}{name}": {"type": "string", "description": said} for name, said in names.items()
    }
    description = "Beside the original's own headers, named as Kafka Connect names them."
    return {"type": "object", "description": description, "properties": properties}


def _ref(*path: str) -> Node:
    escaped = (part.replace("~", "~0").replace("/", "~1").replace(" ", "%20") for part in path)
    return {"$ref": "#/" + "/".join(escaped)}
