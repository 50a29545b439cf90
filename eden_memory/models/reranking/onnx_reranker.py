"""A cross-encoder from a folder (model.onnx, tokenizer.json) on this machine's CPU; port Reranker."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from eden_memory.errors import EdenError
from eden_memory.models.reranking.relevance import relevance

TOKENS = 512
AT_ONCE = 16
"""Texts of one run of the model."""
HINT = "Give a folder with model.onnx and tokenizer.json; the extra `local-models` runs it."
QUIET = 3
"""onnxruntime's log level: errors."""


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
        try:
            import onnxruntime  # noqa: PLC0415 - an extra
            from tokenizers import Tokenizer  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise EdenError(f"a local reranker needs the package {error.name}", HINT) from error
        runtime: Any = onnxruntime
        options = runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 2, QUIET
        self._session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._inputs = {one.name for one in self._session.get_inputs()}
        self._tokenizer: Any = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.enable_truncation(max_length=TOKENS, strategy="longest_first")
        self._tokenizer.enable_padding()

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        import numpy as np  # noqa: PLC0415 - loaded with the model

        read = self._tokenizer.encode_batch([(query, text) for text in texts])
        feeds = {
            "input_ids": [one.ids for one in read],
            "attention_mask": [one.attention_mask for one in read],
            "token_type_ids": [one.type_ids for one in read],
        }
        given = {name: np.array(rows, np.int64) for name, rows in feeds.items() if name in self._inputs}
        output = np.asarray(self._session.run(None, given)[0], np.float64).reshape(len(texts), -1)
        return output[:, -1].tolist()
