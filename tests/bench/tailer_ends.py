"""The two ends of a latency measurement, each in a process of its own, timed by the machine's one clock.

`python -m tests.bench.tailer_ends`: a job as JSON on standard input, a line "ready", then {key: time} as JSON.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer
from pymongo import AsyncMongoClient

from tests.bench.chat_load import messages

COMMAND = (sys.executable, "-W", "ignore", "-m", "tests.bench.tailer_ends")
LONGEST_SECONDS = 60.0


@dataclass(frozen=True)
class Load:
    """Write messages at a steady rate."""

    uri: str
    database: str
    marker: str
    rate: int
    count: int

    async def run(self) -> dict[str, float]:
        """When each insert was called."""
        written: dict[str, float] = {}
        async with AsyncMongoClient[dict[str, Any]](self.uri) as mongo:
            collection = mongo[self.database]["messages"]
            await collection.find_one()
            ready()
            began, writes = time.perf_counter(), list[Any]()
            for number, document in enumerate(messages(self.count, seed=2)):
                document["_id"] = f"{self.marker}-{number}"
                await asyncio.sleep(max(began + number / self.rate - time.perf_counter(), 0))
                written[f"s.{document['_id']}"] = time.perf_counter()
                writes.append(asyncio.ensure_future(collection.insert_one(document)))
            await asyncio.gather(*writes)
        return written


@dataclass(frozen=True)
class Read:
    """Read a topic from its end until all messages of a marker have come."""

    bootstrap: str
    topic: str
    marker: str
    isolation: str
    count: int

    async def run(self) -> dict[str, float]:
        """When each record was in this process's hands."""
        arrived: dict[str, float] = {}
        consumer: Any = AIOKafkaConsumer(
            self.topic, bootstrap_servers=self.bootstrap, isolation_level=self.isolation
        )
        async with consumer:
            await consumer.seek_to_end()
            await asyncio.gather(*(consumer.position(place) for place in consumer.assignment()))
            ready()
            began, wanted = time.perf_counter(), f"s.{self.marker}-".encode()
            while len(arrived) < self.count and time.perf_counter() < began + LONGEST_SECONDS:
                for batch in (await consumer.getmany(timeout_ms=1_000)).values():
                    now = time.perf_counter()
                    for record in batch:
                        if record.key.startswith(wanted):
                            arrived.setdefault(record.key.decode(), now)
        return arrived


JOBS = {job.__name__: job for job in (Load, Read)}


def ready() -> None:
    """Say that the clients are connected."""
    print("ready", flush=True)  # noqa: T201 - the parent waits for it


class End:
    """One end at work."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, job: Load | Read) -> "End":
        """Start it, and wait until it is ready."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*COMMAND, stdin=pipe, stdout=pipe, limit=1 << 26)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([type(job).__name__, asdict(job)]).encode())
        process.stdin.close()
        assert await process.stdout.readline() == b"ready\n"
        return cls(process)

    async def times(self) -> dict[str, float]:
        """What it has timed, once it is done."""
        said, _ = await self._process.communicate()
        return json.loads(said)


def main() -> None:
    """One end, as a program."""
    name, fields = json.load(sys.stdin)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.stdout.write(json.dumps(runner.run(JOBS[name](**fields).run())))


if __name__ == "__main__":
    main()
