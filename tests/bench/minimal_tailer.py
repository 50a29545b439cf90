"""The least that a tailer in Python can be: change stream → JSON → Kafka, without any guarantee.

`python -m tests.bench.minimal_tailer MONGODB_URI DATABASE BOOTSTRAP TOPIC [TOKEN]`: follows the collection `messages`
until SIGTERM. No position is saved, nothing is confirmed or fenced, nothing is mapped but the session.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from typing import Any

import orjson
import uvloop
from aiokafka import AIOKafkaProducer
from bson import CodecOptions, decode  # pyright: ignore[reportUnknownVariableType]
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient

from eden_memory.stages.publishing import partition_for

RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
BATCH, BYTES = 4_000, 900_000


async def batches(database: Any, token: str | None) -> AsyncGenerator[Any]:
    """The server's batches of events, as they are."""
    stage = {"fullDocument": "updateLookup", **({"resumeAfter": {"_data": token}} if token else {})}
    command: dict[str, Any] = {"aggregate": "messages", "pipeline": [{"$changeStream": stage}]}
    reply = await database.command({**command, "cursor": {"batchSize": BATCH}}, codec_options=RAW)
    while True:
        cursor = reply["cursor"]
        yield cursor["firstBatch" if "firstBatch" in cursor else "nextBatch"]
        more = {"getMore": cursor["id"], "collection": "messages", "batchSize": BATCH, "maxTimeMS": 1_000}
        reply = await database.command(more, codec_options=RAW)


async def publish(producer: Any, topic: str, count: int, events: Any) -> None:
    """One Kafka batch for each partition."""
    builders: dict[int, Any] = {}
    for event in events:
        document = decode(event.raw)["fullDocument"]
        partition = partition_for(document["session_id"].encode(), count)
        builder = builders.setdefault(partition, producer.create_batch())
        fields: dict[str, Any] = {
            "key": f"s.{document['_id']}".encode(),
            "value": orjson.dumps(document, default=str),
            "timestamp": None,
        }
        if builder.append(**fields) is None:
            await producer.send_batch(builder, topic, partition=partition)
            builder = builders[partition] = producer.create_batch()
            builder.append(**fields)
    for partition, builder in builders.items():
        await producer.send_batch(builder, topic, partition=partition)


async def follow(uri: str, database: str, bootstrap: str, topic: str, token: str | None = None) -> None:
    """Until cancelled."""
    client: Any = AIOKafkaProducer(bootstrap_servers=bootstrap, max_batch_size=BYTES, linger_ms=0)
    async with AsyncMongoClient[dict[str, Any]](uri) as mongo, client as producer:
        count = len(await producer.partitions_for(topic))
        async for events in batches(mongo[database], token):
            if len(events):
                await publish(producer, topic, count, events)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(follow(*sys.argv[1:]))
