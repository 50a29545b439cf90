"""`eden models check` tries a model of an endpoint, and says what it can do and which settings fit it."""

from typing import Any

import pytest

from eden_memory.formation.model_trial import SAID, TriedModel, tried_models
from eden_memory.settings import Settings
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import serving


def extracts(*languages: str, scope: str = "user") -> dict[str, Any]:
    places = [place for place, name in enumerate(SAID, 1) if name in languages]
    texts = [text for text, _ in SAID.values()]
    return {"facts": [{"text": texts[place - 1], "scope": scope, "messages": [place]} for place in places]}


def able(asked: Asked) -> Said:
    """Finds every fact, and answers questions."""
    if asked.kind == "facts":
        return extracts(*SAID)
    return '{"works": true}' if "JSON object" in asked.user else default_script(asked)


def small(asked: Asked) -> Said:
    """Takes everything for the agent's unless the prompt is short, and knows two languages."""
    if asked.kind == "facts" and not asked.system.startswith("List "):
        return extracts(*SAID, scope="agent")
    return extracts("English", "German") if asked.kind == "facts" else able(asked)


async def tried(script: Any, **config: Any) -> TriedModel:
    async with serving(script, **config) as server:
        settings = Settings(llm=server.openai_url, models={"fast": "m"})  # pyright: ignore[reportArgumentType]
        provider = server.openai_url.removeprefix("http://").removesuffix("/v1")
        (found,) = [model async for model in tried_models(settings, {(provider, "m")})]
        assert [model async for model in tried_models(settings, set())] == []
    return found


async def test_a_small_model_gets_the_short_prompts_and_does_not_think() -> None:
    config = {"local": "llama.cpp", "slots": 1, "context_tokens": 8_192, "supports": "json"}
    found = await tried(small, reasoning_tokens=40, stops_thinking=True, models=("m",), **config)
    assert (found.languages, found.thinking, found.json_mode) == (
        ("English", "German"),
        "can be switched off",
        True,
    )
    assert "Chinese" in found.untold
    assert (found.tools, found.context) == (False, 8_192)
    assert found.settings["EDEN_MODELS_PROMPTS"] == "short"
    assert found.settings["EDEN_MODELS_EFFORT"] == "none"
    assert found.settings["EDEN_MODELS_AT_ONCE"] == "1"
    assert int(found.settings["EDEN_LIMITS_FACTS"]) < 30


async def test_an_able_model_keeps_the_full_prompts() -> None:
    found = await tried(able, calls_tools=True, local="vllm", context_tokens=32_768, models=("m",))
    assert (found.languages, found.untold) == (tuple(SAID), ())
    assert (found.tools, found.json_mode, found.thinking) == (True, True, "no")
    assert found.settings == {
        "EDEN_MODELS_PROMPTS": "full",
        "EDEN_MODELS_AT_ONCE": "2",
        "EDEN_MODELS_TIMEOUT_SECONDS": found.settings["EDEN_MODELS_TIMEOUT_SECONDS"],
    }
    assert found.tokens_a_second is not None


@pytest.mark.parametrize(
    "config", [{"supports": "text"}, {"rates": {"truncated": 1.0}}, {"rates": {"wrong_schema": 1.0}}], ids=str
)
async def test_a_model_that_refuses_or_spoils_answers_is_tried_to_the_end(config: dict[str, Any]) -> None:
    found = await tried(able, reasoning_tokens=3, **config)
    assert found.thinking == "always"
    assert found.json_mode is False
    assert (found.languages == tuple(SAID)) is ("supports" in config)
    assert found.context is None
