"""Which model does what: the defaults of each provider, and the settings' own before them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from eden_memory.domain.asking import Role
from eden_memory.domain.errors import EdenError
from eden_memory.settings import Settings

Slot = Literal["fast", "free", "paid"]
FAST_ROLES = frozenset[Role]({"facts", "decisions"})
LOCAL = "local"
OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model of vectors; `dimensions` as asked of it."""

    name: str
    dimensions: int


CHAT: Mapping[str, Mapping[Slot, str]] = {
    "openai": {"fast": "gpt-5-mini", "free": "gpt-5-mini", "paid": "gpt-5.1"},
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
"""Of models known here; those of others are learned from their first vector."""


def provider_name(provider: str) -> str:
    """As it stands in records: itself, or of a URL `host` or `host:port`, never what else stands in it."""
    parts = urlsplit(provider)
    if parts.hostname is None:
        return provider
    return f"{parts.hostname}:{parts.port}" if parts.port else parts.hostname


def slot_of(role: Role, tier: int) -> Slot:
    """Which of the three a call takes."""
    if role in FAST_ROLES:
        return "fast"
    return "paid" if tier > 0 else "free"


def model_for(role: Role, tier: int, settings: Settings, override: str | None = None) -> str:
    """The model of a call: an agent's or stream's own, the settings', the provider's default.

    Where only some are set of an endpoint without defaults, `fast` stands in for `free`, `free` for `paid`.
    EdenError where nothing names one.
    """
    if override:
        return override
    slot = slot_of(role, tier)
    found = named(slot, settings)
    if found is None:
        raise EdenError(
            f"{provider_name(settings.llm)} has no default models",
            f"Name one: EDEN_MODELS_{slot.upper()}=…, or EDEN_MODELS_FAST=… for everything.",
        )
    return found


def named(slot: Slot, settings: Settings) -> str | None:
    """The model of a slot, if there is one."""
    own = settings.models
    chosen: Mapping[Slot, str | None] = {"fast": own.fast, "free": own.free, "paid": own.paid}
    default = CHAT.get(settings.llm, {}).get(slot)
    stand_in: Mapping[Slot, str | None] = {
        "fast": None,
        "free": own.fast,
        "paid": own.free or own.fast,
    }
    return chosen[slot] or default or stand_in[slot]


def embedder_of(settings: Settings) -> str:
    """`local`, `openai`, `google` or a URL: as set, else the provider of EDEN_LLM if it is known to have one."""
    if settings.embedder:
        return settings.embedder
    if settings.llm in EMBEDDINGS or (settings.llm != OFFLINE and settings.models.embeddings):
        return settings.llm
    return LOCAL


def embedding_model(settings: Settings) -> EmbeddingModel | None:
    """The model of the vectors; None: the local one. `dimensions` 0: not known before the first vector."""
    embedder, name = embedder_of(settings), settings.models.embeddings
    if embedder == LOCAL:
        return None
    default = EMBEDDINGS.get(embedder)
    if name is None and default is None:
        raise EdenError(
            f"no model of vectors is named for {provider_name(embedder)}", "Set EDEN_MODELS_EMBEDDINGS=…."
        )
    if name is None or (default and name == default.name):
        return default
    return EmbeddingModel(name, DIMENSIONS.get(name, 0))
