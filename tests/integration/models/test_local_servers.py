"""A model server on this machine is found, one of its models taken, and the settings fitted to it."""

import socket
from collections.abc import Generator
from typing import Any

import pytest

from eden_memory.demo import local_model
from eden_memory.demo.local_model import FittedModel, fitted_model
from eden_memory.errors import EdenError
from eden_memory.models import model_servers
from eden_memory.models.model_servers import found_server
from eden_memory.settings import Settings
from tests.model_server.script import Asked, Said, default_script
from tests.model_server.serving import Serving, serving

OLLAMA = ("nomic-embed-text:latest", "qwen3:30b", "llama3.2:3b", "gemma3:4b", "gpt-oss:120b-cloud")
SIZES = {"qwen3:30b": 18 * 10**9, "llama3.2:3b": 2 * 10**9, "gemma3:4b": 3 * 10**9}
COUNTED = " ".join(["twenty-one", "twenty-two"] * 50)


def counting(asked: Asked) -> Said:
    """As the default, but whoever asks for numbers gets some."""
    return COUNTED if asked.kind == "unknown" else default_script(asked)


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EDEN_LLM", "EDEN_MODELS_FAST", "EDEN_API_KEY"):
        monkeypatch.delenv(name, raising=False)


async def fitted(server: Serving, **more: Any) -> FittedModel:
    return await fitted_model(Settings(llm=server.openai_url, **more))


async def test_of_ollamas_models_the_largest_of_moderate_size_that_answers_here_is_taken() -> None:
    config = {"local": "ollama", "models": OLLAMA, "sizes": SIZES, "context_tokens": 16_384}
    async with serving(counting, **config) as server:
        found = await fitted(server)
        asked = set(server.called)
    assert (found.server.kind, found.model) == ("Ollama", "gemma3:4b")
    assert asked == {"gemma3:4b"}
    assert {one.name for one in found.server.models} == {"qwen3:30b", "llama3.2:3b", "gemma3:4b"}
    assert found.context == 16_384
    assert found.variables["EDEN_MODELS_AT_ONCE"] == "1"
    assert "EDEN_LIMITS_FACTS" not in found.variables
    first, *_ = found.described()
    assert first.startswith("Ollama at 127.0.0.1:")
    assert "EDEN_MODELS_FAST takes another: qwen3:30b, llama3.2:3b" in first


async def test_a_loaded_model_comes_before_a_larger_one() -> None:
    config = {"local": "ollama", "models": OLLAMA, "sizes": SIZES}
    async with serving(counting, **config) as server:
        server.called["llama3.2:3b"] = None
        found = await fitted(server)
    assert found.model == "llama3.2:3b"


async def test_a_model_that_is_named_is_taken_and_one_that_is_not_there_is_refused() -> None:
    config = {"local": "ollama", "models": OLLAMA, "sizes": SIZES}
    async with serving(counting, **config) as server:
        found = await fitted(server, models={"fast": "qwen3:30b"})
        with pytest.raises(EdenError, match=r"no model gpt-5-mini(?s:.)*llama3\.2:3b"):
            await fitted(server, models={"fast": "gpt-5-mini"})
    assert found.model == "qwen3:30b"


@pytest.mark.parametrize(("slots", "at_once"), [(1, "1"), (4, "2")])
async def test_llama_cpp_tells_its_slots_and_its_context(slots: int, at_once: str) -> None:
    config = {"local": "llama.cpp", "models": ("/models/qwen.gguf",), "slots": slots}
    async with serving(counting, context_tokens=8_192, **config) as server:
        found = await fitted(server)
    assert (found.server.kind, found.model) == ("llama.cpp", "/models/qwen.gguf")
    assert found.context == 8_192
    assert found.variables["EDEN_MODELS_AT_ONCE"] == at_once
    assert 5 <= int(found.variables["EDEN_LIMITS_FACTS"]) < 30
    assert 400 <= int(found.variables["EDEN_WINDOWS_TOKENS"]) < 1_500
    assert any("llama-server -c" in line for line in found.described())


async def test_vllm_tells_its_context_in_its_list() -> None:
    async with serving(counting, local="vllm", models=("Qwen/Qwen3-8B",), context_tokens=32_768) as server:
        found = await fitted(server)
    assert (found.server.kind, found.model, found.context) == ("vLLM", "Qwen/Qwen3-8B", 32_768)
    assert found.variables["EDEN_MODELS_AT_ONCE"] == "2"


async def test_the_time_of_a_call_follows_the_measured_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "MEASURED", 16)
    async with serving(counting, local="vllm", models=("m",), context_tokens=32_768) as server:
        quick = await fitted(server)
        server.change(token_seconds=0.1)
        slow = await fitted(server)
    assert quick.variables["EDEN_MODELS_TIMEOUT_SECONDS"] == "120"
    assert slow.tokens_a_second is not None
    assert slow.tokens_a_second <= 10
    assert 200 <= int(slow.variables["EDEN_MODELS_TIMEOUT_SECONDS"]) <= 600


async def test_every_role_and_the_vectors_go_to_it_whatever_else_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(counting, local="vllm", models=("m",), context_tokens=32_768) as server:
        found = await fitted(
            server, embedder="openai", models={"paid": "openai:gpt-5.1", "embeddings": "openai:other"}
        )
        for name, value in found.variables.items():
            monkeypatch.setenv(name, value)
        from eden_memory.models.catalogue import asked_for

        assert asked_for(Settings()) == (server.openai_url,)


async def test_a_model_that_gives_no_usable_answer_is_said_with_what_to_do() -> None:
    async with serving(lambda asked: "No.", local="vllm", models=("m",), context_tokens=32_768) as server:
        with pytest.raises(EdenError, match=r"m of vLLM at 127\.0\.0\.1:\d+ cannot be used(?s:.)*FAST"):
            await fitted(server)


@pytest.fixture
def nobody() -> Generator[str]:
    """An address on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"


def test_where_none_is_found_one_sentence_says_what_to_do(
    nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EdenError) as raised:
        found_server(places=(nobody, nobody))
    assert raised.value.what.startswith("no model server answers at 127.0.0.1:")
    assert raised.value.hint == (
        "Start Ollama, llama-server or vLLM, or name the address: EDEN_LLM=http://127.0.0.1:PORT/v1."
    )
    assert [one.split(":")[-1] for one in model_servers.PLACES.values()] == ["11434/v1", "8080/v1", "8000/v1"]
