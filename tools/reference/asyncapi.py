"""The guide to reading the topics in any language: the description in docs/asyncapi.yaml."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from inspect import getdoc
from typing import Any

import yaml

from eden_memory.kafka.topics import Declaration, Program, Tombstones, Topic, Topics
from eden_memory.schemas.envelope import CONTENT_TYPE, SPEC_VERSION, Envelope, data_schema, event_type
from eden_memory.schemas.events import REGISTRY
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.example_files import examples_of
from eden_memory.schemas.export import versions

GUIDE = """\
Topics of Eden Memory: chat messages, and the memory formed from them. This document, the JSON Schemas that it
points to and the examples in it are all that a consumer needs.

## Names

- **Topics** stand here without the installation's prefix (`EDEN_KAFKA_TOPIC_PREFIX`, empty unless set): with
  the prefix `acme.`, `memory.facts` is `acme.memory.facts`. The server's address is an example. Numbers of
  partitions are those of a new installation: ask the broker.
- **Namespaces.** A memory that was formed anew (`eden reform NAME`) has memory topics of its own:
  `<prefix>ns.<NAME>.memory.facts`. `chat.messages`, `memory.forgotten` and `memory.usage` are shared by all.
  Kafka does not say which memory is live: `eden namespace list` does. A rebuilt memory (`eden rebuild`) has the
  topics of its source.
- **Groups.** Use no group, or one whose name does not begin with the installation's group prefix
  (`EDEN_KAFKA_GROUP_PREFIX`, `eden.` unless set). Where the broker checks access, READ on the topics, and on the
  group if any, is enough.
- **`x-later`** marks operations that are declared and not written yet.

## Reading

- **Codec.** Batches are compressed with zstd. Some clients need a package for it (aiokafka: `cramjam`; KafkaJS:
  a codec).
- **Content mode.** CloudEvents 1.0, binary mode: attributes are headers `ce_*`, UTF-8; the value is the event's
  JSON and nothing else. The Kafka key is text, too.
- **From the start.** Begin at the earliest offsets. Topics whose `cleanup.policy` is `compact` alone are
  complete for ever: what stands in them is all that is remembered, no other system is asked.
- **Caught up.** Take the end offsets when you begin; you are there when your *position* has reached them in
  every partition. Offsets have gaps (compaction, transaction markers), so the last record's offset may never be
  `end - 1`.
- **Transactions.** No record is part of one: readers of committed records see all of them as soon as others do.

## Order, repeats, versions

- Records with the same `ce_orderingkey` (a session, or a scope) are in one partition: murmur2 of it, as Java's
  default partitioner has it. The Kafka key does not choose the partition. New versions are appended in rising
  order.
- Any record may come again, at any time: also an older version after a newer one, also after its tombstone. A
  repeat has the same `ce_id`.
- `memory.facts` and `memory.consolidations`: a record is one whole version of a fact or blob, with the key
  `<entity>@<version>`; split at the last `@`. **The state of an entity is its highest version that is not
  erased.** Versions have gaps. `memory.reflections`: a reflection has one version, its key is its id. A reader
  that keeps every entity's highest version, and the erased keys, comes to the same state in any order; two
  copies of one key say the same.
- `chat.messages`: the key is the message, the record with the highest `version` in its value counts.
  `memory.changes`: the newest record of a scope counts.

## Tombstones

- A record without value erases its key. In the three memory topics for ever: no version number is used twice,
  so a value that comes later under an erased key is a late copy. In `chat.messages` up to the version in
  `ce_entityversion`: a higher one counts again. `ce_type` says the kind of event, `ce_subject` the entity,
  `ce_entityversion` the version, `ce_scope` the scope, `ce_reason` why.
- A fact that is erased has a tombstone for each of its versions; a blob for the withdrawn version and all after
  it.
- Tombstones stay for 30 days (`delete.retention.ms`). Who was away for longer reads anew from the start.
- `memory.forgotten` need not be read to keep a view right: what falls under it gets its tombstone in its own
  topic, also when it is published late. Read it to erase copies elsewhere, by ids of messages, sessions and
  users.

## Values

- **Entity ids** say their type: `s.` text, `i.` integer, `u.` UUID, `o.` ObjectId (hex); behind the dot
  percent-encoded except letters, digits, `_`, `.`, `-` and `~`. `i.5` and `s.5` are two. Ids that the program
  makes (facts, formations, calls, events) are opaque.
- **Scope keys**: `session:S`, `session:S:2` (begun anew, as its audience grew), `user:A:U`, `group:A:G`,
  `agent:A`, `shard:A:NAME`, with entity ids in place of letters. `scope` in a value has the parts; memory of a
  `user:` scope is for that user only, of a `session:` scope for its `audience`.
- **Audiences**: a list of up to 100 users, or an object with `users` (how many) and `hash`: SHA-256, in hexadecimal,
  of their ids, sorted, each with a line feed behind it. To know whether somebody belongs to a larger audience, follow
  the session's `memory.formations`: the first window of each such `generation` has `audience_change`, who joined and
  left since the newest generation before it that you know. What you get has to have the hash; where it has not, or
  there is no `audience_change`, show the memory only among users whose hash it is. Versions before v3 (SessionClosed
  and ScopeChanged: v2) list all users.
- **Times**: RFC 3339, UTC, three decimals. `ce_time` is when what a record tells of happened; Kafka's own
  timestamp is when the broker appended it.
- **Money**: US dollars, a decimal in a string, at most 12 decimals, never a float. null: the price is unknown,
  not 0.
- **Vectors**: float32, little-endian, base64. **Versions of messages**: 16 hexadecimal digits that compare as
  text.

## Versions of schemas

- `ce_type` ends in the schema's version. A released version never changes, not even by an optional field; a
  change is a new version (`.v2`) in the same topic, and older records stay as they are.
- The schemas are closed (`additionalProperties: false`), so a record can be validated by the schema of its own
  version. Reading without validation, ignore fields that you do not know. Pass over types and versions that you do
  not know, and count them.
"""

Node = dict[str, Any]

BINDING = {"bindingVersion": "0.5.0"}
SCHEMA_FORMAT = "application/schema+json;version=draft-2020-12"
EXAMPLE_ID, EXAMPLE_TIME = "9f86d081884c7d659a2feaa0c55ad015", datetime(2026, 3, 2, 9, 26, 3, 500_000, UTC)
HEAD = "# Generated from topics.yaml and schemas/ by `eden topics asyncapi`. Do not edit.\n"


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
            "description": GUIDE,
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "servers": {"kafka": {"host": "localhost:9092", "protocol": "kafka"}},
        "channels": {topic.name: _channel(topic) for topic in declared},
        "operations": dict(_operations(topics)),
        "components": {
            "messages": dict(_messages(topics)),
            "schemas": {"CloudEvent": _cloud_event()},
        },
    }


def document_text(topics: Topics) -> str:
    """The document as YAML."""
    return HEAD + yaml.dump(document(topics), Dumper=_Yaml, sort_keys=False, allow_unicode=True, width=110)


def _channel(topic: Topic) -> Node:
    declaration = topic.declaration
    kafka = {"partitions": topic.partitions, "topicConfiguration": _configuration(topic), **BINDING}
    return {
        "address": topic.name,
        "description": declaration.description,
        "messages": {name: _ref("components", "messages", name) for name in _message_names(declaration)},
        "x-key": declaration.key,
        "x-ordering-key": declaration.ordering_key,
        "bindings": {"kafka": kafka},
    }


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
        if declaration.tombstones:
            for name in _tombstone_names(declaration.tombstones):
                yield name, _tombstone(name, declaration.tombstones)


def _message(event: type[Event], number: int, declaration: Declaration) -> Node:
    name = f"{event.NAME}.v{number}"
    summary, *more = _paragraphs(event)
    return {
        "name": name,
        "title": event.NAME,
        "summary": summary,
        **({"description": "\n\n".join(more)} if more else {}),
        "contentType": CONTENT_TYPE,
        "headers": _headers({"ce_type": event_type(event.NAME, number)}, _about(event)),
        "payload": {"schemaFormat": SCHEMA_FORMAT, "schema": {"$ref": f"../schemas/json/{name}.json"}},
        "bindings": {"kafka": _key(_said(event.key))},
        "examples": list(_examples(event, number, declaration)),
        "x-dataschema": data_schema(event.NAME, number),
    }


def _examples(event: type[Event], number: int, declaration: Declaration) -> Iterator[Node]:
    """Each payload, with key and headers where a program of today writes that version."""
    source = next(
        (program for program, written in declaration.producers.items() if event.NAME in written), ""
    )
    for title, payload in examples_of(event.NAME, number).items():
        if number < event.VERSION:
            yield {"name": title, "payload": payload}
            continue
        example = event.model_validate_json(json.dumps(payload))
        yield {
            "name": title,
            "summary": f"Kafka key: {example.key()}",
            "headers": _as_text(_envelope(example, source)),
            "payload": payload,
        }


def _as_text(about: Envelope) -> Node:
    return {name: value.decode() for name, value in about.headers()}


def _tombstone(name: str, of: Tombstones) -> Node:
    event = REGISTRY.events[name.removesuffix(".tombstone")]
    reason = {"ce_reason": {"type": "string", "enum": list(of.reasons)}}
    return {
        "name": name,
        "title": f"Tombstone of a {event.NAME}",
        "summary": "No value: what this key names is erased; the headers say which version it was, and why.",
        "headers": _headers(
            {"ce_type": event_type(event.NAME, event.VERSION)}, {**_about(event), **reason}, ["ce_reason"]
        ),
        "payload": {"type": "null"},
        "bindings": {"kafka": _key(_said(event.key))},
        "examples": [_erased(event, of)],
    }


def _erased(event: type[Event], of: Tombstones) -> Node:
    """The tombstone of the first example."""
    payload = next(iter(examples_of(event.NAME, event.VERSION).values()))
    example = event.model_validate_json(json.dumps(payload))
    version = payload.get("version")
    about = _envelope(example, of.by[0])._replace(
        entity_version=None if version is None else str(version),
        scope=example.ordering_key(),
        reason=of.reasons[-1],
    )
    return {
        "name": "erased",
        "summary": f"Kafka key: {example.key()}",
        "headers": _as_text(about),
        "payload": None,
    }


def _envelope(event: Event, source: str) -> Envelope:
    return event.envelope(EXAMPLE_ID, source, EXAMPLE_TIME)


def _about(event: type[Event]) -> dict[str, Node]:
    """The headers whose meaning depends on the event."""
    said = {"ce_subject": _said(event.subject), "ce_orderingkey": _said(event.ordering_key)}
    return {name: {"type": "string", "description": text} for name, text in said.items()}


def _said(method: Callable[..., str]) -> str:
    return _paragraphs(method)[0]


def _paragraphs(described: Any) -> list[str]:
    return [" ".join(paragraph.split()) for paragraph in (getdoc(described) or "").split("\n\n")]


def _key(description: str) -> Node:
    return {"key": {"type": "string", "description": description}, **BINDING}


def _headers(constants: Mapping[str, str], more: Mapping[str, Node], required: Iterable[str] = ()) -> Node:
    properties = {name: {"type": "string", "const": value} for name, value in constants.items()}
    own: Node = {"type": "object", "properties": {**properties, **more}, "required": [*required]}
    return {"allOf": [_ref("components", "schemas", "CloudEvent"), own]}


HEADERS: Mapping[str, str] = {
    "ce_specversion": "CloudEvents version.",
    "ce_id": "Deterministic and opaque: a repeat of the event has the same id.",
    "ce_type": "Type and version: `eden.<Type>.v<N>`.",
    "ce_source": "The program that wrote it.",
    "ce_time": "When what it tells of happened (RFC 3339, UTC, milliseconds); not when it was written.",
    "ce_subject": "The entity that it is about.",
    "ce_dataschema": "URN of the JSON Schema: `urn:eden-memory:schema:<store format>:<Type>.v<N>`.",
    "ce_orderingkey": "What it stays in order with; murmur2 of it chooses the partition.",
    "content-type": "Of the value; on a tombstone, too.",
    "traceparent": "W3C trace context, where there is one.",
    "ce_entityversion": "Tombstones: the version that is erased, where the entity has versions.",
    "ce_scope": "Tombstones: the session or scope key that the entity was in, where known.",
    "ce_reason": "Tombstones: why the entity ended.",
}
ALWAYS = (
    *("ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time"),
    *("ce_subject", "ce_dataschema", "ce_orderingkey", "content-type"),
)


def _cloud_event() -> Node:
    properties: Node = {name: {"type": "string", "description": said} for name, said in HEADERS.items()}
    properties["ce_specversion"]["const"] = SPEC_VERSION
    return {
        "type": "object",
        "description": "CloudEvents 1.0, Kafka binary binding: attributes as headers, all UTF-8 text.",
        "properties": properties,
        "required": list(ALWAYS),
    }


def _ref(*path: str) -> Node:
    escaped = (part.replace("~", "~0").replace("/", "~1").replace(" ", "%20") for part in path)
    return {"$ref": "#/" + "/".join(escaped)}
