"""Fact lists."""

from collections.abc import Sequence
from typing import Protocol

from eden_memory.models.reranking.candidates import Ranked, When


class FactLists(Protocol):
    """Facts to rank: those of the named scopes, and of no other, by meaning or by words.

    One list for each vector or query, over all scopes together, best first, at most `most` with a score of at least
    `least`; the same fact is in a list once. Scores: semantic (1 + cosine) / 2; textual as each store documents.
    """

    async def semantic(
        self, scope_keys: Sequence[str], vectors: Sequence[bytes], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """Near packed float32 vectors of the embedder's model; a fact of another model's vector is left out."""
        ...

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        """By the words of each query: data, never syntax."""
        ...
