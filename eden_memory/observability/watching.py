"""Follow memory in MongoDB, calls and lag in Kafka, for people who watch a running system."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from aiokafka.errors import KafkaError
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.group_admin import GroupAdmin
from eden_memory.kafka.lag import lags
from eden_memory.kafka.topic_reading import TopicOffsets, reading
from eden_memory.kafka.topics import load_topics
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.names import Names
from eden_memory.observability.formation_progress import FormationProgress, WatchedChange
from eden_memory.processors import pipeline
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ModelCalled, decode
from eden_memory.settings import Settings
from eden_memory.task_ending import end

LAG_SECONDS = 1.0


@asynccontextmanager
async def watching(settings: Settings, progress: FormationProgress) -> AsyncGenerator[None]:
    """Keep `progress` up to date for the block; what goes wrong meanwhile ends the block with it."""
    servers, topics = endpoints(settings), load_topics(settings.kafka, settings.placement)
    kafka = client_kwargs(settings.kafka, servers.kafka)
    groups = {topics.group(name): topics.read_by(name) for name in pipeline.NAMES}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(settings.mongodb, servers.mongodb))
        database, names = client[settings.mongodb.database], settings.names
        memory = await stack.enter_async_context(memory_feed(database, names))
        calls = await stack.enter_async_context(usage_feed(kafka, topics.topic_of(ModelCalled)))
        read = sorted({topic for topics_read in groups.values() for topic in topics_read})
        offsets = await stack.enter_async_context(TopicOffsets(kafka, read))
        admin = await stack.enter_async_context(GroupAdmin(kafka))
        messages = database[names["messages"]]
        before = await messages.estimated_document_count()

        async def notice() -> None:
            async for change in memory:
                progress.notice(change)

        async def count_calls() -> None:
            async for call in calls:
                progress.called(call)

        async def count() -> None:
            while True:
                progress.messages = await messages.estimated_document_count() - before
                with suppress(KafkaError):  # a broker that has just started has no coordinator for groups yet
                    found = await lags(offsets, admin, groups)
                    progress.lag = {
                        name.removeprefix(topics.group_prefix): behind for name, behind in found.items()
                    }
                await asyncio.sleep(LAG_SECONDS)

        async with _running(notice(), count_calls(), count()):
            yield


@asynccontextmanager
async def _running(*work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine) for coroutine in work]
        try:
            yield
        finally:
            await end(tasks)


COLLECTIONS = ("windows", "facts", "reflections", "consolidated")
VERSIONED = ("facts", "consolidated")


@asynccontextmanager
async def memory_feed(
    database: AsyncDatabase[dict[str, Any]], names: Names
) -> AsyncGenerator[AsyncGenerator[WatchedChange]]:
    """Yield what is new from the moment that the block is entered; vectors and histories are left out.

    New is a document, and a new version of a fact or blob: that a blob absorbs a reflection from before is not.
    """
    kinds = {names[name]: name for name in COLLECTIONS}
    pipeline: list[dict[str, Any]] = [
        {
            "$match": {
                "$or": [
                    {"ns.coll": {"$in": list(kinds)}, "operationType": "insert"},
                    {"ns.coll": {"$in": [names[name] for name in VERSIONED]}, "operationType": "replace"},
                ]
            }
        },
        {"$unset": ["fullDocument.embedding", "fullDocument.history", "updateDescription"]},
    ]
    async with await database.watch(pipeline, full_document="updateLookup") as stream:

        async def noticed() -> AsyncGenerator[WatchedChange]:
            async for change in stream:
                if change.get("fullDocument") is not None:
                    yield WatchedChange(kinds[change["ns"]["coll"]], change["fullDocument"])

        yield noticed()


@asynccontextmanager
async def usage_feed(kafka: KafkaArguments, topic: str) -> AsyncGenerator[AsyncGenerator[ModelCalled]]:
    """The calls published from the moment that the block is entered; an EdenError where there is no such topic."""
    async with reading(kafka, [topic]) as reader:
        reader.seek(reader.ends)
        yield _calls(reader.consumer)


async def _calls(consumer: Any) -> AsyncGenerator[ModelCalled]:
    seen: set[str] = set()
    async for record in consumer:
        envelope = Envelope.of_headers(record.headers)
        event = decode(envelope.name, envelope.version, record.value)
        if isinstance(event, ModelCalled) and event.call_id not in seen:
            seen.add(event.call_id)
            yield event
