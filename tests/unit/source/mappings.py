"""Mappings and changes as the tailer's unit tests need them: small, with what does not matter filled in."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import json_util

from eden_memory.kafka.record import Outgoing
from eden_memory.mongo.changes import ChangeEvent, Document, DocumentPage, version_of
from eden_memory.mongo.ids import encode_id
from eden_memory.processors.tailer import Tailer
from eden_memory.redaction import Redactor
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import MessageRecorded, decode
from eden_memory.source.message_mapping import FieldPaths, MessageMapping
from eden_memory.source.source_mapping import InboxMapping, Mapped, SourceMapping

SOURCE = "tailer/app.messages"
PATHS = FieldPaths("session_id", "role", "content", "user_id", "created_at")
BEGAN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MESSAGES, INBOX = "messages", "memory_inbox"
VERSION = "69a42000" + "00000001"


def mapping(
    paths: FieldPaths = PATHS,
    *,
    roles: Mapping[str, str] | None = None,
    text_limit: int = 8_000,
    redactor: Redactor | None = None,
    deleted: Sequence[str] = (),
) -> MessageMapping:
    return MessageMapping(
        paths, SOURCE, encode_id, roles=roles, text_limit=text_limit, redactor=redactor, deleted=deleted
    )


def to_json(document: Document) -> bytes:
    return json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS).encode()


def source_mapping(messages: MessageMapping | None = None) -> SourceMapping:
    return SourceMapping(
        messages or mapping(), InboxMapping(SOURCE, encode_id, 8_000), MESSAGES, INBOX, to_json
    )


def message(identity: Any = "m1", **fields: Any) -> dict[str, Any]:
    whole = {"session_id": "s1", "role": "user", "content": "hello", "user_id": "u1", "created_at": None}
    return {"_id": identity, **whole, **fields}


def change(
    number: int,
    operation: str,
    document: Document | None = None,
    *,
    identity: Any = None,
    before: Document | None = None,
    touched: Sequence[str] | None = None,
    collection: str = MESSAGES,
    position: int | None = None,
) -> ChangeEvent:
    """The `number`th change of the stream, or one further on in the transaction that is."""
    moment = BEGAN + timedelta(seconds=number)
    named = document["_id"] if document is not None else identity
    version = version_of(int(moment.timestamp()), 1, position)
    return ChangeEvent(operation, collection, named, document, before, touched, version, moment)


def page(*documents: Document) -> DocumentPage:
    return DocumentPage(documents, documents[-1]["_id"], VERSION, BEGAN)


def recorded(outgoing: Outgoing) -> MessageRecorded:
    """The record as a consumer reads it."""
    assert outgoing.value is not None
    envelope = Envelope.of_headers(outgoing.headers)
    event = decode(envelope.name, envelope.version, outgoing.value)
    assert isinstance(event, MessageRecorded)
    return event


def map_one(document: Document, messages: MessageMapping | None = None) -> MessageRecorded:
    """What an inserted document becomes."""
    (record,) = mapped(change(1, "insert", document), messages=messages).records
    return recorded(record)


def mapped(*changes: ChangeEvent, messages: MessageMapping | None = None) -> Mapped:
    return Tailer(source_mapping(messages))(changes)
