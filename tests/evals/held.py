"""What the evaluation searches in: the product's text index and exact cosine over one conversation, in memory."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir

import numpy as np

from eden_memory.memory.scope_matrix import matrix_of
from eden_memory.models.local_embedder import DIMENSIONS, MODEL, LocalEmbedder
from eden_memory.models.question import Asking
from eden_memory.schemas.provenance import Embedding
from eden_memory.search.fact_candidates import FactCandidate, Ranked, When
from eden_memory.search.text_index import TextIndex, asked_words


class HeldFacts:
    """FactLists over a few facts, in memory; lists are made once and cut."""

    def __init__(self, facts: Sequence[FactCandidate]) -> None:
        self._facts = {one.fact_id: one for one in facts}
        self._matrix = matrix_of(((one.fact_id, one.vector or b"") for one in facts), DIMENSIONS)
        self._words = TextIndex()
        for one in facts:
            self._words.put(one.fact_id, one.text)
        self._words.write(self._words.take())
        self._known: dict[bytes | str, list[Ranked]] = {}

    async def semantic(
        self,
        scope_keys: Sequence[str],
        vectors: Sequence[bytes],
        most: int,
        least: float,
        when: When,
        asking: Asking | None = None,
    ) -> Sequence[Sequence[Ranked]]:
        return [_cut(self._near(vector), most, least) for vector in vectors]

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> Sequence[Sequence[Ranked]]:
        return [_cut(self._said(query), most, least) for query in queries]

    def _near(self, vector: bytes) -> list[Ranked]:
        if vector not in self._known:
            hits = self._matrix.nearest([vector], len(self._facts), 0.0)[0]
            self._known[vector] = [Ranked(self._facts[hit.fact_id], hit.similarity) for hit in hits]
        return self._known[vector]

    def _said(self, query: str) -> list[Ranked]:
        if query not in self._known:
            words = asked_words(query)
            hits = self._words.search(words, self._words.rarity(words), len(self._facts))
            self._known[query] = [Ranked(self._facts[fact_id], score) for fact_id, score in hits]
        return self._known[query]


def _cut(found: Sequence[Ranked], most: int, least: float) -> list[Ranked]:
    return [one for one in found[:most] if one.score >= least]


class KnownVectors:
    """A local embedder; vectors are kept in the temporary folder from run to run, under their text's hash."""

    dimensions = DIMENSIONS

    def __init__(self, model: str = MODEL, folder: Path | None = None) -> None:
        self.model = model
        self._file = (folder or Path(gettempdir())) / f"eden-evaluation-{model}.npz"
        self._known: dict[str, bytes] = {}
        if self._file.is_file():
            with np.load(self._file) as kept:
                rows = np.ascontiguousarray(kept["vectors"])
                self._known = {
                    str(name): row.tobytes() for name, row in zip(kept["names"], rows, strict=True)
                }

    async def learn(self, texts: Sequence[str]) -> None:
        """Embed those that are not known."""
        new = [text for text in dict.fromkeys(texts) if _name(text) not in self._known]
        if not new:
            return
        embedder = LocalEmbedder(model=self.model)
        try:
            made = await embedder.embed(new)
        finally:
            await embedder.close()
        self._known.update((_name(text), one.vector) for text, one in zip(new, made, strict=True))
        vectors = np.stack([np.frombuffer(one, "<f4") for one in self._known.values()])
        made_here = self._file.with_name(f"{os.getpid()}-{self._file.name}")
        np.savez(made_here, names=np.array(list(self._known)), vectors=vectors)
        made_here.replace(self._file)

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        await self.learn(texts)
        return [Embedding(model=self.model, vector=self._known[_name(text)]) for text in texts]

    async def with_vectors(self, facts: Sequence[FactCandidate]) -> list[FactCandidate]:
        """The facts with the vectors of their texts."""
        await self.learn([one.text for one in facts])
        known: Mapping[str, bytes] = self._known
        return [replace(one, vector=known[_name(one.text)]) for one in facts]


def _name(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]
