"""One small call to each configured model: what it supports, how long it takes, what it costs, or what is wrong."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace

from pydantic import ValidationError

from eden_memory.errors import PermanentError
from eden_memory.models.call_accounts import PerMillion, deprecated, per_million
from eden_memory.models.catalogue import OFFLINE, EmbeddingModel, used_for
from eden_memory.models.openai import CompatibleChat
from eden_memory.models.provider_calls import (
    CallFailed,
    ChatProvider,
    Completion,
    EmbeddingProvider,
    PromptTurn,
)
from eden_memory.models.providers import Providers
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.settings import Settings

SYSTEM = "This is a check of the connection."

MOST = 64
"""Tokens of its answer."""

USER = "Answer with works = true."


class Checked(ModelAnswer):
    """The answer that the check asks for."""

    works: bool


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """One model."""

    used_for: tuple[str, ...]
    provider: str
    model: str | None
    supports: str | None = None
    """`schema`, `json` or `text`; of vectors `<n> dimensions`."""
    seconds: float | None = None
    price: PerMillion | None = None
    deprecated: bool = False
    problem: str | None = None


async def check(
    settings: Settings,
    base_url: str | None = None,
    *,
    most_seconds: float = math.inf,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[CheckedModel]:
    """Check every configured model once, side by side; return nothing if none can be called."""
    providers, seconds = Providers(settings, base_url), min(settings.models.timeout_seconds, most_seconds)
    for choice in used_for(settings):
        if choice.provider != OFFLINE:
            on_progress(f"{choice}: a small call, for at most {seconds:g} s")
    try:
        return list(await asyncio.gather(*_checks(providers, settings, seconds)))
    finally:
        await providers.close()


async def check_embedder(settings: Settings, *, most_seconds: float) -> CheckedModel:
    """Check the embedder that the settings name, which is not one on this machine, with one small call.

    EdenError for one that cannot be called: no key, no SDK, no model.
    """
    providers = Providers(settings)
    vectors = providers.embedding_model
    assert providers.embeddings is not None
    assert vectors is not None
    try:
        return await _embeddings(providers.embeddings, vectors, most_seconds)
    finally:
        await providers.close()


def _checks(
    providers: Providers, settings: Settings, seconds: float
) -> list[Coroutine[None, None, CheckedModel]]:
    embeddings, vectors = providers.embeddings, providers.embedding_model
    checks = [
        _chat(providers.chat(choice.provider), choice.model, uses, seconds)
        for choice, uses in used_for(settings).items()
        if choice.provider != OFFLINE
    ]
    return [*checks, *([_embeddings(embeddings, vectors, seconds)] if embeddings and vectors else [])]


async def _chat(
    provider: ChatProvider, model: str | None, uses: tuple[str, ...], limit: float
) -> CheckedModel:
    empty = CheckedModel(uses, provider.name, model)
    if model is None:
        return replace(empty, problem="no model is named: set EDEN_MODELS_FAST=…, or URL#model")
    started = time.perf_counter()
    try:
        async with asyncio.timeout(limit):
            found = await provider.complete(model, SYSTEM, (PromptTurn("user", USER),), Checked, MOST)
    except TimeoutError:
        return replace(empty, problem=f"no answer within {limit:g} s")
    except (CallFailed, PermanentError) as error:
        return replace(empty, problem=str(error))
    seconds = time.perf_counter() - started
    supports = provider.forms.get(model) if isinstance(provider, CompatibleChat) else "schema"
    return _priced(replace(empty, supports=supports, seconds=seconds, problem=_problem(found)))


async def _embeddings(provider: EmbeddingProvider, model: EmbeddingModel, limit: float) -> CheckedModel:
    empty = CheckedModel(("vectors",), provider.name, model.name)
    started = time.perf_counter()
    try:
        async with asyncio.timeout(limit):
            vectors, _ = await provider.embed(model.name, [SYSTEM])
    except TimeoutError:
        return replace(empty, problem=f"no answer within {limit:g} s")
    except (CallFailed, PermanentError) as error:
        return replace(empty, problem=str(error))
    seconds, got = time.perf_counter() - started, len(vectors[0])
    wanted = model.dimensions or got
    problem = None if got == wanted else f"{got} dimensions, not {wanted}"
    return _priced(replace(empty, supports=f"{got} dimensions", seconds=seconds, problem=problem))


def _problem(found: Completion) -> str | None:
    if found.finish != "complete":
        return f"its answer was {found.finish}"
    try:
        Checked.model_validate_json(found.text)
    except ValidationError:
        return "its answer is not JSON of the shape asked for"
    return None


def _priced(checked: CheckedModel) -> CheckedModel:
    provider, model = checked.provider, checked.model or ""
    return replace(
        checked,
        price=per_million(provider, model),
        deprecated=deprecated(provider, model),
    )
