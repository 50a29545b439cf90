"""`eden demo --llm local`: a model server on this machine, and the settings that fit it."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from eden_memory.errors import EdenError, PermanentError
from eden_memory.models.breaker import SHORT
from eden_memory.models.catalogue import endpoint_variable, is_url, key_in, provider_name
from eden_memory.models.model_check import check
from eden_memory.models.model_servers import (
    ROOMY,
    LocalModelServer,
    fitting,
    found_server,
    loaded_context,
    sensible_model,
)
from eden_memory.models.openai import wire_to
from eden_memory.models.provider_calls import CallFailed, PromptTurn
from eden_memory.models.providers import connections
from eden_memory.settings import API_KEY, Settings

QUESTION = "Count from one to one hundred, in words."
MEASURED = 64
"""Tokens of the answer with which the speed is measured."""
ROLES = ("FAST", "FREE", "PAID", "FACTS", "DECISIONS", "REFLECTIONS", "CONSOLIDATION")
SHOWN = {
    "EDEN_LLM",
    "EDEN_MODELS_FAST",
    "EDEN_MODELS_AT_ONCE",
    "EDEN_MODELS_TIMEOUT_SECONDS",
    "EDEN_WINDOWS_TOKENS",
    "EDEN_LIMITS_FACTS",
    "EDEN_LIMITS_AGENT_BLOB_WORDS",
}
"""Variables that people set by hand."""


@dataclass(frozen=True, slots=True)
class FittedModel:
    """The chosen model, and the environment variables that make the program fit it."""

    server: LocalModelServer
    model: str
    tokens_a_second: float | None
    context: int | None
    variables: Mapping[str, str]

    def described(self) -> list[str]:
        """Return lines that name the model, how to choose another, and the settings."""
        others = [model.name for model in self.server.models if model.name != self.model]
        choice = f"; EDEN_MODELS_FAST takes another: {', '.join(others)}" if others else ""
        facts = [f"{self.server.kind} at {provider_name(self.server.url)}: {self.model}{choice}"]
        if self.tokens_a_second is not None:
            facts.append(f"it writes about {self.tokens_a_second:.0f} tokens a second")
        if self.context is not None:
            facts.append(f"it takes {self.context:,} tokens at once")
        if self.context is not None and self.context < ROOMY:
            facts.append(
                f"that is little: windows and answers are made smaller; start it with {ROOMY:,} or more "
                "(OLLAMA_CONTEXT_LENGTH, llama-server -c, vllm --max-model-len)"
            )
        named = {name: value for name, value in self.variables.items() if name in SHOWN}
        facts.append(
            "the same for `eden run`: " + " ".join(f"{name}={value}" for name, value in named.items())
        )
        return facts


async def fitted_model(settings: Settings) -> FittedModel:
    """Find a server, choose a model, try it and measure it; EdenError explains what to do."""
    own = settings.llm if is_url(settings.llm) else None
    server = await asyncio.to_thread(found_server, own)
    model = sensible_model(server, settings.models.fast)
    await _works(settings, server, model)
    speed = await _tokens_a_second(settings, server, model)
    context = await asyncio.to_thread(loaded_context, server, model)
    return FittedModel(server, model, speed, context, _variables(server, model, speed, context))


def _variables(
    server: LocalModelServer, model: str, speed: float | None, context: int | None
) -> Mapping[str, str]:
    """Return settings that send every role to this model and embed locally: nothing goes elsewhere."""
    return {
        "EDEN_LLM": server.url,
        **{f"EDEN_MODELS_{role}": model for role in ROLES},
        "EDEN_EMBEDDER": "local",
        "EDEN_MODELS_EMBEDDINGS": "local",
        **fitting(server, speed, context),
    }


async def _works(settings: Settings, server: LocalModelServer, model: str) -> None:
    """Make a small call, which also loads the model."""
    models = settings.models.model_copy(update={role.lower(): model for role in ROLES} | {"embeddings": None})
    there = settings.model_copy(update={"llm": server.url, "embedder": "local", "models": models})
    for checked in await check(there):
        if checked.problem:
            raise EdenError(
                f"{model} of {server.kind} at {provider_name(server.url)} cannot be used: {checked.problem}",
                "Choose another: EDEN_MODELS_FAST=NAME.",
            )


async def _tokens_a_second(settings: Settings, server: LocalModelServer, model: str) -> float | None:
    """Measure the model's tokens a second; None if the answer is too short to tell."""
    seconds = settings.models.timeout_seconds
    variable = endpoint_variable(provider_name(server.url))
    key = key_in(variable, API_KEY)
    wire = wire_to(server.url, key, variable, connections(1, seconds), seconds)
    began = time.perf_counter()
    try:
        found = await wire.chat(model, "", (PromptTurn("user", QUESTION),), None, None, MEASURED)
    except (CallFailed, PermanentError):
        return None
    finally:
        await wire.close()
    took = time.perf_counter() - began
    return found.tokens.output / took if found.tokens.output >= SHORT else None
