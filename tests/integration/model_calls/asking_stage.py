"""A stage that asks a model and embeds what it said, on real servers, against the model server."""

from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from eden_memory.assembly.model_factory import Models
from eden_memory.formation.prompt_material import ConsolidationMaterial
from eden_memory.models.provider_calls import Tokens
from eden_memory.models.question import Asking, Prompt
from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import ModelsSettings
from eden_memory.stages.handler_run import UsageLog
from eden_memory.stages.stage import Delivery, Emitted, RetryPolicy, Stage
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Bench, answered, stage
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import Serving, serving
from tests.names import NAMES

HASTY = RetryPolicy(first=0.02, cap=0.1, attempts=6)
"""Without anyone who tells an outage from a bad unit, six attempts would be over within half a second."""
MATERIAL = ConsolidationMaterial("user", None, (), None, 50)


def cost(_provider: str, _model: str, tokens: Tokens) -> Decimal | None:
    return Decimal(tokens.input + tokens.output) / 1_000_000


@dataclass
class Kit:
    """Everything a test looks at."""

    runtime: Bench
    server: Serving
    answers: MongoAnswers
    models: Models
    calls: Counter[str] = field(default_factory=Counter[str])
    """Chat requests by unit, as the server saw them."""
    noted: list[ModelCalled] = field(default_factory=list[ModelCalled])
    fails_after: frozenset[str] = frozenset()
    """Units whose handler fails once, after its answer has arrived."""
    without_a_model: frozenset[str] = frozenset()
    _failed: set[str] = field(default_factory=set[str])

    async def handle(self, deliveries: Sequence[Delivery]) -> list[Emitted]:
        """Ask, embed, answer."""
        (one,) = deliveries
        if one.id in self.without_a_model:
            return [answered(one)]
        asking = Asking.about(one, "answering", "facts", "s.a")
        await self.models.language_model.earlier(asking.unit)
        prompt = Prompt("consolidation/1", "Merge within 50 words.", f"- note {one.id}", MATERIAL)
        found = await self.models.language_model.ask(prompt, ConsolidatedText, asking)
        if one.id in self.fails_after and one.id not in self._failed:
            self._failed.add(one.id)
            raise OSError("crashed")
        await self.models.embedder.embed([f"{one.id}: {found.value.text}"], asking)
        return [answered(one, found.value.text)]

    def worker(self, **fields: Any) -> Worker:
        """The stage as a process runs it."""
        made: Stage = stage(self.handle, retry=HASTY, dead_share=1.0, **fields)
        worker = Worker(made, replace(self.runtime.around(), usage=Noted(self)))
        worker.health.probes = RetryPolicy(first=0.02, cap=0.2)
        return worker

    async def dead(self) -> list[str]:
        """Ids of what was given up."""
        found = self.runtime.database["memory_outcomes"].find({"dead": {"$exists": True}})
        return [one["members"][0].removeprefix("answering:") async for one in found]

    async def decided(self) -> int:
        """How many questions were answered."""
        return await self.runtime.database["memory_outcomes"].count_documents({"kinds": "Answered"})


class Noted(UsageLog):
    """Notes calls, and publishes nothing."""

    def __init__(self, kit: Kit) -> None:
        super().__init__(kit.runtime.publisher, kit.runtime.topic, "test")
        self._noted = kit.noted

    def add(self, calls: Sequence[ModelCalled]) -> None:
        self._noted.extend(calls)


@asynccontextmanager
async def asking_stage(runtime: Bench) -> AsyncGenerator[Kit]:
    """The stage with a model server of its own."""
    calls: Counter[str] = Counter()

    def script(asked: Asked) -> Said:
        if asked.kind == "check":
            return {"works": True}
        calls[asked.user.removeprefix("- note ")] += 1
        return default_script(asked)

    async with serving(script, retry_after=0.02) as server:
        names = ModelsSettings(fast="test-model", embeddings="test-vectors", timeout_seconds=5.0)  # pyright: ignore[reportCallIssue]
        settings = runtime.settings.model_copy(
            update={"llm": server.openai_url, "embedder": server.openai_url, "models": names}
        )
        answers = MongoAnswers(runtime.database, NAMES)
        await answers.prepare()
        models = Models(settings, answers, cost, probe_waits=(0.02, 0.05))
        try:
            yield Kit(runtime, server, answers, models, calls)
        finally:
            await models.close()
