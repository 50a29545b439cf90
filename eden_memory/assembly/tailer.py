"""Builds the tailer of an application's collections."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from pymongo import AsyncMongoClient

from eden_memory.directory.listed_messages import DOCUMENT
from eden_memory.directory.listed_store import ListStore
from eden_memory.directory.secret_store import installation_secret
from eden_memory.directory.session_document_store import SessionDocuments
from eden_memory.errors import EdenError
from eden_memory.forgetting.forgetting_rules import mark_of
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.record import Outgoing
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids import encode_id, to_json
from eden_memory.mongo.leases import MongoLease
from eden_memory.processors.tailer import Tailer
from eden_memory.redaction import redactor_of
from eden_memory.schemas.documents import (
    InboxAddedText,
    InboxFactCommand,
    InboxForget,
    InboxFormNow,
    InboxMemoryCommand,
    InboxReread,
    InboxSessionEnded,
)
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import Forgotten
from eden_memory.settings import Settings
from eden_memory.source.backfill import MessageRereader, MessagesTopic
from eden_memory.source.inbox_store import MongoInbox
from eden_memory.source.leader import FencedPublisher, Leader, Source
from eden_memory.source.leadership import Leadership, TailerPart
from eden_memory.source.listed_source import ListedSource
from eden_memory.source.message_mapping import TOPIC
from eden_memory.source.messages_store import (
    CollectionReader,
    ExcludedSessions,
    MappingVersions,
    Misread,
    count_recorded,
    inbox_name,
    message_list,
    message_mapping,
)
from eden_memory.source.position_store import (
    MongoOplog,
    MongoPositions,
    another_source,
    lost_collection,
    nothing_there,
    other_sources,
)
from eden_memory.source.source_mapping import InboxMapping, SourceMapping
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.partition_count_store import PartitionCounts

MongoClient = AsyncMongoClient[dict[str, Any]]
LISTS_OF_PAGE = 100
"""Documents of a page, where each lists messages."""

INBOX_FIELDS = sorted(
    {
        field.alias or name
        for document in (
            InboxAddedText,
            InboxFactCommand,
            InboxForget,
            InboxFormNow,
            InboxMemoryCommand,
            InboxReread,
            InboxSessionEnded,
        )
        for name, field in document.model_fields.items()
    }
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
    redactor = redactor_of(settings)
    requests = InboxMapping(settings.source_name, encode_id, settings.tailer.text_limit, redactor)
    return SourceMapping(
        message_mapping(settings),
        requests,
        settings.messages.collection,
        inbox_name(settings),
        to_json,
    )


async def refuse_wrong_source(settings: Settings, client: MongoClient) -> None:
    """Raise EdenError if the messages collection is another than memory is formed from, or lost its documents.

    The same for settings by which no message can be read.
    """
    _since(settings)
    _excluded(settings, client)
    source, positions = settings.source_name, _collection(client, settings, "positions")
    if others := await other_sources(positions, source):
        raise another_source(source, others)
    messages = client[settings.source_database][settings.messages.collection]
    if await lost_collection(positions, source, messages):
        recorded = await count_recorded(_collection(client, settings, "messages"))
        if recorded:
            raise nothing_there(source, recorded)


@asynccontextmanager
async def tailing(settings: Settings, *, new_source: bool = False) -> AsyncGenerator[TailerPart, None]:
    """The tailer of the application's messages, ready to run.

    `new_source`: these messages take the place of those of another collection.
    """
    servers = endpoints(settings)
    name = settings.source_name
    async with (
        connect(servers.mongodb) as client,
        connect(servers.mongodb) as own,
    ):
        # The lease has a client, and so connections, of its own: it is renewed however busy the stream is.
        lease = MongoLease(_collection(own, settings, "leases"), name, settings.tailer.lease_seconds)
        yield TailerPart(lease, _leading(settings, servers.kafka, client, new_source=new_source))


def _leading(
    settings: Settings, bootstrap: str, client: MongoClient, *, new_source: bool
) -> Callable[[int, asyncio.Event], Awaitable[None]]:
    """Return what runs one leadership, given the lease's epoch and the signal to stop."""
    kafka, topics = client_kwargs(settings.kafka, bootstrap), load_topics(settings.kafka, settings.placement)
    mapping, limits = source_mapping(settings), dict[str, int]()
    oplog = MongoOplog(client)
    versions = mapping_versions(settings, client)
    database = client[settings.mongodb.database]
    letters = DeadLetters(database, settings.names, MongoForgetting(database, settings.names))
    used = PartitionCounts(database, settings.names).used
    topic = MessagesTopic(kafka, topics.name(TOPIC))

    async def lead(epoch: int, stopping: asyncio.Event) -> None:
        fence = topics.prefix + settings.source_name
        publisher = FencedPublisher(kafka, fence, topics, limits, letters, used)
        source = await _source(settings, client, letters, topic.name, new_source=new_source)
        leader = Leader(epoch, source, mapping, publisher, settings.tailer.commit_seconds, stopping)
        await Leadership(
            leader,
            Tailer(mapping),
            topic,
            MessageRereader(leader, topic, versions),
            versions,
            settings.source_name,
            settings.tailer.watermark_seconds,
            oplog,
            new_source=new_source,
        ).run()

    return lead


async def _source(
    settings: Settings, client: MongoClient, letters: DeadLetters, topic: str, *, new_source: bool
) -> Source:
    listing = None
    if settings.messages.list is not None:
        key = await installation_secret(client[settings.mongodb.database], settings.names)
        listing = message_list(settings, key)
    paths = ["_id", *message_mapping(settings).read_paths, *(listing.read_paths if listing else ())]
    paths = [path for path in paths if not path.startswith(DOCUMENT)]
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
        settings.messages.created_at if listing is None else "_id",
        session=settings.messages.session_id,
        since=_since(settings) if listing is None else None,
        page=settings.tailer.batch_messages if listing is None else LISTS_OF_PAGE,
    )
    positions = MongoPositions(
        _collection(client, settings, "positions"),
        settings.source_name,
        _collection(client, settings, "leases"),
        mapping=message_mapping(settings).version,
        new_source=new_source,
    )
    waiting = MongoInbox(client, settings.source_database, inbox)
    marks = MongoForgetting(client[settings.mongodb.database], settings.names)

    async def mark(records: Sequence[Outgoing]) -> None:
        """Store the marks under the ids of the records, as the forgetting stage does again."""
        for record in records:
            event = Forgotten.model_validate_json(record.value or b"")
            if event.kind != "key":  # a key has no mark: the stage revokes it
                event_id = Envelope.of_headers(record.headers).id
                await marks.mark([mark_of(event)], event_id, event.forgotten_at)

    listed = None
    if listing is not None:
        store = ListStore(client[settings.mongodb.database], settings.names)
        mapping, name = message_mapping(settings), settings.source_name
        documents = client[settings.source_database][messages]
        listed = ListedSource(listing, store, mapping, messages, name, documents)
    since = None if listing is None else _since(settings)
    excluded = _excluded(settings, client)
    return Source(changes, reader, waiting, positions, mark, letters, topic, excluded, listed, since)


def _excluded(settings: Settings, client: MongoClient) -> ExcludedSessions | None:
    sessions = settings.sessions
    if not sessions.exclude:
        return None
    if sessions.collection is None:
        raise EdenError(
            "EDEN_SESSIONS_EXCLUDE is set, and no collection of sessions is",
            "Set EDEN_SESSIONS_COLLECTION, or EDEN_MESSAGES_EXCLUDE if the messages have the field.",
        )
    return ExcludedSessions(SessionDocuments(client[settings.source_database], sessions))


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
