"""Which model a call takes."""

import pytest

from eden_memory.domain.errors import EdenError
from eden_memory.models.catalogue import (
    EMBEDDINGS,
    EmbeddingModel,
    embedder_of,
    embedding_model,
    model_for,
    provider_name,
)
from eden_memory.models.prices import per_million
from eden_memory.models.providers import providers_of
from eden_memory.settings import ModelsSettings, Settings

URL = "https://someone:secret@models.example.org/v1"


def settings(llm: str, embedder: str | None = None, **models: str) -> Settings:
    return Settings(llm=llm, embedder=embedder, models=ModelsSettings(**models))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("llm", "role", "tier", "model"),
    [
        ("google", "facts", 3, "gemini-3-flash-preview"),
        ("google", "decisions", 0, "gemini-3-flash-preview"),
        ("google", "reflections", 0, "gemini-3-flash-preview"),
        ("google", "reflections", 1, "gemini-3.1-pro-preview"),
        ("google", "consolidation", 2, "gemini-3.1-pro-preview"),
        ("openai", "facts", 1, "gpt-5-mini"),
        ("openai", "propagation", 1, "gpt-5.1"),
    ],
)
def test_the_defaults_are_those_of_provider_role_and_tier(llm: str, role: str, tier: int, model: str) -> None:
    assert model_for(role, tier, settings(llm)) == model  # pyright: ignore[reportArgumentType]


def test_settings_come_before_defaults_and_an_override_before_both() -> None:
    mine = settings("openai", fast="my-fast", paid="my-paid")
    assert model_for("facts", 0, mine) == "my-fast"
    assert model_for("reflections", 1, mine) == "my-paid"
    assert model_for("reflections", 0, mine) == "gpt-5-mini"
    assert model_for("reflections", 0, mine, "my-stream's") == "my-stream's"


def test_one_model_is_enough_for_an_endpoint_without_defaults() -> None:
    assert model_for("consolidation", 1, settings(URL, fast="only")) == "only"
    with pytest.raises(EdenError, match="EDEN_MODELS_PAID") as raised:
        model_for("consolidation", 1, settings(URL))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("llm", ["openai", "google"])
def test_every_default_has_a_known_price(llm: str) -> None:
    chosen = {model_for(role, tier, settings(llm)) for role in ("facts", "reflections") for tier in (0, 1)}
    for model in (*chosen, EMBEDDINGS[llm].name):
        found = per_million(llm, model)
        assert found is not None
        assert found.input > 0


def test_vectors_come_from_the_provider_asked_for_unless_set_apart() -> None:
    assert embedder_of(settings("offline")) == "local"
    assert embedder_of(settings("openai")) == "openai"
    assert embedder_of(settings("openai", "local")) == "local"
    assert embedder_of(settings(URL)) == "local"
    assert embedder_of(settings(URL, embeddings="some")) == URL
    assert embedding_model(settings("offline")) is None
    assert embedding_model(settings("google")) == EmbeddingModel("gemini-embedding-2", 1_536)
    assert embedding_model(settings("openai", embeddings="text-embedding-3-large")) == EmbeddingModel(
        "text-embedding-3-large", 3_072
    )
    assert embedding_model(settings("offline", URL, embeddings="some")) == EmbeddingModel("some", 0)


def test_an_endpoint_is_named_by_its_host_and_port() -> None:
    assert provider_name(URL) == "models.example.org"
    assert provider_name("http://127.0.0.1:11434/v1") == "127.0.0.1:11434"
    assert provider_name("openai") == "openai"


def test_offline_needs_no_provider() -> None:
    assert providers_of(settings("offline")).chat is None


def test_a_key_pasted_in_the_place_of_a_provider_is_not_shown() -> None:
    with pytest.raises(EdenError, match="EDEN_LLM") as raised:
        providers_of(settings("sk-live-123"))
    assert "sk-live" not in str(raised.value)


def test_a_key_alone_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    assert providers_of(settings("offline")).chat is None
    with pytest.raises(EdenError, match="GEMINI_API_KEY"):
        providers_of(settings("google"))
