"""Which model a call takes."""

import pytest

from eden_memory.errors import EdenError
from eden_memory.models.call_accounts import per_million
from eden_memory.models.catalogue import (
    EMBEDDINGS,
    EmbeddingModel,
    ModelChoice,
    asked_for,
    choice_for,
    embedder_of,
    embedding_model,
    provider_name,
    used_for,
)
from eden_memory.models.providers import Providers
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
        ("anthropic", "decisions", 1, "claude-haiku-5-5"),
        ("anthropic", "consolidation", 1, "claude-sonnet-5-5"),
        ("openai", "facts", 1, "gpt-5-mini"),
        ("openai", "propagation", 1, "gpt-5.1"),
    ],
)
def test_the_defaults_are_those_of_provider_role_and_tier(llm: str, role: str, tier: int, model: str) -> None:
    assert choice_for(role, tier, settings(llm)) == ModelChoice(llm, model)  # pyright: ignore[reportArgumentType]


def test_settings_come_before_defaults_and_an_override_before_both() -> None:
    mine = settings("openai", fast="my-fast", paid="my-paid")
    assert choice_for("facts", 0, mine).model == "my-fast"
    assert choice_for("reflections", 1, mine).model == "my-paid"
    assert choice_for("reflections", 0, mine).model == "gpt-5-mini"
    assert choice_for("reflections", 0, mine, "my-stream's").model == "my-stream's"


def test_one_model_is_enough_for_an_endpoint_without_defaults() -> None:
    assert choice_for("consolidation", 1, settings(URL, fast="only")).model == "only"
    with pytest.raises(EdenError, match="EDEN_MODELS_PAID") as raised:
        choice_for("consolidation", 1, settings(URL))
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("llm", ["openai", "anthropic", "google"])
def test_every_default_has_a_known_price(llm: str) -> None:
    vectors = [EMBEDDINGS[llm].name] if llm in EMBEDDINGS else []
    for model in (*(choice.model or "" for choice in used_for(settings(llm))), *vectors):
        found = per_million(llm, model)
        assert found is not None
        assert found.input > 0


def test_vectors_come_from_the_provider_asked_for_unless_set_apart() -> None:
    assert embedder_of(settings("offline")) == "local"
    assert embedder_of(settings("openai")) == "openai"
    assert embedder_of(settings("openai", "local")) == "local"
    assert embedder_of(settings("anthropic")) == "local"
    assert embedder_of(settings("anthropic", embeddings="openai:text-embedding-3-small")) == "openai"
    with pytest.raises(EdenError, match="anthropic has no models of vectors"):
        embedding_model(settings("anthropic", embeddings="text-embedding-3-small"))
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
    assert asked_for(settings("offline")) == ()


def test_a_key_pasted_in_the_place_of_a_provider_is_not_shown() -> None:
    with pytest.raises(EdenError, match="EDEN_LLM") as raised:
        Providers(settings("sk-live-123"))
    assert "sk-live" not in str(raised.value)


def test_a_key_alone_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    assert asked_for(settings("offline")) == ()
    with pytest.raises(EdenError, match="GEMINI_API_KEY"):
        Providers(settings("google"))


@pytest.mark.parametrize(
    ("named", "choice"),
    [
        ("openai:gpt-5-mini", ModelChoice("openai", "gpt-5-mini")),
        ("google:gemini-3-flash-preview", ModelChoice("google", "gemini-3-flash-preview")),
        ("openai", ModelChoice("openai", "gpt-5-mini")),
        (f"{URL}#meta/llama:8b#q4", ModelChoice(URL, "meta/llama:8b#q4")),
        ("llama3:8b", ModelChoice("http://127.0.0.1:11434/v1", "llama3:8b")),
        ("openai/gpt-5", ModelChoice("http://127.0.0.1:11434/v1", "openai/gpt-5")),
        ("offline", ModelChoice("offline", None)),
    ],
)
def test_a_name_may_say_where_its_model_is(named: str, choice: ModelChoice) -> None:
    llm = "http://127.0.0.1:11434/v1"
    assert choice_for("facts", 0, settings(llm, facts=named)) == choice
    assert choice_for("facts", 0, settings(llm, fast=named)) == choice
    assert choice_for("facts", 0, settings(llm, fast="other"), named) == choice
    assert (
        choice_for("reflections", 1, settings(llm, reflections=named, paid="other")).provider
        == choice.provider
    )


def test_offline_stays_what_it_is_for_all_but_the_roles_that_name_a_provider() -> None:
    mine = settings("offline", fast="openai:gpt-5-mini", consolidation="google", free="no-provider")
    assert used_for(mine) == {
        ModelChoice("openai", "gpt-5-mini"): ("facts", "decisions"),
        ModelChoice("offline", None): ("reflections",),
        ModelChoice("google", "gemini-3-flash-preview"): ("consolidation",),
        ModelChoice("google", "gemini-3.1-pro-preview"): ("consolidation of tier 1 and above",),
    }
    assert asked_for(mine) == ("openai", "google")


def test_an_endpoint_without_a_model_is_an_error_that_shows_no_secret() -> None:
    with pytest.raises(EdenError, match="no model is named") as raised:
        choice_for("facts", 0, settings("openai", facts=URL))
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(ModelChoice(URL, None))


def test_a_model_of_vectors_may_name_its_provider_too() -> None:
    mine = settings("openai", embeddings=f"{URL}#some")
    assert embedder_of(mine) == URL
    assert embedding_model(mine) == EmbeddingModel("some", 0)
    assert embedding_model(settings("offline", embeddings="google")) == EMBEDDINGS["google"]
    assert asked_for(settings("offline", embeddings="openai:text-embedding-3-large")) == ("openai",)


def test_a_url_with_a_model_in_the_place_of_a_provider_is_an_error_that_says_where_it_goes() -> None:
    with pytest.raises(EdenError, match="EDEN_MODELS_FAST"):
        Providers(settings("https://models.example.org/v1#m", fast="m"))
