"""Embedding adapters, through the real SDKs."""

from collections.abc import AsyncGenerator

import numpy as np
import pytest

from eden_memory.models.provider_calls import CallFailed, EmbeddingProvider
from tests.integration.models.conftest import embeddings_of
from tests.model_server.config import FaultName
from tests.model_server.serving import Serving
from tests.model_server.vectors import vector_of


@pytest.fixture
async def embeddings(kind: str, models: Serving) -> AsyncGenerator[EmbeddingProvider]:
    provider = embeddings_of(kind, models.url, 32)
    yield provider
    await provider.close()


@pytest.mark.parametrize("model", ["e-1", "gemini-embedding-2"])
async def test_each_text_has_its_own_vector_in_order(embeddings: EmbeddingProvider, model: str) -> None:
    texts = [f"fact {number} of many" for number in range(250)]
    vectors, tokens = await embeddings.embed(model, texts)
    wanted = np.array([vector_of(text, 32) for text in texts])
    assert np.allclose(np.array(vectors), wanted, atol=1e-6)
    assert tokens.input == sum(-(-len(text) // 4) for text in texts)


async def test_no_request_of_google_holds_more_than_it_takes(models: Serving) -> None:
    provider = embeddings_of("google", models.url, 8)
    await provider.embed("e-1", ["text"] * 250)
    await provider.close()
    assert models.tally.calls["embeddings"] == 3


async def test_without_a_number_the_model_has_its_own(kind: str, models: Serving) -> None:
    models.change(dimensions=48)
    provider = embeddings_of(kind, models.url, None)
    vectors, _ = await provider.embed("e-1", ["text"])
    await provider.close()
    assert len(vectors[0]) == 48


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ("rate_limited", "rate_limited"),
        ("error", "provider_error"),
        ("overloaded", "provider_error"),
        ("drop", "provider_error"),
        ("malformed", "provider_error"),
        ("unauthorized", "provider_error"),
        ("no_model", "provider_error"),
    ],
)
async def test_a_failed_embedding_is_named(
    embeddings: EmbeddingProvider, models: Serving, fault: FaultName, outcome: str
) -> None:
    models.change(embedding_rates={fault: 1.0})
    with pytest.raises(CallFailed) as raised:
        await embeddings.embed("e-1", ["text"])
    assert raised.value.outcome == outcome
    assert models.tally.calls["embeddings"] == 1


async def test_a_hanging_embedding_ends_at_its_timeout(kind: str, models: Serving) -> None:
    models.change(embedding_rates={"hang": 1.0})
    provider = embeddings_of(kind, models.url, None, seconds=0.2)
    with pytest.raises(CallFailed) as raised:
        await provider.embed("e-1", ["text"])
    await provider.close()
    assert raised.value.outcome == "timed_out"
