"""Any role at any provider: two endpoints, OpenAI, Anthropic and Google side by side, each over its real SDK."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from eden_memory.assembly.model_factory import Models
from eden_memory.errors import ProviderError
from eden_memory.models.call_accounts import Cost
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.settings import ModelsSettings, Settings
from tests.model_server.script import Asked, Said
from tests.model_server.serving import Serving, serving
from tests.unit.model_calls.model_fakes import PROMPT, MemoryAnswers, asking, cost

ENOUGH = 5
Make = Callable[..., Models]


def merged(_asked: Asked) -> Said:
    return {"text": "all of it"}


@pytest.fixture
async def other() -> AsyncGenerator[Serving]:
    async with serving(merged) as running:
        yield running


@pytest.fixture
async def make() -> AsyncGenerator[Make]:
    """Models of settings, closed at the end."""
    made: list[Models] = []

    def of(asked_for: Settings, store: MemoryAnswers | None = None, price: Cost = cost) -> Models:
        made.append(Models(asked_for, store or MemoryAnswers(), price))
        return made[-1]

    yield of
    for one in made:
        await one.close()


def settings(**models: Any) -> Settings:
    return Settings(models=ModelsSettings(timeout_seconds=5.0, **models))  # pyright: ignore[reportCallIssue]


async def ask(made: Models, role: str, number: int = 0, **fields: object) -> None:
    """One question of the role."""
    on = asking(f"{role}:{number}", role=role, **fields)
    await made.language_model.ask(PROMPT, ConsolidatedText, on)


async def test_two_endpoints_are_asked_the_same_and_their_answers_are_told_apart(
    make: Make, models: Serving, other: Serving
) -> None:
    models.script = merged
    store = MemoryAnswers()
    both = settings(facts=f"{models.openai_url}#m", decisions=f"{other.openai_url}#m")
    made = make(both, store)
    await ask(made, "facts")
    await ask(made, "decisions")
    assert (models.tally.calls["consolidation"], other.tally.calls["consolidation"]) == (1, 1)
    kept = list(store.kept.values())
    assert [one.provider for one in kept] == [models.url[7:], other.url[7:]]
    assert kept[0].id != kept[1].id
    assert [one.model for one in kept] == ["m", "m"]


async def test_openai_anthropic_and_google_serve_their_roles_at_their_prices(
    make: Make, models: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.script = merged
    for name, value in {
        "OPENAI_API_KEY": "sk-o",
        "OPENAI_BASE_URL": models.openai_url,
        "ANTHROPIC_API_KEY": "a",
        "ANTHROPIC_BASE_URL": models.anthropic_url,
        "GEMINI_API_KEY": "g",
        "GOOGLE_GEMINI_BASE_URL": models.google_url,
    }.items():
        monkeypatch.setenv(name, value)
    priced: list[tuple[str, str]] = []

    def priced_by(provider: str, model: str, _tokens: object) -> None:
        priced.append((provider, model))

    made = make(
        settings(facts="openai:gpt-5-mini", decisions="anthropic", reflections="google"), price=priced_by
    )
    await ask(made, "facts")
    await ask(made, "decisions")
    assert models.last_headers["authorization"] == "Bearer a"
    await ask(made, "reflections", tier=1)
    await ask(made, "consolidation")
    anthropic = ("anthropic", "claude-haiku-5-5")
    assert priced == [("openai", "gpt-5-mini"), anthropic, ("google", "gemini-3.1-pro-preview")]


async def test_an_outage_of_one_endpoint_leaves_the_other_alone(
    make: Make, models: Serving, other: Serving
) -> None:
    models.change(outage=True)
    made = make(
        settings(facts=f"{models.openai_url}#m", decisions=f"{other.openai_url}#m", at_once=2),
    )
    for number in range(ENOUGH):
        with pytest.raises(ProviderError):
            await ask(made, "facts", number)
        await ask(made, "decisions", number)
    assert other.tally.outcomes["consolidation"]["answered"] == 1
    assert other.tally.running == 0


async def test_each_endpoint_gets_its_own_key_and_one_named_by_a_stream_alone_gets_none(
    make: Make, models: Serving, other: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    models.script = merged
    monkeypatch.setenv("EDEN_API_KEY", "general")
    own = "EDEN_API_KEY_" + other.url[7:].replace(".", "_").replace(":", "_")
    made = make(settings(facts=f"{models.openai_url}#m"))
    await ask(made, "facts")
    assert models.last_headers["authorization"] == "Bearer general"
    await ask(made, "facts", 1, model=f"{other.openai_url}#m")
    assert other.last_headers["authorization"] == "Bearer none"
    monkeypatch.setenv(own, "its own")
    again = make(settings(decisions=f"{other.openai_url}#m"))
    await ask(again, "decisions")
    assert other.last_headers["authorization"] == "Bearer its own"


@pytest.mark.parametrize(
    ("model", "sent"),
    [("gpt-5.1", {"reasoning_effort": "low"}), ("gpt-4.1", {})],
)
async def test_openai_is_told_the_effort_where_the_model_takes_one(
    make: Make, models: Serving, monkeypatch: pytest.MonkeyPatch, model: str, sent: dict[str, str]
) -> None:
    models.script = merged
    monkeypatch.setenv("OPENAI_API_KEY", "sk-o")
    monkeypatch.setenv("OPENAI_BASE_URL", models.openai_url)
    made = make(settings(facts=f"openai:{model}", effort="minimal"))
    await ask(made, "facts")
    body = json.loads(models.last_body)
    assert {name: body[name] for name in body if name == "reasoning_effort"} == sent


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("gemini-3-flash-preview", {"thinking_level": "MINIMAL"}),
        ("gemini-2.5-flash", {"thinking_budget": 1_024}),
        ("gemini-2.0-flash", None),
    ],
)
async def test_google_is_told_it_in_the_words_of_the_model(
    make: Make, models: Serving, monkeypatch: pytest.MonkeyPatch, model: str, sent: dict[str, object] | None
) -> None:
    models.script = merged
    monkeypatch.setenv("GEMINI_API_KEY", "g")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", models.google_url)
    made = make(settings(facts=f"google:{model}", effort="minimal"))
    await ask(made, "facts")
    assert json.loads(models.last_body)["generationConfig"].get("thinkingConfig") == sent


async def test_an_endpoint_is_told_it_only_when_set_and_another_effort_is_another_answer(
    make: Make,
    models: Serving,
) -> None:
    models.script = merged
    store = MemoryAnswers()
    for number, effort in enumerate([None, "low", "high", "low"]):
        made = make(settings(facts=f"{models.openai_url}#m", effort=effort), store)
        await ask(made, "facts", number)
        if number < len(store.kept):
            assert json.loads(models.last_body).get("reasoning_effort") == effort
    assert models.tally.calls["consolidation"] == len(store.kept) == 3
