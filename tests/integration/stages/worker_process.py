"""A worker in a process of its own, to be killed: `… <mongodb> <kafka> <namespace> <calls> <seconds> [<ends>]`.

It writes a line per handler call, the question, the time and its pid, to the calls file; its texts are random, so
that two outcomes of one question can never look alike. A call takes so many seconds; where it is said how many of
them end by themselves, the later ones last until there is a file of the calls file's name and `.let`.
"""

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr

from eden_memory.kafka.connection import client_kwargs
from eden_memory.mongo.client import connect
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from eden_memory.stages.controls import MongoControls, MongoGroupNotes
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.stages.publishing import Publisher, new_producer
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Worker
from eden_memory.tasks import claim_process
from tests.integration.stages.harness import Bench, answered, stage
from tests.quick_sessions import quicken

STOP_SECONDS = 600.0
"""Told to stop, it lets its calls end, however long a test holds them."""


async def main(mongodb: str, kafka: str, name: str, calls: Path, seconds: float, ends: float) -> None:
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=f"{name}.", group_prefix=f"{name}."),  # pyright: ignore[reportCallIssue]
    )
    client = client_kwargs(settings.kafka, kafka)
    mongo = connect(mongodb)
    publisher = Publisher(lambda: new_producer(client))
    await publisher.start()
    database, prefix = mongo[name], settings.names
    bench = Bench(
        settings,
        mongo,
        client,
        publisher,
        MongoLedger(database, prefix),
        MongoControls(database, prefix),
        MongoGroupNotes(database, prefix),
    )
    with calls.open("a", buffering=1) as lines:
        numbers = itertools.count()

        async def slow(deliveries: Sequence[Delivery]) -> list[Emitted]:
            (one,) = deliveries
            lines.write(f"{one.id} {time.monotonic()} {os.getpid()}\n")
            await (asyncio.sleep(seconds) if next(numbers) < ends else _let(calls.with_suffix(".let")))
            return [answered(one, uuid4().hex)]

        worker = Worker(stage(slow), bench.around())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run(STOP_SECONDS)
        await publisher.stop()
        await mongo.close()


async def _let(file: Path) -> None:
    while not file.exists():  # noqa: ASYNC110, ASYNC240 - another process makes it
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    claim_process()
    quicken()
    _, mongodb, kafka, name, calls, seconds, *ends = sys.argv
    asyncio.run(main(mongodb, kafka, name, Path(calls), float(seconds), float(*ends or ["inf"])))
