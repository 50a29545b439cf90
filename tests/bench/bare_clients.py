"""What nobody could leave out of formation: as many calls, commands and records, by the clients alone.

`python -m tests.bench.bare_clients`: work as JSON on standard input, CPU seconds of it as JSON on standard output.
Waiting (`getMore` of streams, polls, heartbeats) is left out, and so is everything between the clients.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import httpx2
import openai
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from pymongo import InsertOne, ReplaceOne
from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.mongo.client import connect
from eden_memory.stages.process import run

CALLS_AT_ONCE, COMMANDS_AT_ONCE, BATCH = 64, 8, 50
DOCUMENT = {"text": "x" * 600, "numbers": list(range(20))}
"""About a kilobyte."""
HEADERS = [(f"ce_{number}", b"x" * 30) for number in range(9)]
WARMING = 20


@dataclass(frozen=True, slots=True)
class Work:
    """Counts of one run, and where the servers are."""

    mongodb_uri: str
    database: str
    kafka: dict[str, Any]
    """Connection arguments of aiokafka."""
    topic: str
    """One that may be written to: the run is over."""
    openai_url: str
    chats: int
    prompt_characters: int
    """Of one call, on average."""
    embeddings: int
    texts: int
    """Of one call, on average."""
    commands: dict[str, int]
    """By name: find, aggregate, insert, update, findAndModify, commitTransaction."""
    documents: dict[str, int]
    """How many were returned, inserted, updated in all."""
    records: int
    record_bytes: int
    """Of one record, on average."""
    deliveries: int
    """Records as often as groups read them."""


async def measured(work: Work) -> dict[str, float]:
    """CPU seconds of each client."""
    return {
        "provider": await _provider(work),
        "mongodb": await _mongodb(work),
        "kafka": await _kafka(work),
    }


async def _provider(work: Work) -> float:
    async with httpx2.AsyncClient() as pool:
        client = openai.AsyncOpenAI(
            api_key="benchmark", base_url=work.openai_url, max_retries=0, http_client=pool
        )

        async def post(path: str, **body: Any) -> None:
            response = await client.post(path, cast_to=httpx2.Response, body=body)
            json.loads(response.content)

        async def chat() -> None:
            messages = [{"role": "user", "content": "x " * (work.prompt_characters // 2)}]
            await post("/chat/completions", model="test-model", messages=messages)

        async def embed() -> None:
            texts = [f"text {number} " + "x" * 100 for number in range(work.texts)]
            await post("/embeddings", model="test-embedding", input=texts, encoding_format="base64")

        await _times(WARMING, CALLS_AT_ONCE, chat)
        began = time.process_time()
        await _times(work.chats, CALLS_AT_ONCE, chat)
        await _times(work.embeddings, CALLS_AT_ONCE, embed)
        return time.process_time() - began


async def _mongodb(work: Work) -> float:
    async with connect(work.mongodb_uri) as client:
        found = client[work.database]["bare"]
        await found.drop()
        await found.insert_many([{"_id": number, **DOCUMENT} for number in range(1_000)])
        commands, numbers = _commands(work, found), dict(work.commands)
        numbers["update"] = max(0, numbers.get("update", 0) - numbers.get("commitTransaction", 0))
        await _times(WARMING, COMMANDS_AT_ONCE, commands["find"])
        began = time.process_time()
        for name, command in commands.items():
            await _times(numbers.get(name, 0), COMMANDS_AT_ONCE, command)
        return time.process_time() - began


def _commands(
    work: Work, found: AsyncCollection[dict[str, Any]]
) -> dict[str, Callable[[], Awaitable[object]]]:
    """One of each kind, over as many documents as it had in the run."""
    kinds = (("returned", "find"), ("inserted", "insert"), ("updated", "update"))
    each = {
        name: max(1, round(work.documents.get(what, 0) / max(work.commands.get(name, 0), 1)))
        for what, name in kinds
    }
    ids = list(range(each["find"]))

    async def transaction() -> None:
        """One of the updates, and the commit."""
        async with found.database.client.start_session() as session, await session.start_transaction():
            await found.update_one({"_id": -1}, {"$set": {"one": 1}}, session=session)

    return {
        "find": lambda: found.find({"_id": {"$in": ids}}).to_list(),
        "aggregate": lambda: _aggregated(found),
        "insert": lambda: found.bulk_write([InsertOne(dict(DOCUMENT)) for _ in range(each["insert"])]),
        "update": lambda: found.bulk_write(
            [ReplaceOne({"_id": number}, DOCUMENT) for number in range(each["update"])], ordered=False
        ),
        "findAndModify": lambda: found.find_one_and_update({"_id": 1}, {"$set": {"one": 1}}),
        "commitTransaction": transaction,
    }


async def _aggregated(found: AsyncCollection[dict[str, Any]]) -> None:
    await (await found.aggregate([{"$match": {"_id": 1}}])).to_list()


async def _kafka(work: Work) -> float:
    producer: Any = AIOKafkaProducer(
        **work.kafka, acks="all", enable_idempotence=True, compression_type="zstd", max_batch_size=1_000_000
    )
    consumer: Any = AIOKafkaConsumer(**work.kafka, auto_offset_reset="none", enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    try:
        tp = TopicPartition(work.topic, 0)
        consumer.assign([tp])
        first = (await consumer.end_offsets([tp]))[tp]
        value = b"x" * work.record_bytes
        began = time.process_time()
        for start in range(0, work.records, BATCH):
            batch = producer.create_batch()
            for number in range(min(BATCH, work.records - start)):
                batch.append(timestamp=None, key=b"%d" % number, value=value, headers=HEADERS)
            batch.close()
            await (await producer.send_batch(batch, work.topic, partition=0))
        left = work.deliveries
        while left > 0:
            consumer.seek(tp, first)
            left -= await _read(consumer, min(left, work.records))
        return time.process_time() - began
    finally:
        await consumer.stop()
        await producer.stop()


async def _read(consumer: Any, wanted: int) -> int:
    got = 0
    while got < wanted:
        for records in (await consumer.getmany(timeout_ms=1_000, max_records=500)).values():
            got += len(records)
    return got


async def _times(number: int, at_once: int, what: Callable[[], Awaitable[object]]) -> None:
    left = iter(range(number))

    async def some() -> None:
        for _ in left:
            await what()

    await asyncio.gather(*(some() for _ in range(min(at_once, number))))


async def bare_cpu(work: Work) -> dict[str, float]:
    """CPU seconds of each client in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.bench.bare_clients",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate(json.dumps(asdict(work)).encode())
    if process.returncode:
        raise SystemExit("the bare clients failed")
    return json.loads(said)


if __name__ == "__main__":
    print(json.dumps(run(measured(Work(**json.load(sys.stdin))))))  # noqa: T201 - for the bench
