"""The mapping of the application's documents that the settings describe."""

from typing import Any

from bson import json_util
from bson.binary import UuidRepresentation
from pymongo import AsyncMongoClient

from eden_memory.mongo.bson_ids import encode_id
from eden_memory.mongo.changes import Document
from eden_memory.settings import Settings
from eden_memory.source.flagged_message_store import MappingVersions, Misread
from eden_memory.source.inbox_mapping import InboxMapping
from eden_memory.source.message_mapping import FieldPaths, MessageMapping
from eden_memory.source.source_mapping import SourceMapping

MongoClient = AsyncMongoClient[dict[str, Any]]
AS_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)
INBOX = "inbox"


def message_paths(settings: Settings) -> FieldPaths:
    """Where a message's fields are in the application's documents."""
    fields = settings.messages
    return FieldPaths(fields.session_id, fields.role, fields.content, fields.user_id, fields.created_at)


def message_mapping(settings: Settings) -> MessageMapping:
    """The application's messages → records."""
    return MessageMapping(
        message_paths(settings),
        settings.source_name,
        encode_id,
        roles=settings.messages.roles,
        text_limit=settings.tailer.text_limit,
    )


def mapping_versions(settings: Settings, client: MongoClient) -> MappingVersions:
    """Which field mapping read the stored messages, compared with the one that is set."""
    database, version = client[settings.mongodb.database], message_mapping(settings).version
    return MappingVersions(database, settings.names, settings.source_name, version)


async def misread_of(settings: Settings, client: MongoClient) -> Misread:
    """Count what another field mapping than the one set read, or read when memory was formed."""
    return await mapping_versions(settings, client).misread()


def source_mapping(settings: Settings) -> SourceMapping:
    """The pure mapping of both collections."""
    requests = InboxMapping(settings.source_name, encode_id, settings.tailer.text_limit)
    return SourceMapping(
        message_mapping(settings), requests, settings.messages.collection, inbox_name(settings), to_json
    )


def inbox_name(settings: Settings) -> str:
    """The collection that applications and API write their requests to."""
    return settings.names[INBOX]


def to_json(document: Document) -> bytes:
    """Extended JSON of a document, whatever stands in it."""
    return json_util.dumps(document, json_options=AS_JSON).encode()
