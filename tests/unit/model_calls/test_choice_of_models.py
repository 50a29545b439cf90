"""Which models a process uses, and what it says of that and of keys."""

import subprocess
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from eden_memory.domain.errors import EdenError
from eden_memory.models.asking import AskingModel
from eden_memory.models.embedding import KeptEmbedder
from eden_memory.models.factory import Models
from eden_memory.models.local_embedder import LocalEmbedder
from eden_memory.models.offline import OfflineModel
from eden_memory.models.providers import Providers
from eden_memory.settings import ModelsSettings, Settings
from schemas.answers import ConsolidatedText
from tests.unit.model_calls.model_fakes import (
    GOOD,
    PROMPT,
    FakeChat,
    MemoryAnswers,
    asking,
    cost,
)

KEY = "sk-not-to-be-seen"


def models(llm: str = "offline", **fields: Any) -> Models:
    return Models(Settings(llm=llm, **fields), MemoryAnswers(), cost)


async def test_without_a_key_rules_form_memory_and_the_log_says_how_poor_it_is() -> None:
    made = models()
    assert isinstance(made.language_model, OfflineModel)
    assert isinstance(made.embedder, LocalEmbedder)
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
    assert isinstance(made.language_model, OfflineModel)
    assert [entry["variable"] for entry in logs if "variable" in entry] == ["OPENAI_API_KEY"]
    assert KEY not in repr(logs)
    await made.close()


async def test_what_is_asked_for_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    made = models("openai")
    assert isinstance(made.language_model, AskingModel)
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
        "import sys; from eden_memory.models.factory import Models; from eden_memory.settings import Settings\n"
        "Models(Settings(), None, None)\n"
        "print(sorted({'openai', 'google.genai', 'onnxruntime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("wanted", [True, False])
async def test_prompts_are_logged_only_when_asked_for(wanted: bool) -> None:
    settings = Settings(
        llm="http://127.0.0.1:9/v1",
        models=ModelsSettings(fast="test-1", log_prompts=wanted),  # pyright: ignore[reportCallIssue]
    )
    providers = Providers(FakeChat([GOOD]), None, None)
    made = Models(settings, MemoryAnswers(), cost, providers=providers)
    with capture_logs() as logs:
        await made.language_model.ask(PROMPT, ConsolidatedText, asking())
    assert (PROMPT.user in repr(logs)) is wanted
    await made.close()
