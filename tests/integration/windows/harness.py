"""formation-trigger on real servers: records put into `chat.messages`, windows read from `memory.formations`."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from eden_memory.assembly.stage_parts import stage_parts
from eden_memory.processors.pipeline import FORMATION_TRIGGER
from eden_memory.schemas.events import Watermark
from eden_memory.settings import Settings
from eden_memory.stages.stage import Delivery
from eden_memory.stages.worker import Worker
from tests.integration.stages_on_servers import PARTITIONS, OnServers


class Kit(OnServers):
    """Both sides of the stage."""

    def partitions_of(self, one: Delivery) -> list[int]:
        """A session's in its partition, what has no session in all of them."""
        if isinstance(one.event, Watermark):
            return [one.event.partition]
        if one.event is None and one.envelope.scope is None:
            return list(range(PARTITIONS))
        return super().partitions_of(one)

    @asynccontextmanager
    async def running(self, settings: Settings | None = None) -> AsyncGenerator[Worker]:
        """The stage, in this process, for the block; what it raises is raised."""
        async with stage_parts(settings or self.settings, {FORMATION_TRIGGER}) as parts:
            tasks = [asyncio.create_task(part.run()) for part in parts]
            try:
                yield next(part for part in parts if isinstance(part, Worker))
            finally:
                for part in parts:
                    part.stop()
                await asyncio.gather(*tasks)

    async def state(self, session: str) -> dict[str, Any]:
        """A session's document."""
        return await self.database["memory_sessions"].find_one({"_id": session}) or {}

    async def waiting(self) -> set[str]:
        """The messages that wait for a window."""
        found = self.database["memory_messages"].find({"formation_id": None, "place": {"$ne": None}})
        return {row["_id"] async for row in found}

    async def message(self, name: str) -> dict[str, Any]:
        """A message's document."""
        return await self.database["memory_messages"].find_one({"_id": name}) or {}


def changed(settings: Settings, **groups: dict[str, Any]) -> Settings:
    """The settings with some of some groups changed."""
    return settings.model_copy(
        update={name: getattr(settings, name).model_copy(update=fields) for name, fields in groups.items()}
    )
