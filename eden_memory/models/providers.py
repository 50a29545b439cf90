"""The providers that are asked for, each with a pool of connections of its own. A key alone asks for nothing."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import httpx2

from eden_memory.errors import needs
from eden_memory.models.breaker import LONGEST
from eden_memory.models.catalogue import (
    CHAT,
    LOCAL_MODELS,
    EmbeddingModel,
    asked_for,
    chat_providers,
    check_url,
    embedder_of,
    embedding_model,
    endpoint_variable,
    key_in,
    key_of,
    provider_name,
)
from eden_memory.models.provider_calls import ChatProvider, EmbeddingProvider
from eden_memory.settings import API_KEY, Settings

if TYPE_CHECKING:
    from eden_memory.models.anthropic import AnthropicConnection
    from eden_memory.models.google import GoogleConnection
    from eden_memory.models.openai import OpenAIWire


CONNECT_SECONDS = 10.0

IDLE_SECONDS = 60.0

SPARE = 8
"""Connections beyond the calls at once, for embeddings and checks."""

MOST_IDLE = 24
"""Connections kept open without a call: the pool looks at each of them whenever a call begins or ends."""

QUIET = ("openai", "anthropic", "google_genai", "httpx2", "httpcore2")
"""Loggers of the SDKs; at debug level they would log prompts and answers."""


class Providers:
    """Those that the settings name from the start, others when an agent or stream first names them."""

    def __init__(
        self,
        settings: Settings,
        base_url: str | None = None,
        chats: Mapping[str, ChatProvider] | None = None,
    ) -> None:
        """EdenError for a missing key or a name that is none; to be made in the event loop that uses it.

        `base_url` stands in for the providers' own addresses, `chats` for adapters of their own.
        """
        self._settings, self._base_url = settings, base_url
        self._longest = settings.models.timeout_seconds * LONGEST
        """Longest seconds of a call; callers set deadlines of their own."""
        self._pools: dict[str, httpx2.AsyncClient] = {}
        self._chats: dict[str, ChatProvider] = dict(chats or {})
        embedder = embedder_of(settings)
        self.embedding_model: EmbeddingModel | None = embedding_model(settings)
        self.embeddings: EmbeddingProvider | None = (
            None if embedder in LOCAL_MODELS else self._embeddings(embedder)
        )
        for provider in chat_providers(settings):
            self.chat(provider)

    def chat(self, provider: str) -> ChatProvider:
        """Return a provider's or endpoint's chat models; EdenError for a missing key or no URL."""
        if provider not in self._chats:
            self._chats[provider] = self._chat(provider)
        return self._chats[provider]

    async def close(self) -> None:
        """Close the connections."""
        for chat in (*self._chats.values(), self.embeddings):
            if chat is not None:
                await chat.close()

    def _chat(self, provider: str) -> ChatProvider:
        effort = self._settings.models.effort
        _need_sdk(provider)
        if provider == "anthropic":
            from eden_memory.models.anthropic import AnthropicChat  # noqa: PLC0415 - an extra, and large

            return AnthropicChat(self._anthropic(), effort)
        if provider == "google":
            from eden_memory.models.google import GoogleChat  # noqa: PLC0415 - an extra, and large

            return GoogleChat(self._google(), effort)
        from eden_memory.models.openai import CompatibleChat, OpenAIChat  # noqa: PLC0415 - an extra

        if provider == "openai":
            return OpenAIChat(self._openai(), effort)
        return CompatibleChat(self._wire("EDEN_LLM", provider), effort)

    def _embeddings(self, embedder: str) -> EmbeddingProvider:
        _need_sdk(embedder)
        if embedder == "google":
            from eden_memory.models.google import GoogleEmbeddings  # noqa: PLC0415 - see above

            dimensions = self.embedding_model.dimensions if self.embedding_model else 0
            return GoogleEmbeddings(self._google(), dimensions or None)
        from eden_memory.models.openai import OpenAIEmbeddings  # noqa: PLC0415 - see above

        wire = self._openai() if embedder == "openai" else self._wire("EDEN_EMBEDDER", embedder)
        return OpenAIEmbeddings(wire)

    def _openai(self) -> "OpenAIWire":
        from eden_memory.models.openai import wire_to_openai  # noqa: PLC0415 - see above

        return wire_to_openai(key_of("openai"), self._pool("openai"), self._longest, self._base_url)

    def _anthropic(self) -> "AnthropicConnection":
        from eden_memory.models.anthropic import AnthropicConnection  # noqa: PLC0415 - see above

        return AnthropicConnection(
            key_of("anthropic"), self._pool("anthropic"), self._longest, self._base_url
        )

    def _google(self) -> "GoogleConnection":
        from eden_memory.models.google import GoogleConnection  # noqa: PLC0415 - see above

        return GoogleConnection(key_of("google"), self._pool("google"), self._longest, self._base_url)

    def _wire(self, setting: str, url: str) -> "OpenAIWire":
        from eden_memory.models.openai import wire_to  # noqa: PLC0415 - see above

        check_url(setting, url)
        variable = self._key_variable(url)
        return wire_to(url, key_in(variable), variable, self._pool(url), self._longest)

    def _key_variable(self, url: str) -> str:
        """Of this endpoint alone, or the general one, which no endpoint gets that only an agent or stream names."""
        own = endpoint_variable(provider_name(url))
        return API_KEY if key_in(own) is None and url in asked_for(self._settings) else own

    def _pool(self, provider: str) -> httpx2.AsyncClient:
        models = self._settings.models
        if provider not in self._pools:
            self._pools[provider] = connections(models.at_once, self._longest)
        return self._pools[provider]


def _need_sdk(provider: str) -> None:
    """MissingExtra where its SDK is not installed; OpenAI's speaks to compatible endpoints too."""
    needs(provider if provider in CHAT else "openai", f"the provider {provider_name(provider)}")


def connections(at_once: int, seconds: float) -> httpx2.AsyncClient:
    """A pool for so many calls at once; whoever makes it closes it."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    limits = httpx2.Limits(
        max_connections=at_once + SPARE,
        max_keepalive_connections=min(at_once + SPARE, MOST_IDLE),
        keepalive_expiry=IDLE_SECONDS,
    )
    timeout = httpx2.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))
    return httpx2.AsyncClient(limits=limits, timeout=timeout, follow_redirects=True)
