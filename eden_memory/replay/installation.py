"""The servers of one command, and the settings of its namespaces.

A command that asks MongoDB alone runs without the extra `run`: what needs Kafka's clients imports them when used.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.local.servers import endpoints, mongodb_endpoint
from eden_memory.mongo.client import connect
from eden_memory.names import ORIGINAL, Placement, collections_of
from eden_memory.replay.namespaces.namespace_store import (
    MongoLive,
    MongoNamespaces,
    checked,
    live_settings,
    placement_of,
    unknown,
)
from eden_memory.schemas.documents import Namespace
from eden_memory.settings import Settings
from eden_memory.stages.controls import MongoGroupNotes

if TYPE_CHECKING:
    from eden_memory.kafka import KafkaArguments
    from eden_memory.kafka.groups import GroupAdmin
    from eden_memory.kafka.topic_reading import Offsets
    from eden_memory.kafka.topics import Topics
    from eden_memory.stages.dead_letter_store import DeadLetters

Database = AsyncDatabase[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Installation:
    """The servers of one command; `settings` are those of the namespace that was live when it began."""

    settings: Settings
    database: Database

    @property
    def source(self) -> Database:
        """The application's database, with `memory_inbox`."""
        return self.database.client[self.settings.source_database]

    @property
    def namespaces(self) -> MongoNamespaces:
        """The namespaces, live or not."""
        return MongoNamespaces(self.database, self.settings.mongodb.prefix)

    @property
    def live(self) -> MongoLive:
        """The pointer to the live namespace."""
        return MongoLive(self.database, self.settings.mongodb.prefix)

    @property
    def letters(self) -> "DeadLetters":
        """The dead letters of the namespace's programs."""
        from eden_memory.forgetting.mark_store import MongoForgetting  # noqa: PLC0415
        from eden_memory.stages.dead_letter_store import DeadLetters  # noqa: PLC0415

        names = self.settings.names
        return DeadLetters(
            self.database, names, MongoForgetting(self.database, names), self.settings.placement
        )

    @property
    def prefix(self) -> str:
        """The prefix of the live memory's collections."""
        return self.memory_prefix(self.settings.placement)

    def memory_prefix(self, placement: Placement) -> str:
        """Return the prefix of a memory's collections."""
        return self.settings.mongodb.prefix + collections_of(placement.memory)

    def topics(self, placement: Placement) -> "Topics":
        """Return the topics of a namespace."""
        from eden_memory.kafka.topics import load_topics  # noqa: PLC0415

        return load_topics(self.settings.kafka, placement)

    @property
    def kafka(self) -> "KafkaArguments":
        """The connection arguments of aiokafka."""
        from eden_memory.kafka.connection import client_kwargs  # noqa: PLC0415

        return client_kwargs(self.settings.kafka, endpoints(self.settings).kafka)

    @property
    def admin(self) -> dict[str, Any]:
        """The connection arguments of librdkafka."""
        from eden_memory.kafka.connection import admin_config  # noqa: PLC0415

        return admin_config(self.settings.kafka, endpoints(self.settings).kafka)

    @property
    def groups(self) -> "GroupAdmin":
        """The consumer groups of Kafka, until the block is left."""
        from eden_memory.kafka.groups import GroupAdmin  # noqa: PLC0415

        return GroupAdmin(self.kafka)

    async def set_group(
        self, groups: "GroupAdmin", group: str, offsets: "Offsets", *, anew: bool = False
    ) -> None:
        """Set a group that nobody is in as `GroupAdmin.commit`, and note it, as its stage would (Stage.noted)."""
        places = {(tp.topic, tp.partition): offset for tp, offset in offsets.items()}
        await MongoGroupNotes(self.database, self.settings.names).note_reached(group, places, {})
        await groups.commit(group, offsets, anew=anew)

    async def named(self, name: str) -> Namespace:
        """Return the namespace; EdenError if there is none of this name."""
        found = await self.namespaces.get(name)
        if found is None:
            raise unknown(name)
        return found

    async def forget_group(self, group: str) -> None:
        """Remove a consumer group and the notes about it; EdenError while it has members."""
        async with self.groups as groups:
            await groups.remove(group)
        await MongoGroupNotes(self.database, self.settings.names).forget(group)


@asynccontextmanager
async def installation(settings: Settings, *, restored_too: bool = False) -> AsyncGenerator[Installation]:
    """Connect to MongoDB, and disconnect at the end; MemoryRestored as `live_settings`."""
    async with connect(mongodb_endpoint(settings)) as client:
        database = client[settings.mongodb.database]
        yield Installation(await live_settings(settings, database, restored_too=restored_too), database)


async def settings_of(settings: Settings, database: Database, name: str | None) -> Settings:
    """Return the settings of a namespace, or of the live one for None; EdenError if there is none of this name."""
    if name is None:
        return await live_settings(settings, database)
    first = name == ORIGINAL
    found = await MongoNamespaces(database, settings.mongodb.prefix).get(name if first else checked(name))
    if (found is None and not first) or (found is not None and found.state == "dropped"):
        raise unknown(name)
    return settings.placed(Placement() if found is None else placement_of(found))
