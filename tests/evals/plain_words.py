"""BM25 as a baseline: bm25s with its defaults (k1 1.5, b 0.75), no stemming, no stop words."""

from collections.abc import Sequence
from typing import Any

import bm25s

from eden_memory.search.fact_candidates import FactCandidate


class PlainWords:
    """Over a few facts."""

    def __init__(self, facts: Sequence[FactCandidate]) -> None:
        self._ids = [one.fact_id for one in facts]
        self._index: Any = bm25s.BM25()
        self._index.index(_tokens([one.text for one in facts]), show_progress=False)

    def order(self, query: str) -> list[str]:
        """Ids of the facts that hold any of its words, best first."""
        asked = _tokens([query])
        numbers, scores = self._index.retrieve(asked, k=len(self._ids), show_progress=False)
        found = zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
        return [self._ids[number] for number, score in found if score > 0]


def _tokens(texts: list[str]) -> Any:
    library: Any = bm25s
    return library.tokenize(texts, stopwords=None, show_progress=False)
