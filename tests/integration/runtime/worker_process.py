"""A worker in a process of its own, to be killed: `python -m … <mongodb> <kafka> <namespace> <calls file>`.

It writes a line per handler call, the question and the time, to the calls file; its texts are random, so that two
outcomes of one question can never look alike.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr

from eden_memory.domain.stage import Delivery, Outgoing
from eden_memory.mongo.client import connect
from eden_memory.mongo.controls import MongoControls, MongoGroupNotes
from eden_memory.mongo.outcomes import MongoLedger
from eden_memory.runtime.kafka import client_kwargs
from eden_memory.runtime.stages.publishing import Publisher, new_producer
from eden_memory.runtime.stages.worker import Worker
from eden_memory.settings import KafkaSettings, MongoSettings, Settings
from tests.integration.runtime.harness import Bench, answered, stage


async def main(mongodb: str, kafka: str, name: str, calls: Path, seconds: float) -> None:
    settings = Settings(
        mongodb=MongoSettings(uri=SecretStr(mongodb), database=name),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(bootstrap=kafka, topic_prefix=f"{name}.", group_prefix=f"{name}."),  # pyright: ignore[reportCallIssue]
    )
    client = client_kwargs(settings.kafka, kafka)
    mongo = connect(settings.mongodb, mongodb)
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

        async def slow(deliveries: Sequence[Delivery]) -> list[Outgoing]:
            (one,) = deliveries
            lines.write(f"{one.id} {time.monotonic()}\n")
            await asyncio.sleep(seconds)
            return [answered(one, uuid4().hex)]

        worker = Worker(stage(slow), bench.around())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()
        await publisher.stop()
        await mongo.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]), float(sys.argv[5])))
