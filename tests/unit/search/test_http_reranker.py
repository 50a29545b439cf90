"""Rerankers behind HTTP: both wire forms, answers in any order, and everything else an error."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from eden_memory.errors import EdenError, ProviderError
from eden_memory.models.rerankers import HttpReranker, reranker_of
from eden_memory.settings import SearchSettings

Answering = Callable[[httpx2.Request], httpx2.Response]


def reranker(answer: Answering, model: str | None = None) -> HttpReranker:
    return HttpReranker(
        "http://reranker.test/rerank", model, SecretStr("k"), transport=httpx2.MockTransport(answer)
    )


async def test_cohere_and_jina_are_asked_in_their_form() -> None:
    seen: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append((json.loads(request.content), request.headers["authorization"]))
        results = [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.2}]
        return httpx2.Response(200, json={"id": "x", "results": results})

    judge = reranker(answer, "rerank-v3.5")
    assert await judge.relevances("q", ["a", "b"]) == [0.2, 0.9]
    asked, key = seen[0]
    assert asked == {"model": "rerank-v3.5", "query": "q", "documents": ["a", "b"], "top_n": 2}
    assert key == "Bearer k"
    await judge.close()


async def test_text_embeddings_inference_is_asked_in_its_form() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        assert json.loads(request.content) == {"query": "q", "texts": ["a", "b"], "truncate": True}
        return httpx2.Response(200, json=[{"index": 1, "score": 0.9}, {"index": 0, "score": 1.7}])

    judge = reranker(answer)
    assert await judge.relevances("q", ["a", "b"]) == [1.0, 0.9]
    await judge.close()


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(503),
        httpx2.Response(200, content=b"<html>"),
        httpx2.Response(200, json={"results": [{"index": 0, "relevance_score": 1}]}),
        httpx2.Response(200, json={"results": [{"index": 0}, {"index": 1}]}),
        httpx2.Response(200, json=[{"index": 0, "score": 0.5}, {"index": 7, "score": 0.5}]),
        httpx2.Response(200, json="no"),
    ],
)
async def test_anything_but_a_relevance_of_every_text_is_an_error(response: httpx2.Response) -> None:
    judge = reranker(lambda _: response)
    with pytest.raises(ProviderError):
        await judge.relevances("q", ["a", "b"])
    await judge.close()


async def test_settings_choose_and_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    assert reranker_of(SearchSettings()) is None
    chosen = reranker_of(SearchSettings(reranker="http://127.0.0.1:1/rerank"))
    assert isinstance(chosen, HttpReranker)
    await chosen.close()
    named = reranker_of(SearchSettings(reranker="https://api.example/v2/rerank#rerank-v4"))
    assert isinstance(named, HttpReranker)
    assert (named._url, named._model) == ("https://api.example/v2/rerank", "rerank-v4")  # pyright: ignore[reportPrivateUsage]
    await named.close()
    with pytest.raises(EdenError, match=r"model\.onnx"):
        reranker_of(SearchSettings(reranker=str(tmp_path)))
