"""`eden run`: makes running parts from settings."""

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import version
from typing import Any

from pymongo import AsyncMongoClient

from eden_memory import metrics
from eden_memory.assembly.needs import (
    KNOWN_EVENTS,
    NEEDS,
    SERVERS_HINT,
    SOURCE,
    TAILER,
    servers_of,
    topics_check,
)
from eden_memory.assembly.stage_parts import stage_parts
from eden_memory.assembly.supervisor import LiveParts
from eden_memory.assembly.tailer import tailing
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.errors import EdenError
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.formation.due_scope_store import scopes_due
from eden_memory.housekeeping.compacted_topics import LoweredTopics
from eden_memory.housekeeping.consumption_store import Consumption, ConsumptionMarks, LedgerBounds
from eden_memory.housekeeping.janitor import PAUSE_SECONDS, ROUND_SECONDS, Janitor
from eden_memory.kafka.connection import admin_config, client_kwargs
from eden_memory.kafka.groups import LagReader
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.memory.memory_index_store import count_documents, heed_versions
from eden_memory.mongo.client import connect, hosts, server_time
from eden_memory.mongo.leases import MongoLease
from eden_memory.observability.lag_export import Census, FirstMemories, LagExport
from eden_memory.processors import pipeline
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import MongoLive
from eden_memory.replay.namespaces.standby_writers import standby_writers
from eden_memory.replay.restore.restored_backup import ForgettingAgain, RestoredBackup
from eden_memory.schemas.events import (
    FactChanged,
    FactsExtracted,
    FactsProposed,
    FormationRequested,
    ReflectionFormed,
)
from eden_memory.search import stored_vector_store
from eden_memory.search.search_count_store import MongoAccesses
from eden_memory.search.stored_vector_store import VectorCopies
from eden_memory.settings import Settings
from eden_memory.stages.dead_letter_store import DeadLetters
from eden_memory.stages.health_server import HealthServer
from eden_memory.stages.leased import Leased
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.patience import until_there
from eden_memory.stages.process import Process, ProcessPart, Signals
from eden_memory.tasks import all_of
from eden_memory.usage.usage_store import spent
from eden_memory.windows.trigger_store import WindowTextRetention

MongoClient = AsyncMongoClient[dict[str, Any]]

DRAINED_SECONDS, CLOSED_SECONDS = 3.0, 9.0
"""Seconds beyond its own draining that a part may take to end, and its connections to be closed."""
WRITER, UNTIL_CONSUMED = "atlas-writer", "until consumed"
JANITOR_LEASE_SECONDS = 60.0
LAG_LEASE_SECONDS = 30.0
MONGODB_HINT = "Check EDEN_MONGODB_URI, or start the local servers with `eden up`."

JANITOR, LAG = "janitor", "lag"
VECTORS = "vectors"
"""Runs where the janitor runs."""
PARTS = (TAILER, *pipeline.NAMES, JANITOR, LAG)
"""The parts that `eden run` can run."""


async def run(
    settings: Settings, names: Sequence[str], signals: Signals, *, new_source: bool = False
) -> None:
    """Run the parts named (none: all) until a signal."""
    async with following(settings, names, new_source=new_source) as live:
        http = _http(settings, lambda: (live, *live.parts))
        seconds = settings.run.drain_seconds + DRAINED_SECONDS + CLOSED_SECONDS
        await Process([live, *http], signals, seconds).run()


@asynccontextmanager
async def following(
    settings: Settings, names: Sequence[str], *, new_source: bool = False
) -> AsyncGenerator[LiveParts]:
    """Run the named parts (none: all) of the live namespace, and of the one that becomes live then."""
    wanted, run = _wanted(names), settings.run
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(endpoints(settings).mongodb))
        live = await until_there(
            lambda: _live(settings, client), _mongodb(settings), run.start_seconds, MONGODB_HINT
        )
        placed = LiveParts(
            lambda placement: _parts(settings.placed(placement), client, wanted, new_source=new_source),
            live.changes,
            run.drain_seconds + DRAINED_SECONDS,
        )
        stack.push_async_callback(placed.close)
        await placed.begin(await live.placement())
        yield placed


async def _live(settings: Settings, client: MongoClient) -> MongoLive:
    """Return the pointer to the live namespace, once it can be read."""
    live = MongoLive(client[settings.mongodb.database], settings.mongodb.prefix)
    await live.placement()
    return live


def _http(settings: Settings, parts: Callable[[], Sequence[ProcessPart]]) -> list[ProcessPart]:
    if settings.http.port is None:
        return []
    metrics.BUILD.info({"version": version("eden-memory")})
    return [HealthServer(parts, settings.http.host, settings.http.port, settings.mongodb.database)]


@asynccontextmanager
async def _parts(
    settings: Settings, client: MongoClient, wanted: Collection[str], *, new_source: bool
) -> AsyncGenerator[list[ProcessPart]]:
    """Yield the parts of a namespace, once the servers answer and have what it needs."""
    async with AsyncExitStack() as stack:
        yield await _entered(settings, client, wanted, stack, new_source=new_source)


async def _entered(
    settings: Settings,
    client: MongoClient,
    wanted: Collection[str],
    stack: AsyncExitStack,
    *,
    new_source: bool,
) -> list[ProcessPart]:
    stages, topics = set(wanted) & set(pipeline.NAMES), topics_check(settings, client)
    needs = (need for need in NEEDS if need.concerns(wanted) and not (new_source and need is SOURCE))
    await all_of(*(need.demand(settings, client) for need in needs))
    backup = RestoredBackup(Installation(settings, client[settings.mongodb.database]))

    async def restored() -> bool:
        await topics.look()
        await heed_versions(client[settings.mongodb.database], settings.names, KNOWN_EVENTS)
        return set(wanted) != {LAG} and await backup.found()

    if await until_there(
        restored, servers_of(settings), settings.run.start_seconds, SERVERS_HINT
    ):  # nothing else runs until that part has ended; then all parts are made
        first = {pipeline.FORGETTING, pipeline.ATLAS_WRITER} & stages
        return [topics, ForgettingAgain(backup), *await _stages(settings, first, stack)]
    parts: list[ProcessPart] = [topics]
    if TAILER in wanted:
        parts.append(await stack.enter_async_context(tailing(settings, new_source=new_source)))
    if JANITOR in wanted:
        parts += [housekeeping(settings, client), vector_copies(settings, client)]
    if LAG in wanted:
        parts.append(lag_export(settings, client))
    parts += await _stages(settings, stages, stack)
    if WRITER in wanted:
        parts.append(standby_writers(settings, client))
    return parts


async def _stages(settings: Settings, names: Collection[str], stack: AsyncExitStack) -> Sequence[ProcessPart]:
    """Return the stages of these names, once their servers answer."""
    if not names:
        return []
    return await until_there(
        lambda: stack.enter_async_context(stage_parts(settings, names)),
        servers_of(settings),
        settings.run.start_seconds,
        SERVERS_HINT,
    )


def _mongodb(settings: Settings) -> str:
    return f"MongoDB at {hosts(endpoints(settings).mongodb)}"


def _wanted(names: Sequence[str]) -> set[str]:
    unknown = sorted(set(names) - set(PARTS))
    if unknown:
        raise EdenError(f"there is no {', '.join(unknown)} to run", f"There are: {', '.join(PARTS)}.")
    return set(names or PARTS)


def letters_of(settings: Settings, client: MongoClient) -> DeadLetters:
    """The dead letters of a placement."""
    database, names = client[settings.mongodb.database], settings.names
    return DeadLetters(database, names, MongoForgetting(database, names), settings.placement)


def housekeeping(settings: Settings, client: MongoClient) -> Leased:
    """The janitor: removes what every consumer passed a week ago."""
    database, names = client[settings.mongodb.database], settings.names
    servers = endpoints(settings)
    kafka, admin = client_kwargs(settings.kafka, servers.kafka), admin_config(settings.kafka, servers.kafka)
    lease = MongoLease(database[names["leases"]], JANITOR, JANITOR_LEASE_SECONDS)
    outcomes, marks = MongoLedger(database, names), ConsumptionMarks(database, names)
    texts = WindowTextRetention(database, names, letters_of(settings, client).is_settled)
    bounds = LedgerBounds(database, names, timedelta(days=settings.retention.answer_days))
    lowered = LoweredTopics(database, names, admin)
    janitor = Janitor(kafka, admin, consumption(settings), marks, outcomes, _now, texts, bounds, lowered)
    accesses = MongoAccesses(database, names)

    async def one_round() -> None:
        await accesses.remove_forgotten()
        await janitor.round()

    return Leased(JANITOR, lease, one_round, ROUND_SECONDS, PAUSE_SECONDS)


def vector_copies(settings: Settings, client: MongoClient) -> Leased:
    """Keeps the vectors of large scopes as blocks, which first searches read."""
    database, names = client[settings.mongodb.database], settings.names
    lease = MongoLease(database[names["leases"]], VECTORS, JANITOR_LEASE_SECONDS)
    copies = VectorCopies(database, names, adapter=settings.search.adapter)
    return Leased(
        VECTORS, lease, copies.round, stored_vector_store.ROUND_SECONDS, stored_vector_store.PAUSE_SECONDS
    )


def lag_export(settings: Settings, client: MongoClient) -> LagExport:
    """Lag of all groups, and the state of memory, as metrics."""
    kafka = client_kwargs(settings.kafka, endpoints(settings).kafka)
    topics = load_topics(settings.kafka, settings.placement)
    declared = topics.readers()
    database, names = client[settings.mongodb.database], settings.names
    counts = partial(count_documents, database, names)
    programs = [settings.placement.group(program) for program in topics.file.programs]

    async def spent_now() -> Mapping[tuple[str, str, str, str], float]:
        return await spent(database, names, await server_time(client))

    census = Census(
        counts,
        partial(scopes_due, database, names, MongoStreams(database, names), settings.limits.formation()),
        spent_now,
        partial(letters_of(settings, client).count, programs),
    )
    lease = MongoLease(database[names["leases"]], LAG, LAG_LEASE_SECONDS)
    formed = FormationRequested, FactsExtracted, FactsProposed, FactChanged, ReflectionFormed
    memories = partial(count_documents, database, names, ("facts", "reflections"))
    first = FirstMemories(declared, [topics.topic_of(event) for event in formed], memories)
    return LagExport(
        lease, lambda: LagReader(kafka, [topic.name for topic in topics], declared), census, first
    )


def consumption(settings: Settings) -> Consumption:
    """Who has to be past what before it is removed: as topics.yaml declares it, for what exists already."""
    topics = load_topics(settings.kafka, settings.placement)
    programs, declared = topics.file.programs, topics.file.topics
    readers = {
        topics.name(short): [topics.group(group) for group in topic.groups if not programs[group].later]
        for short, topic in declared.items()
        if topic.kept == UNTIL_CONSUMED
    }
    deciding = [name for name in pipeline.NAMES if name not in pipeline.KEEP_THEIR_OWN_STATE]
    stages = {name: (topics.group(name), topics.read_by(name)) for name in deciding}
    return Consumption(readers, stages, (topics.group(WRITER), topics.read_by(WRITER)))


def _now() -> datetime:
    return datetime.now(UTC)
