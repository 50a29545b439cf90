"""Both extractions over the whole chain of a provider's model: what was paid is used, on what was shown then."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from eden_memory.assembly.model_factory import Models
from eden_memory.forgetting.forgetting_store import MongoForgettingStore
from eden_memory.forgotten import Mark
from eden_memory.models.provider_calls import Tokens
from eden_memory.models.stored_answers import MongoAnswers
from eden_memory.schemas.events import FactsExtracted, ReflectionFormed
from eden_memory.schemas.events.base import Event
from eden_memory.settings import ModelsSettings
from eden_memory.stages.handler_run import HandlerRun
from eden_memory.stages.stage import Dead, Decision, Emit, Erase, Gather, Retry, Stage
from eden_memory.windows.trigger_write_store import window_row
from tests.integration.formation.extraction.extraction_kit import Kit, window
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import serving
from tests.names import NAMES
from tests.unit.formation.extraction.windows import delivered

pytestmark = pytest.mark.servers
TEXTS = ("The code word is MARK-1 for Tern.", "It rains.", "The berth is MARK-2 since May.")


def cost(_provider: str, _model: str, tokens: Tokens) -> Decimal | None:
    return Decimal(tokens.input + tokens.output) / 1_000_000


@asynccontextmanager
async def asked_stages(kit: Kit, seen: list[Asked]) -> AsyncGenerator[tuple[Stage, Stage]]:
    """Both stages, as a process newly started has them, over a model server; `seen` is every request."""

    def script(asked: Asked) -> Said:
        seen.append(asked)
        return default_script(asked)

    async with serving(script) as server:
        names = ModelsSettings(fast="fast", free="slow", paid="slow", timeout_seconds=10.0)  # pyright: ignore[reportCallIssue]
        settings = kit.settings.model_copy(update={"llm": server.openai_url, "models": names})
        answers = MongoAnswers(kit.database, NAMES)
        await answers.prepare()
        models = Models(settings, answers, cost)
        try:
            facts, reflections = kit.stages(models.language_model)
            yield facts, reflections
        finally:
            await models.close()


async def attempt(stage: Stage, event: Event) -> list[Event]:
    """One attempt at an event that ends before its outcome is stored; what it would have published."""
    async with HandlerRun():
        result = await stage.handler([delivered(event)])
    assert not isinstance(result, Gather | Retry | Dead)
    events = result.events if isinstance(result, Decision) else result
    return [
        event.event if isinstance(event, Emit) else event for event in events if not isinstance(event, Erase)
    ]


async def facts_of(stage: Stage) -> FactsExtracted:
    """What fact-extraction says."""
    requested = window(1, *TEXTS).requested
    assert requested is not None
    (extracted,) = (one for one in await attempt(stage, requested) if isinstance(one, FactsExtracted))
    return extracted


async def reflections_of(stage: Stage, extracted: FactsExtracted) -> list[ReflectionFormed]:
    """What reflection-extraction says."""
    return [one for one in await attempt(stage, extracted) if isinstance(one, ReflectionFormed)]


async def test_an_answer_that_arrived_before_a_crash_is_used_for_what_was_shown_then(kit: Kit) -> None:
    await kit.database["memory_windows"].insert_one(window_row(window(1, *TEXTS)))
    seen: list[Asked] = []
    async with asked_stages(kit, seen) as (facts, reflections):
        extracted = await facts_of(facts)
        formed = await reflections_of(reflections, extracted)
    assert [one.sources[0].message_id for one in extracted.facts] == ["s.m1", "s.m3"]
    assert {one.scope.kind for one in formed} == {"user", "session"}
    assert extracted.call is not None
    assert (extracted.call.model, extracted.call.items, extracted.call.prompt) == (
        "fast",
        2,
        "fact-extraction/6",
    )
    assert len(seen) == 2
    await _memory_moves_on(kit)
    async with asked_stages(kit, seen) as (facts, reflections):
        again = await facts_of(facts)
        formed_again = await reflections_of(reflections, extracted)
    assert len(seen) == 2, "nothing is paid for again"
    assert [one.text for one in again.facts] == [extracted.facts[1].text], "the first rests on what is gone"
    assert again.facts[0].sources == extracted.facts[1].sources, "number 3 still means the third message"
    assert formed_again == [], "each names the forgotten message beside another"


async def _memory_moves_on(kit: Kit) -> None:
    """A message is forgotten, and the guidance of the agent changes: the prompt would read otherwise."""
    store = MongoForgettingStore(kit.database, NAMES)
    await store.mark([Mark("message", "s.m1", "for_ever")], "e1", datetime(2026, 3, 3, tzinfo=UTC))
    await kit.database["memory_streams"].insert_one(
        {
            "_id": "s.juniper/user",
            "agent_id": "s.juniper",
            "scope": "user",
            "extraction_guidance": "Only boats.",
        }
    )
