"""Rerankers: a cross-encoder on this machine's CPU, or a service behind HTTP; both implement Reranker.

A folder holds `model.onnx` and `tokenizer.json`. A service takes the form that Cohere, Jina, Voyage and others share,
`POST {"model", "query", "documents"}` answered by `{"results": [{"index", "relevance_score"}]}`, or that of
text-embeddings-inference: `{"query", "texts"}` answered by `[{"index", "score"}]`. Scores are relevances, 0 to 1.
"""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from math import exp, isfinite
from pathlib import Path
from typing import Annotated, Any

import httpx2
from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from eden_memory.errors import EdenError, ProviderError, needs_extra
from eden_memory.settings import RERANK_KEY, SearchSettings

TOKENS = 512
AT_ONCE = 16
"""Texts of one run of the model."""
HINT = "Give a folder with model.onnx and tokenizer.json."
QUIET = 3
"""onnxruntime's log level: errors."""
SECONDS = 5.0


class OnnxReranker:
    """Relevance is the sigmoid of the model's only output, or of its last (`relevant`). Loaded with the first use."""

    def __init__(self, folder: Path) -> None:
        """EdenError if the folder holds no model."""
        self._files = folder / "model.onnx", folder / "tokenizer.json"
        missing = [file.name for file in self._files if not file.is_file()]
        if missing:
            raise EdenError(f"no {' and no '.join(missing)} in {folder}", HINT)
        self._thread = ThreadPoolExecutor(1, "reranker")
        self._loading = threading.Lock()
        self._loaded: _CrossEncoder | None = None

    async def relevances(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """0 to 1, in order; EdenError if the model cannot be run."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._judged, query, list(texts))

    async def close(self) -> None:
        """End its thread."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _judged(self, query: str, texts: list[str]) -> list[float]:
        with self._loading:
            if self._loaded is None:
                self._loaded = _CrossEncoder(*self._files)
        model, parts = self._loaded, (texts[at : at + AT_ONCE] for at in range(0, len(texts), AT_ONCE))
        return [relevance(score) for part in parts for score in model.scores(query, part)]


class _CrossEncoder:
    def __init__(self, model: Path, tokenizer: Path) -> None:
        with needs_extra("a local reranker", "local-models"):
            import onnxruntime  # noqa: PLC0415 - an extra
            from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
        runtime: Any = onnxruntime
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 2, QUIET
        self._session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._inputs = {field.name for field in self._session.get_inputs()}
        self._tokenizer: Any = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(max_length=TOKENS, strategy="longest_first")
        self._tokenizer.enable_padding()

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        import numpy as np  # noqa: PLC0415 - loaded with the model

        read = self._tokenizer.encode_batch([(query, text) for text in texts])
        feeds = {
            "input_ids": [pair.ids for pair in read],
            "attention_mask": [pair.attention_mask for pair in read],
            "token_type_ids": [pair.type_ids for pair in read],
        }
        given = {name: np.array(rows, np.int64) for name, rows in feeds.items() if name in self._inputs}
        output = np.asarray(self._session.run(None, given)[0], np.float64).reshape(len(texts), -1)
        return output[:, -1].tolist()


def relevance(score: float) -> float:
    """A cross-encoder's score as a probability: its sigmoid."""
    return 1 / (1 + exp(-score)) if score >= 0 else exp(score) / (1 + exp(score))


class _Judged(BaseModel):
    model_config = ConfigDict(extra="ignore")

    index: Annotated[int, Field(ge=0)]
    relevance_score: float | None = None
    score: float | None = None

    @property
    def relevance(self) -> float:
        """0 to 1."""
        found = self.relevance_score if self.relevance_score is not None else self.score
        if found is None or not isfinite(found):
            raise ProviderError("the reranker gave no score")
        return min(1.0, max(0.0, found))


_LIST: TypeAdapter[list[_Judged]] = TypeAdapter(list[_Judged])


class HttpReranker:
    """`url` is the whole address (`https://api.cohere.com/v2/rerank`, `http://127.0.0.1:8080/rerank`).

    With a `model` it is asked as Cohere is, without one as text-embeddings-inference is.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        key: SecretStr | None = None,
        *,
        seconds: float = SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        self._url, self._model = url, model
        self._client = httpx2.AsyncClient(timeout=seconds, headers=headers, transport=transport)

    async def relevances(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """0 to 1, in order; ProviderError for anything else than a relevance of every text."""
        try:
            answer = await self._client.post(self._url, json=self._asked(query, texts))
            answer.raise_for_status()
            said: Any = answer.json()
            judged = _LIST.validate_python(said["results"] if isinstance(said, dict) else said)
        except (httpx2.HTTPError, ValidationError, ValueError, KeyError, TypeError) as error:
            raise ProviderError(f"the reranker did not answer: {type(error).__name__}") from error
        found = {text.index: text.relevance for text in judged}
        if found.keys() != set(range(len(texts))):
            raise ProviderError(f"the reranker judged {len(found)} of {len(texts)} texts")
        return [found[number] for number in range(len(texts))]

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.aclose()

    def _asked(self, query: str, texts: Sequence[str]) -> dict[str, Any]:
        if self._model is None:
            return {"query": query, "texts": list(texts), "truncate": True}
        return {"model": self._model, "query": query, "documents": list(texts), "top_n": len(texts)}


def reranker_of(settings: SearchSettings) -> HttpReranker | OnnxReranker | None:
    """EdenError if the folder that is named holds no model."""
    if settings.reranker is None:
        return None
    if settings.reranker.startswith(("http://", "https://")):
        key = os.environ.get(RERANK_KEY)
        url, _, model = settings.reranker.partition("#")
        return HttpReranker(url, model or None, SecretStr(key) if key else None)
    return OnnxReranker(Path(settings.reranker).expanduser())
