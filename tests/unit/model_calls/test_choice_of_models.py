"""Which models a process uses, and what it says of that and of keys."""

import subprocess
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from eden_memory.assembly.model_factory import Models
from eden_memory.errors import EdenError
from eden_memory.models.cached_embedders import KeptEmbedder
from eden_memory.models.local_embedder import LocalEmbedder
from eden_memory.models.providers import Providers
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.settings import ModelsSettings, Settings
from tests.unit.model_calls.model_fakes import (
    GOOD,
    PROMPT,
    FakeChat,
    MemoryAnswers,
    asking,
    cost,
)

KEY = "sk-not-to-be-seen"
URL = "http://127.0.0.1:9/v1"


def models(llm: str = "offline", **fields: Any) -> Models:
    return Models(Settings(llm=llm, **fields), MemoryAnswers(), cost)


async def test_without_a_key_rules_form_memory_and_the_log_says_how_poor_it_is() -> None:
    made = models()
    assert isinstance(made.embedder, LocalEmbedder)
    assert (await made.language_model.ask(PROMPT, ConsolidatedText, asking())).call is None
    with capture_logs() as logs:
        made.introduce()
    assert "much poorer" in logs[0]["event"]
    await made.close()


async def test_a_key_that_nobody_asked_for_is_mentioned_by_name_and_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    made = models()
    with capture_logs() as logs:
        made.introduce()
    assert (await made.language_model.ask(PROMPT, ConsolidatedText, asking())).call is None
    assert [entry["variable"] for entry in logs if "variable" in entry] == ["OPENAI_API_KEY"]
    assert KEY not in repr(logs)
    await made.close()


async def test_what_is_asked_for_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    made = models("openai")
    assert isinstance(made.embedder, KeptEmbedder)
    assert (made.embedder.model, made.embedder.dimensions) == ("text-embedding-3-small", 1536)
    await made.close()
    with_vectors_here = models("openai", embedder="local")
    assert isinstance(with_vectors_here.embedder, LocalEmbedder)
    await with_vectors_here.close()


def test_a_provider_without_a_key_is_an_error_for_people() -> None:
    with pytest.raises(EdenError, match="no key") as raised:
        models("openai")
    assert "OPENAI_API_KEY" in raised.value.hint


def test_no_provider_sdk_is_loaded_where_none_is_asked_for() -> None:
    script = (
        "import sys; from eden_memory.assembly.model_factory import Models\n"
        "from eden_memory.settings import Settings\n"
        "Models(Settings(), None, None)\n"
        "print(sorted({'openai', 'google.genai', 'onnxruntime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("wanted", [True, False])
async def test_prompts_are_logged_only_when_asked_for(wanted: bool) -> None:
    settings = Settings(
        llm=URL,
        models=ModelsSettings(fast="test-1", log_prompts=wanted),  # pyright: ignore[reportCallIssue]
    )
    made = Models(
        settings, MemoryAnswers(), cost, providers=Providers(settings, chats={URL: FakeChat([GOOD])})
    )
    with capture_logs() as logs:
        await made.language_model.ask(PROMPT, ConsolidatedText, asking())
    assert (PROMPT.user in repr(logs)) is wanted
    await made.close()


async def test_only_the_role_that_names_a_provider_asks_it() -> None:
    chat = FakeChat([GOOD])
    settings = Settings(models=ModelsSettings(consolidation=f"{URL}#m-1"))  # pyright: ignore[reportCallIssue]
    made = Models(settings, MemoryAnswers(), cost, providers=Providers(settings, chats={URL: chat}))
    assert (await made.language_model.ask(PROMPT, ConsolidatedText, asking())).call is not None
    other = asking("reflections:e1", role="reflections")
    assert (await made.language_model.ask(PROMPT, ConsolidatedText, other)).call is None
    assert chat.models == ["m-1"]
    await made.close()


async def test_an_override_may_name_a_provider_or_the_rules() -> None:
    chat, other = FakeChat([GOOD]), FakeChat([GOOD])
    settings = Settings(llm=URL, models=ModelsSettings(fast="m-1"))  # pyright: ignore[reportCallIssue]
    providers = Providers(settings, chats={URL: chat, "http://127.0.0.1:8/v1": other})
    made = Models(settings, MemoryAnswers(), cost, providers=providers)
    for number, model in enumerate(["m-2", "http://127.0.0.1:8/v1#m-3", "offline"]):
        await made.language_model.ask(
            PROMPT, ConsolidatedText, asking(f"consolidation:{number}", model=model)
        )
    assert (chat.models, other.models) == (["m-2"], ["m-3"])
    await made.close()


async def test_the_log_says_which_role_uses_what_and_shows_no_secret_of_a_url() -> None:
    address = f"http://someone:{KEY}@127.0.0.1:9/v1"
    names = ModelsSettings(facts=f"{address}#small", decisions="offline", fast="main", paid=f"{address}#big")  # pyright: ignore[reportCallIssue]
    made = models(URL, models=names)
    with capture_logs() as logs:
        made.introduce()
    told = logs[0]
    assert told["facts"] == "127.0.0.1:9 small"
    assert told["reflections"] == "127.0.0.1:9 main"
    assert told["reflections of tier 1 and above"] == "127.0.0.1:9 big"
    assert logs[1]["roles"] == ["decisions"]
    assert KEY not in repr(logs)
    await made.close()


def test_an_empty_variable_names_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDEN_MODELS_FAST", "")
    monkeypatch.setenv("EDEN_LLM", "")
    settings = Settings()
    assert (settings.models.fast, settings.llm) == (None, "offline")
