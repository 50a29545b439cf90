"""BM25 as a baseline: bm25s with its defaults (k1 1.5, b 0.75), no stemming, no stop words."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from eden_memory.errors import EdenError


class PlainWords:
    """Over a few texts by id; EdenError without the extra `eval`."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self._library = _bm25s()
        self._ids = list(ids)
        self._index: Any = self._library.BM25()
        self._index.index(self._tokens(list(texts)), show_progress=False)

    def order(self, query: str) -> list[str]:
        """Ids of the texts that hold any of its words, best first."""
        numbers, scores = self._index.retrieve(self._tokens([query]), k=len(self._ids), show_progress=False)
        found = zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
        return [self._ids[number] for number, score in found if score > 0]

    def _tokens(self, texts: list[str]) -> Any:
        return self._library.tokenize(texts, stopwords=None, show_progress=False)


def _bm25s() -> Any:
    try:
        return import_module("bm25s")
    except ImportError:
        raise EdenError("BM25 needs the package bm25s", "pip install 'eden-memory[eval]'") from None
