"""The tailer of an application's collections, wired: what it reads, how it maps it, who leads."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer
from bson import json_util
from bson.binary import UuidRepresentation
from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from eden_memory.error_text import describe
from eden_memory.errors import EdenError
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.mongo.changes import Document, SourceFailed
from eden_memory.mongo.client import connect
from eden_memory.mongo.leases import MongoLease
from eden_memory.processors.tailer import Tailer
from eden_memory.schemas.documents import (
    InboxAddedText,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxReread,
    InboxSessionEnded,
    Message,
)
from eden_memory.settings import Settings
from eden_memory.source.chat_topics import TransactionalPublisher
from eden_memory.source.inbox_mapping import InboxMapping
from eden_memory.source.inbox_store import MongoInbox
from eden_memory.source.known_message_topics import Consumers
from eden_memory.source.leadership import Leadership
from eden_memory.source.leading import Leading, Source
from eden_memory.source.message_mapping import TOPIC, FieldPaths, MessageMapping
from eden_memory.source.messages_store import CollectionReader
from eden_memory.source.misread_store import Misread, misread, reading_alike
from eden_memory.source.oplog_store import MongoOplog
from eden_memory.source.position_store import MongoPositions
from eden_memory.source.refused_documents import RefusedDocuments
from eden_memory.source.rereading import Rereading
from eden_memory.source.tailing import Tailing
from eden_memory.stages.control_store import MongoControls

MongoClient = AsyncMongoClient[dict[str, Any]]

AS_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)
INBOX = "inbox"
INBOX_FIELDS = sorted(
    {
        field.alias or name
        for document in (
            InboxAddedText,
            InboxFactCommand,
            InboxForget,
            InboxFormNow,
            InboxReread,
            InboxSessionEnded,
        )
        for name, field in document.model_fields.items()
    }
)


def message_paths(settings: Settings) -> FieldPaths:
    """Where a message's fields are in the application's documents."""
    fields = settings.messages
    return FieldPaths(fields.session_id, fields.role, fields.content, fields.user_id, fields.created_at)


def message_mapping(settings: Settings) -> MessageMapping:
    """The application's messages → records."""
    return MessageMapping(
        message_paths(settings),
        source_name(settings),
        encode_id,
        roles=settings.messages.roles,
        text_limit=settings.tailer.text_limit,
    )


async def misread_of(settings: Settings, client: MongoClient) -> Misread:
    """Count what another field mapping than the present one read, and what of it memory was formed of."""
    database, version = client[settings.mongodb.database], message_mapping(settings).version
    return await misread(database, settings.names, source_name(settings), version)


def source_name(settings: Settings) -> str:
    """Names the source: in `ce_source`, the lease, the position and the transactional id."""
    return settings.source_name


def tailer(settings: Settings) -> Tailer:
    """The pure mapping of both collections."""
    asked = InboxMapping(source_name(settings), encode_id, settings.tailer.text_limit)
    return Tailer(
        message_mapping(settings), asked, settings.messages.collection, inbox_name(settings), to_json
    )


def inbox_name(settings: Settings) -> str:
    """The collection that applications and API write their requests to."""
    return settings.names[INBOX]


def to_json(document: Document) -> bytes:
    """Extended JSON of a document, whatever stands in it."""
    return json_util.dumps(document, json_options=AS_JSON).encode()


@asynccontextmanager
async def tailing(settings: Settings, *, new_source: bool = False) -> AsyncGenerator[Tailing, None]:
    """The tailer of the application's messages, ready to run.

    `new_source`: these messages take the place of those of another collection.
    """
    servers = endpoints(settings)
    name = source_name(settings)
    async with (
        connect(settings.mongodb, servers.mongodb) as client,
        connect(settings.mongodb, servers.mongodb) as own,
    ):
        # The lease has a client, and so connections, of its own: it is renewed however busy the stream is.
        lease = MongoLease(_collection(own, settings, "leases"), name, settings.tailer.lease_seconds)
        yield Tailing(lease, _leadership(settings, servers.kafka, client, new_source=new_source).run)


def _leadership(settings: Settings, bootstrap: str, client: MongoClient, *, new_source: bool) -> Leadership:
    kafka, topics = client_kwargs(settings.kafka, bootstrap), load_topics(settings.kafka, settings.placement)
    mapping, limits = tailer(settings), dict[str, int]()

    def leading(epoch: int, stopping: asyncio.Event) -> Leading:
        publisher = TransactionalPublisher(kafka, topics.prefix + source_name(settings), topics, limits)
        source = _source(settings, client, new_source=new_source)
        return Leading(epoch, source, mapping, publisher, settings.tailer.commit_seconds, stopping)

    def consumers(isolation: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topics.name(TOPIC), **kafka, isolation_level=isolation, auto_offset_reset="earliest"
        )

    window = MongoOplog(client).window if settings.metrics.oplog else None
    return Leadership(
        leading,
        consumers,
        settings.tailer.watermark_seconds,
        source_name(settings),
        window,
        new_source=new_source,
        rereading=partial(_rereading, settings, client, kafka, consumers),
        misread=partial(_misread_lines, settings, client),
    )


async def _misread_lines(settings: Settings, client: MongoClient) -> Sequence[str]:
    try:
        return (await misread_of(settings, client)).lines()
    except PyMongoError as error:
        raise SourceFailed(f"counting what was read by another mapping: {describe(error)}") from error


def _rereading(
    settings: Settings, client: MongoClient, kafka: dict[str, Any], consumers: Consumers
) -> Rereading:
    topics = load_topics(settings.kafka, settings.placement)
    database = client[settings.mongodb.database]
    controls = MongoControls(database, settings.names)
    refused = RefusedDocuments(
        kafka,
        topics.dead_of(topics.name(TOPIC)),
        settings.messages.collection,
        controls.dead_states,
        lambda letter: controls.drop_dead(letter, state="published"),
    )
    messages = database[settings.names[Message.COLLECTION]]
    return Rereading(consumers, refused, reading_alike(messages, message_mapping(settings).version))


def _source(settings: Settings, client: MongoClient, *, new_source: bool) -> Source:
    paths = ["_id", *message_paths(settings)]
    messages, inbox = settings.messages.collection, inbox_name(settings)
    changes = ChangeStream(
        client,
        settings.source_database,
        {messages: paths, inbox: INBOX_FIELDS},
        kept_before=[settings.messages.session_id],
        batch=settings.tailer.batch_messages,
    )
    reader = CollectionReader(
        client,
        settings.source_database,
        messages,
        paths,
        settings.messages.created_at,
        session=settings.messages.session_id,
        since=_since(settings),
        page=settings.tailer.batch_messages,
    )
    positions = MongoPositions(
        _collection(client, settings, "positions"),
        source_name(settings),
        _collection(client, settings, "leases"),
        mapping=message_mapping(settings).version,
        new_source=new_source,
    )
    return Source(changes, reader, MongoInbox(client, settings.source_database, inbox), positions)


def _collection(client: MongoClient, settings: Settings, name: str) -> Any:
    return client[settings.mongodb.database][settings.names[name]]


def _since(settings: Settings) -> datetime | None:
    text = settings.tailer.backfill_since
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise EdenError(
            f"EDEN_TAILER_BACKFILL_SINCE is {text!r}", "Give an ISO date, as 2026-01-31."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
