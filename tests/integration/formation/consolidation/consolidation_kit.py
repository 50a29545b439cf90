"""consolidation beside the writer, on real servers, and a model that joins what it is shown."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from eden_memory.directory.stream_store import MongoStreams
from eden_memory.forgetting.mark_store import MongoForgetting
from eden_memory.formation.decided_store import MongoDecided
from eden_memory.formation.prompt_material import ConsolidationMaterial
from eden_memory.formation.prompts import Fence
from eden_memory.memory.memory_store import MongoMemoryStore
from eden_memory.memory.snapshot_store import MongoSnapshots
from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.processors import pipeline
from eden_memory.processors.atlas_writer import AtlasWriter
from eden_memory.processors.consolidation import Consolidation
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ReflectionFormed
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.stages.publishing import Publisher
from eden_memory.stages.stage import Delivery
from eden_memory.stages.worker import Worker
from tests.integration.stages_on_servers import Mongo, OnServers, running
from tests.names import NAMES

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
BOTH = (pipeline.CONSOLIDATION, pipeline.ATLAS_WRITER)


def user(number: int) -> Scope:
    return Scope.of_user("s.a", f"i.{number}")


def reflection(scope: Scope, number: int) -> Delivery:
    """The `number`-th of a scope, a minute after the one before."""
    time = NOON + timedelta(minutes=number)
    source = SourceMessage(message_id=f"s.m{number}", version=f"{number:016x}", session_id="s.x", time=time)
    event = ReflectionFormed(
        cause="c",
        reflection_id=f"{scope.key}/{number}".replace(":", "/"),
        scope=scope,
        text=f"insight {number}",
        position=1,
        session_id="s.x",
        origin="formed",
        sources=(source,),
        formed_at=time,
        said_at=time,
        asked_by=None,
    )
    envelope = Envelope(event.reflection_id, event.NAME, 1, "test", time, event.subject(), scope.key)
    return Delivery(envelope, event, "memory.reflections", event.key())


class Model:
    """Joins what it is shown; keeps its answers as the answer store does."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[Asking, str]] = {}
        self.paid: list[str] = []
        self.fails: Callable[[Asking], Exception | None] = lambda asking: None

    async def earlier(self, unit: str) -> Earlier | None:
        found = self.answers.get(unit)
        return None if found is None else Earlier(found[0].shown, exhausted=False)

    async def ask(self, prompt: Prompt, answer: type[A], asking: Asking, check: object = None) -> Answered[A]:
        if asking.unit not in self.answers:
            if (failure := self.fails(asking)) is not None:
                raise failure
            self.paid.append(asking.unit)
            material = cast(ConsolidationMaterial, prompt.material)
            text = " ".join(filter(None, (material.blob, *(one.text for one in material.buffer))))
            self.answers[asking.unit] = asking, text
        return Answered(cast(A, ConsolidatedText(text=self.answers[asking.unit][1])), None)


async def free(_: Sequence[str], __: str | None) -> int:
    """Nobody pays."""
    return 0


class Kit(OnServers):
    """Both stages, and what goes in and comes out."""

    def __init__(self, settings: Settings, mongo: Mongo, publisher: Publisher) -> None:
        super().__init__(settings, mongo, publisher)
        self.model = Model()
        self.streams = MongoStreams(self.database, NAMES)

    def worker(self, name: str) -> Worker:
        forgetting = MongoForgetting(self.database, NAMES)
        consolidation = Consolidation(
            MongoSnapshots(self.database, NAMES),
            MongoDecided(self.database, NAMES),
            self.streams,
            self.model,
            forgetting,
            Fence(b"0" * 16),
            "v1",
            free,
        )
        writer = AtlasWriter(MongoMemoryStore(self.database, NAMES), forgetting)
        handlers = {pipeline.CONSOLIDATION: consolidation, pipeline.ATLAS_WRITER: writer}
        (stage,) = pipeline.stages({name: handlers[name]})
        return self.worker_of(stage)

    @asynccontextmanager
    async def running(self, *names: str) -> AsyncGenerator[None]:
        async with running([self.worker(one) for one in names], 10.0):
            yield

    async def snapshot(self, scope: Scope) -> dict[str, Any]:
        return await self.database["memory_snapshots"].find_one({"_id": scope.key}) or {}

    async def holds(self, condition: Callable[[], Awaitable[object]]) -> None:
        """Wait until it does."""
        async with asyncio.timeout(60):
            while not await condition():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def until(self, scope: Scope, **fields: Any) -> dict[str, Any]:
        """The scope's snapshot, once it has these values."""
        async with asyncio.timeout(60):
            while True:
                found = await self.snapshot(scope)
                if all(found.get(name) == value for name, value in fields.items()):
                    return found
                await asyncio.sleep(0.02)
