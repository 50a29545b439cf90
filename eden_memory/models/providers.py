"""The providers that the settings ask for, on one pool of connections. A key alone asks for nothing."""

from dataclasses import dataclass

import httpx2

from eden_memory.domain.errors import EdenError
from eden_memory.models.api_keys import key_in, key_of
from eden_memory.models.calls import ChatProvider, EmbeddingProvider
from eden_memory.models.catalogue import LOCAL, OFFLINE, EmbeddingModel, embedder_of, embedding_model
from eden_memory.models.compatible import CompatibleChat, CompatibleEmbeddings, wire_to
from eden_memory.models.connections import connections
from eden_memory.models.google import GoogleChat, GoogleConnection, GoogleEmbeddings
from eden_memory.models.openai import OpenAIChat, OpenAIEmbeddings
from eden_memory.settings import Settings


@dataclass(frozen=True, slots=True)
class Providers:
    """None: that part is done without a provider (offline rules, local vectors)."""

    chat: ChatProvider | None
    embeddings: EmbeddingProvider | None
    embedding_model: EmbeddingModel | None

    async def close(self) -> None:
        """Let go of the connections."""
        for one in (self.chat, self.embeddings):
            if one is not None:
                await one.close()


def providers_of(settings: Settings, base_url: str | None = None) -> Providers:
    """As EDEN_LLM and EDEN_EMBEDDER say; EdenError for a missing key or a name that is none.

    `base_url` stands in for the providers' own addresses. To be made in the event loop that uses it.
    """
    embedder = embedder_of(settings)
    if settings.llm == OFFLINE and embedder == LOCAL:
        return Providers(None, None, None)
    pool = connections(settings.models.at_once, settings.models.timeout_seconds)
    model = embedding_model(settings)
    return Providers(
        chat=_chat(settings, pool, base_url),
        embeddings=_embeddings(embedder, model, settings, pool, base_url) if model else None,
        embedding_model=model,
    )


def _chat(settings: Settings, pool: httpx2.AsyncClient, base_url: str | None) -> ChatProvider | None:
    llm, seconds = settings.llm, settings.models.timeout_seconds
    if llm == OFFLINE:
        return None
    if llm == "openai":
        return OpenAIChat(key_of(llm), pool, seconds, base_url)
    if llm == "google":
        return GoogleChat(GoogleConnection(key_of(llm), pool, seconds, base_url))
    _check_url("EDEN_LLM", llm)
    variable = settings.models.api_key_env
    return CompatibleChat(wire_to(llm, key_in(variable), variable, pool, seconds))


def _embeddings(
    embedder: str, model: EmbeddingModel, settings: Settings, pool: httpx2.AsyncClient, base_url: str | None
) -> EmbeddingProvider:
    seconds = settings.models.timeout_seconds
    if embedder == "openai":
        return OpenAIEmbeddings(key_of(embedder), pool, seconds, base_url=base_url)
    if embedder == "google":
        connection = GoogleConnection(key_of(embedder), pool, seconds, base_url)
        return GoogleEmbeddings(connection, model.dimensions or None)
    _check_url("EDEN_EMBEDDER", embedder)
    variable = settings.models.api_key_env
    return CompatibleEmbeddings(wire_to(embedder, key_in(variable), variable, pool, seconds))


def _check_url(setting: str, value: str) -> None:
    """What is no URL is not shown: it might be a key."""
    if not value.startswith(("http://", "https://")):
        first = "offline" if setting == "EDEN_LLM" else "local"
        raise EdenError(
            f"{setting} names neither a provider nor a URL",
            f"It may be {first}, openai, google, or the base URL of an OpenAI-compatible endpoint.",
        )
