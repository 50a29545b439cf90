"""Which model does what, and where it is: providers' defaults, settings that override them, and API keys."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from eden_memory.errors import EdenError
from eden_memory.models.local_embedder import MODEL, MULTILINGUAL
from eden_memory.models.question import Role
from eden_memory.settings import API_KEY, ModelsSettings, Settings

Slot = Literal["fast", "free", "paid"]

ROLES: tuple[Role, ...] = ("facts", "decisions", "reflections", "consolidation")
"""The roles that stages have."""

FAST_ROLES = frozenset[Role]({"facts", "decisions"})

LOCAL_MODELS: Mapping[str, str] = {"local": MODEL, "multilingual": MULTILINGUAL}
"""Embedders on this machine."""

OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A chat model and where it is: `offline`, `openai`, `anthropic`, `google`, or the base URL of an endpoint."""

    provider: str
    model: str | None
    """None: no model is named."""

    def __str__(self) -> str:
        """The name for people, without the rest of a URL."""
        where = provider_name(self.provider)
        return f"{where} {self.model}" if self.model else where

    __repr__ = __str__


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model of vectors; `dimensions` as asked of it."""

    name: str
    dimensions: int


CHAT: Mapping[str, Mapping[Slot, str]] = {
    "openai": {"fast": "gpt-5-mini", "free": "gpt-5-mini", "paid": "gpt-5.1"},
    "anthropic": {"fast": "claude-haiku-5-5", "free": "claude-haiku-5-5", "paid": "claude-sonnet-5-5"},
    "google": {
        "fast": "gemini-3-flash-preview",
        "free": "gemini-3-flash-preview",
        "paid": "gemini-3.1-pro-preview",
    },
}

EMBEDDINGS: Mapping[str, EmbeddingModel] = {
    "openai": EmbeddingModel("text-embedding-3-small", 1_536),
    "google": EmbeddingModel("gemini-embedding-2", 1_536),
}

DIMENSIONS: Mapping[str, int] = {
    "text-embedding-3-small": 1_536,
    "text-embedding-3-large": 3_072,
    "text-embedding-ada-002": 1_536,
    "gemini-embedding-001": 1_536,
    "gemini-embedding-2": 1_536,
}
"""Dimensions of known models; those of others are learned from the first vector."""


def provider_name(provider: str) -> str:
    """As it stands in records: itself, or of a URL `host` or `host:port`, never what else stands in it."""
    parts = urlsplit(provider)
    if parts.hostname is None:
        return provider
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname


def is_url(named: str) -> bool:
    """Whether this names an endpoint."""
    return named.startswith(("http://", "https://"))


def shown_model(named: str) -> str:
    """Return a model's name as people may see it: of a URL the host and the model."""
    if not is_url(named):
        return named
    url, _, model = named.partition("#")
    try:
        return str(ModelChoice(url, model or None))
    except ValueError:
        return "an invalid URL"


def slot_of(role: Role, tier: int) -> Slot:
    """The slot that a call uses."""
    if role in FAST_ROLES:
        return "fast"
    return "paid" if tier > 0 else "free"


def choice_for(role: Role, tier: int, settings: Settings, override: str | None = None) -> ModelChoice:
    """The model of a call: an agent's or stream's own, the role's, the slot's, the provider's default.

    Where only some are set of an endpoint without defaults, `fast` stands in for `free`, `free` for `paid`.
    EdenError where nothing names one.
    """
    found = chosen(role, tier, settings, override)
    if found.model is None and found.provider != OFFLINE:
        raise EdenError(f"no model is named for {role} at {found}", how_to_name(role, tier))
    return found


def how_to_name(role: Role, tier: int) -> str:
    """Return the hint for a role that has no model."""
    slot = slot_of(role, tier)
    alone = "" if slot == "fast" else f"EDEN_MODELS_{slot.upper()}=…, or "
    return f"Name one: {alone}EDEN_MODELS_FAST=… for everything (of another endpoint: URL#model)."


def chosen(role: Role, tier: int, settings: Settings, override: str | None = None) -> ModelChoice:
    """As :func:`choice_for`; its model is None where nothing names one."""
    own, slot, llm = settings.models, slot_of(role, tier), settings.llm
    named = override or _of_role(own, role) or _of_slot(own, slot)
    if named is not None:
        return _read(named, slot, llm)
    if llm == OFFLINE:
        return ModelChoice(OFFLINE, None)
    default = CHAT.get(llm, {}).get(slot)
    stand_in = {"fast": None, "free": own.fast, "paid": own.free or own.fast}[slot]
    return ModelChoice(llm, default) if default or stand_in is None else _read(stand_in, slot, llm)


def _of_role(own: ModelsSettings, role: Role) -> str | None:
    named: Mapping[str, str | None] = {
        "facts": own.facts,
        "decisions": own.decisions,
        "reflections": own.reflections,
        "consolidation": own.consolidation,
        "propagation": own.consolidation,
    }
    return named.get(role)


def _of_slot(own: ModelsSettings, slot: Slot) -> str | None:
    return {"fast": own.fast, "free": own.free, "paid": own.paid}[slot]


def _read(named: str, slot: Slot, llm: str) -> ModelChoice:
    """A name with or without its provider (eden_memory.settings.ModelsSettings says how)."""
    if named == OFFLINE:
        return ModelChoice(OFFLINE, None)
    if is_url(named):
        url, _, model = named.partition("#")
        return ModelChoice(url, model or None)
    provider, _, model = named.partition(":")
    if provider in CHAT:
        return ModelChoice(provider, model or CHAT[provider][slot])
    return ModelChoice(OFFLINE, None) if llm == OFFLINE else ModelChoice(llm, named)


def uses(settings: Settings) -> Iterator[tuple[ModelChoice, Role, int]]:
    """Return the model of each role, and of tier 1 (and above) where it differs."""
    for role in ROLES:
        free, paid = (chosen(role, tier, settings) for tier in (0, 1))
        yield free, role, 0
        if paid != free:
            yield paid, role, 1


def said(role: Role, tier: int) -> str:
    """A role in words for people."""
    return f"{role} of tier 1 and above" if tier else role


def used_for(settings: Settings) -> dict[ModelChoice, tuple[str, ...]]:
    """Every configured choice with what it is used for; `offline` may be among them."""
    found: dict[ModelChoice, tuple[str, ...]] = {}
    for choice, role, tier in uses(settings):
        found[choice] = (*found.get(choice, ()), said(role, tier))
    return found


def chat_providers(settings: Settings) -> tuple[str, ...]:
    """Return the providers that receive conversations, once each."""
    found = (choice.provider for choice in used_for(settings))
    return tuple(dict.fromkeys(provider for provider in found if provider != OFFLINE))


def demand_models(settings: Settings) -> None:
    """Raise EdenError where a role has no model: each of its calls would become a dead letter."""
    for _, role, tier in uses(settings):
        choice_for(role, tier, settings)


def check_url(setting: str, value: str) -> None:
    """An EdenError where it is no endpoint. What is no URL is not shown: it might be a key."""
    if not is_url(value):
        first = "offline, anthropic" if setting == "EDEN_LLM" else "local, multilingual"
        raise EdenError(
            f"{setting} names neither a provider nor a URL",
            f"It may be {first}, openai, google, or the base URL of an OpenAI-compatible endpoint.",
        )
    if "#" in value:
        raise EdenError(
            f"{setting} is a URL with a model",
            "The model's place is EDEN_MODELS_FAST or EDEN_MODELS_EMBEDDINGS.",
        )


def asked_for(settings: Settings) -> tuple[str, ...]:
    """Return the providers that receive anything: conversations, or texts to embed."""
    embedder = embedder_of(settings)
    return tuple(
        dict.fromkeys((*chat_providers(settings), *(() if embedder in LOCAL_MODELS else (embedder,))))
    )


def embedder_of(settings: Settings) -> str:
    """An embedder on this machine, `openai`, `google` or a URL.

    The model's own, as set, else EDEN_LLM if it is known to have one.
    """
    own = _embeddings_at(settings)
    if own is not None:
        return own[0]
    if settings.embedder:
        return settings.embedder
    if settings.llm in EMBEDDINGS or (settings.llm != OFFLINE and settings.models.embeddings):
        return settings.llm
    return "local"


def embedding_model(settings: Settings) -> EmbeddingModel | None:
    """The model of the vectors; None: a local one. `dimensions` 0: not known before the first vector."""
    embedder, own = embedder_of(settings), _embeddings_at(settings)
    name = own[1] if own is not None else settings.models.embeddings
    if embedder in LOCAL_MODELS:
        return None
    default = EMBEDDINGS.get(embedder)
    if embedder in CHAT and default is None:
        raise EdenError(
            f"{embedder} has no models of vectors",
            "Name its provider, as in EDEN_MODELS_EMBEDDINGS=openai:text-embedding-3-small.",
        )
    if not name and default is None:
        raise EdenError(
            f"no model of vectors is named for {provider_name(embedder)}", "Set EDEN_MODELS_EMBEDDINGS=…."
        )
    if not name or (default and name == default.name):
        return default
    return EmbeddingModel(name, DIMENSIONS.get(name, 0))


def vectors_of(settings: Settings) -> str:
    """The name of the model of the vectors, as it stands beside each."""
    model = embedding_model(settings)
    return LOCAL_MODELS[embedder_of(settings)] if model is None else model.name


def _embeddings_at(settings: Settings) -> tuple[str, str] | None:
    """Provider and name of a model of vectors that names its provider."""
    named = settings.models.embeddings or ""
    provider, _, model = named.partition("#" if is_url(named) else ":")
    return (provider, model) if is_url(named) or provider in EMBEDDINGS else None


VARIABLES: Mapping[str, Sequence[str]] = {
    "openai": ("OPENAI_API_KEY",),
    "anthropic": ("ANTHROPIC_API_KEY",),
    "google": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
}
"""The variables in which each provider's own tools look, in their order."""


def key_of(provider: str) -> str:
    """Return the key of `openai`, `anthropic` or `google`; EdenError if there is none."""
    found = key_in(*VARIABLES[provider])
    if found is None:
        names = " or ".join(VARIABLES[provider])
        raise EdenError(f"{provider} was asked for, but there is no key for it", f"Set {names}.")
    return found


def endpoint_variable(name: str) -> str:
    """Return the variable of an endpoint's own key: EDEN_API_KEY_API_EXAMPLE_ORG of `api.example.org`."""
    return f"{API_KEY}_{re.sub(r'[^A-Za-z0-9]', '_', name).upper()}"


def key_in(*variables: str) -> str | None:
    """Return the first of these variables that is set."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), None)


def unused_keys(asked_for: Sequence[str]) -> list[tuple[str, str]]:
    """Return (provider, variable) of keys that are set for providers that nobody selected."""
    return [
        (provider, name)
        for provider, names in VARIABLES.items()
        for name in names
        if provider not in asked_for and key_in(name) is not None
    ]
