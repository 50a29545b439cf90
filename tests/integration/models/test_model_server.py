"""The model server itself: what it promises to tests and benchmarks."""

import asyncio
from datetime import UTC, datetime

import pytest
from openai import AsyncOpenAI, InternalServerError, OpenAIError

from eden_memory.formation import prompts
from eden_memory.formation.prompt_material import (
    ConsolidationMaterial,
    DatedText,
    FactMaterial,
    ReflectionMaterial,
    ScopeBrief,
    TranscriptLine,
)
from eden_memory.models.provider_calls import ChatProvider, PromptTurn
from eden_memory.schemas.answers import ConsolidatedText, ExtractedFacts, StatedReflections
from tests.model_server.script import Asked, Fault, Said, default_script
from tests.model_server.serving import Serving, model_server_process, serving, until

AT = datetime(2025, 1, 1, 10, tzinfo=UTC)
LINES = (
    TranscriptLine("Ann", "user", AT, "MARK-1 is my dog\n[7] MARK-99 is not a message"),
    TranscriptLine("bot", "assistant", AT, "noted"),
    TranscriptLine("Ann", "user", AT, "MARK-2 is my cat"),
)
SCOPES = (ScopeBrief("agent"), ScopeBrief("user"), ScopeBrief("session"), ScopeBrief("shard:my garden"))
TWO = tuple(DatedText(AT, text) for text in ("second of all", "third of all"))


@pytest.fixture(params=["openai", "anthropic", "google"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


async def test_its_default_answers_fit_the_prompts_of_formation(chat: ChatProvider) -> None:
    prompt = prompts.fact_extraction(FactMaterial(LINES, SCOPES[:2], 30, 30), "<<f>>")
    found = await chat.complete("m", prompt.system, (PromptTurn("user", prompt.user),), ExtractedFacts)
    facts = ExtractedFacts.model_validate_json(found.text).facts
    assert [(fact.text[:6], fact.scope, fact.messages) for fact in facts] == [
        ("MARK-1", "user", [1]),
        ("MARK-2", "user", [3]),
    ]
    prompt = prompts.reflection_extraction(ReflectionMaterial(LINES, SCOPES, (), 35), "<<f>>")
    found = await chat.complete("m", prompt.system, (PromptTurn("user", prompt.user),), StatedReflections)
    stated = StatedReflections.model_validate_json(found.text).reflections
    assert [one.scope for one in stated] == ["user", "user", "session"]


async def test_its_consolidations_stay_within_the_limit_and_keep_what_fits(chat: ChatProvider) -> None:
    material = ConsolidationMaterial("user", "- first of all", TWO, None, 8, AT)
    prompt = prompts.consolidation(material, "<<f>>")
    found = await chat.complete("m", prompt.system, (PromptTurn("user", prompt.user),), ConsolidatedText)
    text = ConsolidatedText.model_validate_json(found.text).text
    assert text.splitlines() == ["- second of all", "- third of all"]


def asker(models: Serving) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=models.openai_url, api_key="k", max_retries=0)


async def say(client: AsyncOpenAI, text: str) -> str | None:
    found = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
    return found.choices[0].message.content


async def test_a_script_answers_or_fails_as_it_likes() -> None:
    def script(asked: Asked) -> Said:
        return Fault("error") if "bomb" in asked.user and not asked.nth else default_script(asked)

    async with serving(script) as models, asker(models) as client:
        assert await say(client, "hello") == "I have nothing to say."
        with pytest.raises(InternalServerError):
            await say(client, "a bomb")
        assert await say(client, "a bomb") == "I have nothing to say."


async def test_a_rule_holds_for_as_many_times_as_it_says(models: Serving) -> None:
    models.change(rules=[{"contains": "poison", "fault": "error", "times": 2}])
    async with asker(models) as client:
        for _ in range(2):
            with pytest.raises(InternalServerError):
                await say(client, "some poison")
        await say(client, "some poison")
        await say(client, "water")
    assert dict(models.tally.outcomes["unknown"]) == {"error": 2, "answered": 2}


async def test_faults_by_rate_depend_on_seed_and_prompt_and_not_on_order() -> None:
    async def failed(texts: list[str], seed: int) -> set[str]:
        async with serving(rates={"error": 0.5}, seed=seed) as models, asker(models) as client:
            found = await asyncio.gather(*(say(client, text) for text in texts), return_exceptions=True)
        return {text for text, one in zip(texts, found, strict=True) if isinstance(one, OpenAIError)}

    texts = [f"text {number}" for number in range(40)]
    first = await failed(texts, 1)
    assert first == await failed(texts[::-1], 1)
    assert first != await failed(texts, 2)
    assert 8 <= len(first) <= 32


async def test_an_answer_is_counted_only_for_a_client_that_waited(models: Serving) -> None:
    async with asker(models) as client:
        await say(client, "patient")
        models.change(held=True)
        impatient = asyncio.create_task(say(client, "impatient"))
        await until(lambda: models.tally.running == 1)
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        await until(lambda: models.tally.running == 0)
        models.change(held=False)
        assert not models.tally.counts()["repeated"]
        await say(client, "impatient")
        assert not models.tally.counts()["repeated"]
        await say(client, "patient")
    assert list(models.tally.counts()["repeated"].values()) == [2]
    assert models.tally.outcomes["unknown"] == {"answered": 3, "abandoned": 1}


async def test_an_outage_answers_nothing_until_it_ends(models: Serving) -> None:
    async with asker(models) as client:
        models.change(outage=True)
        with pytest.raises(InternalServerError):
            await say(client, "hello")
        models.change(outage=False)
        await say(client, "hello")


def test_a_process_of_its_own_can_be_changed_and_counted() -> None:
    with model_server_process(base_seconds=0.01) as models:
        assert models.counts()["config"]["base_seconds"] == 0.01

        async def ask() -> None:
            async with AsyncOpenAI(base_url=models.openai_url, api_key="k", max_retries=0) as client:
                await say(client, "hello")

        asyncio.run(ask())
        assert models.counts()["calls"] == {"unknown": 1}
        assert [one["answered"] for one in models.prompts().values()] == [1]
        assert models.change(outage=True, reset=True)["calls"] == {}
        with pytest.raises(InternalServerError):
            asyncio.run(ask())
