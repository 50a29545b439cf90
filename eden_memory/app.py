"""The one place where things are wired together: settings in, running parts out."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from typing import Any

from aiokafka import AIOKafkaConsumer
from bson import json_util
from pymongo import AsyncMongoClient

from eden_memory.domain.consumption import Consumption
from eden_memory.domain.errors import EdenError
from eden_memory.domain.source.changes import Document
from eden_memory.domain.source.inbox_mapping import InboxMapping
from eden_memory.domain.source.message_mapping import TOPIC, FieldPaths, MessageMapping
from eden_memory.domain.stage import Handler
from eden_memory.handlers import stage_handlers
from eden_memory.local.servers import endpoints
from eden_memory.mongo.census import count_documents
from eden_memory.mongo.client import connect
from eden_memory.mongo.consumption import MongoMarks
from eden_memory.mongo.context.context_watch import ContextWatch
from eden_memory.mongo.ids import encode_id
from eden_memory.mongo.leases import MongoLease
from eden_memory.mongo.memory.blobs_decided import scopes_due
from eden_memory.mongo.memory.streams import MongoStreams
from eden_memory.mongo.outcomes import MongoLedger
from eden_memory.mongo.replay.live import MongoLive
from eden_memory.mongo.setup.setup import check
from eden_memory.mongo.source.change_stream import ChangeStream
from eden_memory.mongo.source.collection_reader import CollectionReader
from eden_memory.mongo.source.inbox import MongoInbox
from eden_memory.mongo.source.oplog import MongoOplog
from eden_memory.mongo.source.positions import MongoPositions
from eden_memory.mongo.spent import spent
from eden_memory.mongo.trigger.window_texts import MongoWindowTexts
from eden_memory.mongo.usage.budgets import MongoBudgets
from eden_memory.mongo.usage.formations import MongoFormations
from eden_memory.namespaces.shadowing import shadowing
from eden_memory.namespaces.wiring import surroundings
from eden_memory.runtime import metrics
from eden_memory.runtime.budget_keeping import BudgetKeeping
from eden_memory.runtime.context_keeping import ContextKeeping
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.runtime.housekeeping import Housekeeping
from eden_memory.runtime.http import HealthServer
from eden_memory.runtime.janitor import Janitor
from eden_memory.runtime.kafka import admin_config, client_kwargs
from eden_memory.runtime.lagging.exporting import Census, LagExport
from eden_memory.runtime.lagging.reading import LagReader
from eden_memory.runtime.metrics import BudgetMetrics
from eden_memory.runtime.placed import Placed
from eden_memory.runtime.preflight import topics_exist
from eden_memory.runtime.process import Part, Process, Signals
from eden_memory.runtime.stages.patience import until_there
from eden_memory.runtime.stages.publishing import Publisher, new_producer
from eden_memory.runtime.stages.waking import Waking
from eden_memory.runtime.stages.worker import Bounds, Surroundings, Worker
from eden_memory.runtime.tailing.leading import Leading, Source
from eden_memory.runtime.tailing.phases import Leadership
from eden_memory.runtime.tailing.tailing import Tailing
from eden_memory.runtime.tailing.transactions import TransactionalPublisher
from eden_memory.runtime.window_texts import WindowTexts
from eden_memory.settings import Settings
from processors import pipeline
from processors.context_cache import ContextCache
from processors.tailer import Tailer
from schemas.documents import InboxAddedText, InboxFactCommand, InboxForget, InboxFormNow, InboxSessionEnded

MongoClient = AsyncMongoClient[dict[str, Any]]

DRAINED_SECONDS, CLOSED_SECONDS = 3.0, 9.0
"""So much longer than its own draining a part may take to end, and what it stands on to be closed."""
INBOX, WRITER, UNTIL_CONSUMED = "inbox", "atlas-writer", "until consumed"
JANITOR_LEASE_SECONDS = 60.0
LAG_LEASE_SECONDS = 6.0
MONGODB_HINT = "Check EDEN_MONGODB_URI, or start the local servers: eden up"
SERVERS_HINT = "Check EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP, or start the local servers: eden up"
INBOX_FIELDS = sorted(
    {
        field.alias or name
        for document in (InboxAddedText, InboxFactCommand, InboxForget, InboxFormNow, InboxSessionEnded)
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


def source_name(settings: Settings) -> str:
    """Names the source: in `ce_source`, the lease, the position and the transactional id."""
    return f"tailer/{settings.source_database}.{settings.messages.collection}"


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
    return json_util.dumps(document, json_options=json_util.RELAXED_JSON_OPTIONS).encode()


TAILER, JANITOR, LAG = "tailer", "janitor", "lag"
PARTS = (TAILER, *pipeline.NAMES, JANITOR, LAG)
"""What `eden run` can run."""


async def run(settings: Settings, names: Sequence[str], signals: Signals) -> None:
    """Run the parts named (none: all) until a signal."""
    async with following(settings, names) as placed:
        http = _http(settings, lambda: (placed, *placed.parts))
        seconds = settings.run.drain_seconds + DRAINED_SECONDS + CLOSED_SECONDS
        await Process([placed, *http], signals, seconds).run()


@asynccontextmanager
async def following(settings: Settings, names: Sequence[str]) -> AsyncGenerator[Placed]:
    """The parts named (none: all) of the namespace that is live, ready to run, and of what becomes live then."""
    wanted, run = _wanted(names), settings.run
    async with AsyncExitStack() as stack:
        live = await until_there(
            lambda: stack.enter_async_context(_live(settings)), "MongoDB", run.start_seconds, MONGODB_HINT
        )
        placed = Placed(
            lambda one: _parts(settings.placed(one), wanted),
            live.changes,
            run.drain_seconds + DRAINED_SECONDS,
        )
        stack.push_async_callback(placed.close)
        await placed.begin(await live.placement())
        yield placed


@asynccontextmanager
async def _live(settings: Settings) -> AsyncGenerator[MongoLive]:
    """The pointer to the namespace that is live, once it can be read."""
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        live = MongoLive(client[settings.mongodb.database], settings.mongodb.prefix)
        await live.placement()
        yield live


def _http(settings: Settings, parts: Callable[[], Sequence[Part]]) -> list[Part]:
    if settings.http.port is None:
        return []
    metrics.BUILD.info({"version": version("eden-memory")})
    return [HealthServer(parts, settings.http.host, settings.http.port, namespace_of(settings))]


@asynccontextmanager
async def _parts(settings: Settings, wanted: Collection[str]) -> AsyncGenerator[list[Part]]:
    """What is to run for a namespace, once the servers are there and hold what it needs."""
    async with AsyncExitStack() as stack:
        yield await _entered(settings, wanted, stack)


async def _entered(settings: Settings, wanted: Collection[str], stack: AsyncExitStack) -> list[Part]:
    patience, topics = settings.run.start_seconds, load_topics(settings.kafka, settings.placement)
    config = admin_config(settings.kafka, endpoints(settings).kafka)
    await topics_exist(config, [topic.name for topic in topics], patience)
    parts: list[Part] = []
    if TAILER in wanted:
        parts.append(await stack.enter_async_context(tailing(settings)))
    if JANITOR in wanted:
        parts.append(await stack.enter_async_context(housekeeping(settings)))
    if LAG in wanted:
        parts.append(await stack.enter_async_context(lag_export(settings)))
    if set(wanted) & set(pipeline.NAMES):
        await until_there(lambda: _collections_ready(settings), "MongoDB", patience, MONGODB_HINT)
        stages = partial(_stages, settings, wanted, stack)
        parts.extend(await until_there(stages, "MongoDB or Kafka", patience, SERVERS_HINT))
    if WRITER in wanted:
        parts.append(await stack.enter_async_context(shadowing(settings, stage_parts)))
    return parts


async def _stages(settings: Settings, names: Collection[str], stack: AsyncExitStack) -> list[Part]:
    return await stack.enter_async_context(stage_parts(settings, names))


async def _collections_ready(settings: Settings) -> None:
    """An EdenError that names what `eden setup` has not made yet, or has made differently."""
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        problems = await check(client[settings.mongodb.database], settings.names)
    if problems:
        listed = "\n".join(f"  {one}" for one in problems)
        raise EdenError(f"MongoDB is not set up for memory:\n{listed}", "Run `eden setup`.")


def _wanted(names: Sequence[str]) -> set[str]:
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        raise EdenError(f"there is no {', '.join(unknown)} to run", f"There are: {', '.join(PARTS)}.")
    return set(names or PARTS)


@asynccontextmanager
async def stage_parts(
    settings: Settings, names: Collection[str], *, group_of: Callable[[str], str] | None = None
) -> AsyncGenerator[list[Part]]:
    """The stages named, ready to run; what they share is closed at the end. `group_of`: other consumer groups."""
    servers = endpoints(settings)
    async with connect(settings.mongodb, servers.mongodb) as client:
        kafka = client_kwargs(settings.kafka, servers.kafka)
        publisher = Publisher(partial(new_producer, kafka))
        await publisher.start()
        try:
            database = client[settings.mongodb.database]
            await MongoLedger(database, settings.names).prepare()
            bounds = Bounds(stop_seconds=settings.run.drain_seconds)
            around = surroundings(settings, database, kafka, publisher, bounds)
            around = around if group_of is None else replace(around, group_of=group_of)
            async with stage_handlers(settings, client, publisher, around.topic_of, names) as handlers:
                workers: list[Part] = [Worker(stage, around) for stage in pipeline.stages(handlers)]
                yield [*workers, *_beside(settings, client, around, handlers)]
        finally:
            await publisher.stop()


def _beside(
    settings: Settings, client: MongoClient, around: Surroundings, handlers: Mapping[str, Handler]
) -> list[Part]:
    """What some stages need besides their records."""
    parts: list[Part] = []
    if isinstance(cache := handlers.get(pipeline.CONTEXT_CACHE), ContextCache):
        parts.append(ContextKeeping(cache, lambda heard, live: ContextWatch(client, settings, heard, live)))
    if pipeline.CONSOLIDATION in handlers:
        database, names = client[settings.mongodb.database], settings.names
        due = partial(scopes_due, database, names, MongoStreams(database, names))
        memory = settings.placement.revisions
        parts.append(Waking(due, around.publisher, around.topic_of, pipeline.CONSOLIDATION, memory))
    if pipeline.FORMATION_TRIGGER in handlers:
        parts.append(budget_keeping(settings, client))
    return parts


def budget_keeping(settings: Settings, client: MongoClient) -> BudgetKeeping:
    """Lets go of what was reserved for windows that are formed."""
    database, names = client[settings.mongodb.database], settings.names
    budgets, formations = MongoBudgets(database, names), MongoFormations(database, names)
    return BudgetKeeping(budgets, formations, MongoLedger(database, names), BudgetMetrics())


@asynccontextmanager
async def housekeeping(settings: Settings) -> AsyncGenerator[Housekeeping]:
    """The janitor: removes what every consumer has had behind it for a week."""
    servers = endpoints(settings)
    async with connect(settings.mongodb, servers.mongodb) as client:
        database, names = client[settings.mongodb.database], settings.names
        kafka = client_kwargs(settings.kafka, servers.kafka)
        lease = MongoLease(database[names["leases"]], JANITOR, JANITOR_LEASE_SECONDS)
        outcomes, marks = MongoLedger(database, names), MongoMarks(database, names)
        texts = WindowTexts(MongoWindowTexts(database, names))
        yield Housekeeping(lease, Janitor(kafka, consumption(settings), marks, outcomes, _now, texts))


@asynccontextmanager
async def lag_export(settings: Settings) -> AsyncGenerator[LagExport]:
    """Lag of all groups, and the state of memory, as metrics."""
    servers = endpoints(settings)
    kafka, topics = (
        client_kwargs(settings.kafka, servers.kafka),
        load_topics(settings.kafka, settings.placement),
    )
    declared = {
        topics.group(name): topics.read_by(name)
        for name, program in topics.file.programs.items()
        if not program.later and topics.read_by(name)
    }
    async with connect(settings.mongodb, servers.mongodb) as client:
        database, names = client[settings.mongodb.database], settings.names
        census = Census(
            partial(count_documents, database, names),
            partial(scopes_due, database, names, MongoStreams(database, names)),
            lambda: spent(database, names, _now(), settings.metrics.agents),
        )
        lease = MongoLease(database[names["leases"]], LAG, LAG_LEASE_SECONDS)
        yield LagExport(lease, lambda: LagReader(kafka, [topic.name for topic in topics], declared), census)


def namespace_of(settings: Settings) -> str:
    """The label `namespace` of the metrics."""
    return settings.metrics.namespace or settings.mongodb.database


def consumption(settings: Settings) -> Consumption:
    """Who has to be past what before it is removed: as topics.yaml declares it, for what exists already."""
    topics = load_topics(settings.kafka, settings.placement)
    programs, declared = topics.file.programs, topics.file.topics
    readers = {
        topics.name(short): [topics.group(one) for one in topic.groups if not programs[one].later]
        for short, topic in declared.items()
        if topic.kept == UNTIL_CONSUMED
    }
    deciding = [name for name in pipeline.NAMES if name not in pipeline.KEEP_THEIR_OWN_STATE]
    stages = {name: (topics.group(name), topics.read_by(name)) for name in deciding}
    return Consumption(readers, stages, (topics.group(WRITER), topics.read_by(WRITER)))


def _now() -> datetime:
    return datetime.now(UTC)


@asynccontextmanager
async def tailing(settings: Settings) -> AsyncGenerator[Tailing, None]:
    """The tailer of the application's messages, ready to run."""
    servers = endpoints(settings)
    name = source_name(settings)
    async with (
        connect(settings.mongodb, servers.mongodb) as client,
        connect(settings.mongodb, servers.mongodb) as own,
    ):
        # The lease has a client, and so connections, of its own: it is renewed however busy the stream is.
        lease = MongoLease(_collection(own, settings, "leases"), name, settings.tailer.lease_seconds)
        yield Tailing(lease, _leadership(settings, servers.kafka, client).run)


def _leadership(settings: Settings, bootstrap: str, client: MongoClient) -> Leadership:
    kafka, topics = client_kwargs(settings.kafka, bootstrap), load_topics(settings.kafka, settings.placement)
    mapping = tailer(settings)

    def leading(epoch: int, stopping: asyncio.Event) -> Leading:
        publisher = TransactionalPublisher(kafka, topics.prefix + source_name(settings), topics)
        return Leading(
            epoch, _source(settings, client), mapping, publisher, settings.tailer.commit_seconds, stopping
        )

    def consumers(isolation: str) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topics.name(TOPIC), **kafka, isolation_level=isolation, auto_offset_reset="earliest"
        )

    window = MongoOplog(client).window if settings.metrics.oplog else None
    return Leadership(leading, consumers, settings.tailer.watermark_seconds, window)


def _source(settings: Settings, client: MongoClient) -> Source:
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
        since=_since(settings),
        page=settings.tailer.batch_messages,
    )
    positions = MongoPositions(_collection(client, settings, "positions"), source_name(settings))
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
