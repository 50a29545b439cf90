"""Private servers for a fault run: Kafka, and one mongod or a replica set of three; every call may fail them."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from eden_memory.local.local_kafka import LocalKafka
from eden_memory.local.mongo import LocalMongo
from tests.replica_set import LocalReplicaSet


@dataclass(frozen=True)
class Servers:
    """What a run may strike; `members` has one entry unless it is a replica set."""

    kafka: LocalKafka
    mongo: LocalMongo | LocalReplicaSet

    @property
    def is_set(self) -> bool:
        """Whether there are several mongods."""
        return isinstance(self.mongo, LocalReplicaSet)

    def member(self, chance: random.Random) -> LocalMongo:
        """The mongod, or any of them."""
        return chance.choice(self.mongo.members) if isinstance(self.mongo, LocalReplicaSet) else self.mongo

    def primary(self) -> LocalMongo:
        """The mongod that takes writes now."""
        return self.mongo.await_primary() if isinstance(self.mongo, LocalReplicaSet) else self.mongo

    def revive(self) -> None:
        """Start again what does not run, and wait until it serves."""
        self.mongo.start()
        self.kafka.start()


@asynccontextmanager
async def private_servers(
    folder: Path, jars: Path, *, replica_set: bool, properties: Mapping[str, str] | None = None
) -> AsyncGenerator[Servers]:
    """Both for the block, started side by side; `properties` are Kafka's own."""
    mongo = LocalReplicaSet(folder / "mongodb") if replica_set else LocalMongo(folder / "mongodb")
    servers = Servers(LocalKafka(folder / "kafka", jars_folder=jars, properties=properties), mongo)
    try:
        await asyncio.gather(asyncio.to_thread(servers.mongo.start), asyncio.to_thread(servers.kafka.start))
        yield servers
    finally:
        await asyncio.gather(asyncio.to_thread(servers.mongo.stop), asyncio.to_thread(servers.kafka.stop))
