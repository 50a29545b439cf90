"""Ranks texts that were read for one search and have no index: by cosine and BM25, in this process."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from eden_memory.memory.scope_matrix import matrix_of
from eden_memory.models.question import Asking, Embedder
from eden_memory.search.fact_candidates import FactCandidate, Ranked
from eden_memory.search.text_index import AskedWord, TextIndex

Candidates = Mapping[str, FactCandidate]
MOST_EMBEDDED = 500
"""Texts without a stored vector that one search asks vectors for, newest first; others are found by their words."""
MOST_VECTORS = 5_000
"""Cached for the next search."""
READING = 4
"""Lists made at the same time: each holds all candidates of its scopes."""


class UnindexedTexts:
    """Ranks candidates by id; `embedder` None: those without a vector are found by their words alone."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self._vectors: OrderedDict[bytes, bytes] = OrderedDict()
        self.reading = asyncio.Semaphore(READING)
        """To be held while candidates are read and ranked."""

    async def semantic(
        self, known: Candidates, vectors: Sequence[bytes], most: int, least: float
    ) -> list[list[Ranked]]:
        """Return the nearest of the candidates with a vector to each vector, exact; scores (1 + cosine) / 2."""
        pairs = [
            (name, candidate.vector) for name, candidate in known.items() if candidate.vector is not None
        ]
        matrix = await asyncio.to_thread(matrix_of, pairs, len(vectors[0]) // 4)
        hits = await asyncio.to_thread(matrix.nearest, vectors, most, least)
        return [[Ranked(known[hit.fact_id], hit.similarity) for hit in near] for near in hits]

    async def textual(
        self, known: Candidates, asked: Sequence[Sequence[AskedWord]], most: int, least: float
    ) -> list[list[Ranked]]:
        """Return each query's candidates by BM25; how rare a word is is counted over the candidates."""
        index = await asyncio.to_thread(_index, list(known.values()))
        found = [index.search(words, index.rarity(words), most) if words else [] for words in asked]
        return [[Ranked(known[name], score) for name, score in hits if score >= least] for hits in found]

    async def with_vectors(self, known: Candidates, asking: Asking | None) -> Candidates:
        """Return the candidates with vectors; `asking`: on whose behalf the embedder is asked for missing ones."""
        bare = [candidate for candidate in known.values() if candidate.vector is None]
        newest = sorted(bare, key=lambda candidate: candidate.valid_from, reverse=True)[:MOST_EMBEDDED]
        await self._embed(
            {text for candidate in newest if _hash(text := candidate.text) not in self._vectors}, asking
        )
        pairs = [(candidate, self._vectors.get(_hash(candidate.text))) for candidate in bare]
        given = {
            candidate.fact_id: replace(candidate, vector=vector)
            for candidate, vector in pairs
            if vector is not None
        }
        while len(self._vectors) > MOST_VECTORS:
            self._vectors.popitem(last=False)
        return {**known, **given}

    async def _embed(self, texts: set[str], asking: Asking | None) -> None:
        if self._embedder is None or not texts:
            return
        named = sorted(texts)
        for text, made in zip(named, await self._embedder.embed(named, asking), strict=True):
            self._vectors[_hash(text)] = made.vector


def _hash(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _index(candidates: Sequence[FactCandidate]) -> TextIndex:
    index = TextIndex()
    for candidate in candidates:
        index.put(candidate.fact_id, candidate.text)
    index.write(index.take())
    return index
