"""The adapters under test, each with its real SDK against the model server."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.models.anthropic import AnthropicChat, AnthropicConnection
from eden_memory.models.google import GoogleChat, GoogleConnection, GoogleEmbeddings
from eden_memory.models.openai import CompatibleChat, OpenAIChat, OpenAIEmbeddings, wire_to, wire_to_openai
from eden_memory.models.provider_calls import ChatProvider, EmbeddingProvider
from eden_memory.models.providers import connections
from tests.model_server.serving import Serving, serving

KEY = "sk-secret-of-the-test"
SECONDS = 10.0


@pytest.fixture
async def models() -> AsyncGenerator[Serving]:
    async with serving() as running:
        yield running


def chat_of(kind: str, url: str, seconds: float = SECONDS) -> ChatProvider:
    pool = connections(64, seconds)
    if kind == "openai":
        return OpenAIChat(wire_to_openai(KEY, pool, seconds, f"{url}/v1"))
    if kind == "anthropic":
        return AnthropicChat(AnthropicConnection(KEY, pool, seconds, url))
    if kind == "google":
        return GoogleChat(GoogleConnection(KEY, pool, seconds, url))
    return CompatibleChat(wire_to(f"{url}/v1", KEY, "EDEN_API_KEY", pool, seconds))


def embeddings_of(kind: str, url: str, dimensions: int | None, seconds: float = SECONDS) -> EmbeddingProvider:
    pool = connections(64, seconds)
    if kind == "openai":
        return OpenAIEmbeddings(wire_to_openai(KEY, pool, seconds, f"{url}/v1"), dimensions)
    if kind == "google":
        return GoogleEmbeddings(GoogleConnection(KEY, pool, seconds, url), dimensions)
    return OpenAIEmbeddings(wire_to(f"{url}/v1", KEY, "EDEN_API_KEY", pool, seconds), dimensions)


@pytest.fixture(params=["openai", "anthropic", "google", "compatible"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def chat(kind: str, models: Serving) -> AsyncGenerator[ChatProvider]:
    provider = chat_of(kind, models.url)
    yield provider
    await provider.close()
