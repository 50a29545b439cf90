"""One scope's active facts in a process's cache: documents, vectors and words, as of a revision."""

import asyncio
from collections.abc import Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache, partial
from heapq import heappop, heappush

from eden_memory.memory.scope_matrix import Hit
from eden_memory.search.fact_candidates import CachedFact, FactCandidate, When, cached_candidate, cached_text
from eden_memory.search.stored_vector_store import LoadedVectors, QuickMatrix
from eden_memory.search.text_index import AskedWord, Rarity, TextIndex
from eden_memory.tasks import in_thread

FACT_BYTES = 150
"""Approximate size of a cached fact beside its document, vector and words."""

THREAD_PRODUCTS = 2_000_000
"""From this number of multiplications on, a thread compares vectors."""

THREAD_FACTS = 20_000
"""From this number of facts on, a thread looks up words."""


class CachedScope:
    """Active facts of a scope; writers hold `lock`, and so does a comparison in a thread."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.lock = asyncio.Lock()
        self.reported, self.read = 1, 0
        """The number of reported changes, and how many of them the last read included."""
        self.users = 0
        """The number of searches that use it; it is not evicted meanwhile."""
        self.counted = 0
        """Its share of the size of all cached scopes, in bytes."""
        self.of_users: set[str] = set()
        """Ids of facts that rest on users' messages; private sharing hides them."""
        self._expiring = ExpiringFacts()
        self._writing: asyncio.Task[None] | None = None
        self.clear()

    def clear(self) -> None:
        """Reset to the state of a scope that was never read."""
        self.revision = -1
        self.facts: dict[str, bytes] = {}
        """Documents by fact id (eden_memory.search.fact_candidates)."""
        self.agent_id = ""
        """Whether the scope was read from stored vectors."""
        self.left_out: set[str] | None = None
        """Facts removed since, while documents and words are missing because only vectors were read."""
        self.expected = 0
        """The number of facts once it has been read, so that its vectors take no more room than they need."""
        self.of_users.clear()
        self._expiring.clear()
        self._matrix: QuickMatrix | None = None
        self._words = TextIndex()
        self.has_words = False
        """Whether words can be searched, perhaps without those of the last change."""
        self._document_bytes = 0

    @property
    def stale(self) -> bool:
        """Whether it may have changed since it was read."""
        return self.reported != self.read

    @property
    def size(self) -> int:
        """Its approximate size in memory, in bytes."""
        matrix = self._matrix.size if self._matrix else 0
        return 2_000 + FACT_BYTES * len(self.facts) + self._document_bytes + matrix + self._words.size

    def begin(self, loaded: LoadedVectors) -> None:
        """Start from stored vectors; documents and words follow."""
        self.clear()
        self._matrix, self.revision, self.agent_id = loaded.matrix, loaded.revision, loaded.agent_id
        self.of_users.update(loaded.of_users)
        for fact_id, expires_at in loaded.expires_at.items():
            self._expiring.put(fact_id, expires_at)
        self.left_out = set()

    def add_documents(self, facts: Iterable[CachedFact], left_out: set[str] | None) -> bool:
        """Add missing documents; False if the scope has begun anew since `left_out` was taken from it."""
        if left_out is None or left_out is not self.left_out:
            return False
        for fact in facts:
            if fact.fact_id not in self.facts and fact.fact_id not in left_out:
                self._put_document(fact)
        return True

    def complete(self, left_out: set[str] | None) -> None:
        """Note that documents and words are there, unless the scope has begun anew."""
        if left_out is self.left_out:
            self.left_out = None

    def put(self, facts: Sequence[CachedFact]) -> None:
        """Add or replace facts."""
        for fact in facts:
            self._put_document(fact)
        vector = next((fact.vector for fact in facts if fact.vector), None)
        if vector is not None and self._matrix is None:
            self._matrix = QuickMatrix(len(vector) // 4, self.expected)
        if self._matrix is not None:
            self._matrix.put({fact.fact_id: fact.vector for fact in facts})

    def _put_document(self, fact: CachedFact) -> None:
        known = self.facts.get(fact.fact_id)
        self._document_bytes += len(fact.document) - len(known or b"")
        self.facts[fact.fact_id] = fact.document
        (self.of_users.add if fact.of_users else self.of_users.discard)(fact.fact_id)
        self._expiring.put(fact.fact_id, fact.expires_at)
        if known is None or cached_text(known) != fact.text:
            self._words.put(fact.fact_id, fact.text)

    def remove(self, fact_id: str) -> None:
        """Remove a fact, if it is cached."""
        known = self.facts.pop(fact_id, None)
        if self.left_out is not None:
            self.left_out.add(fact_id)
        elif known is None:
            return
        self.of_users.discard(fact_id)
        self._expiring.put(fact_id, None)
        self._document_bytes -= len(known or b"")
        if self._matrix is not None:
            self._matrix.remove(fact_id)
        self._words.remove(fact_id)

    def found(self, fact_ids: Iterable[str]) -> dict[str, FactCandidate]:
        """Return those of the facts that still hold, with their vectors."""
        documents = {fact_id: self.facts[fact_id] for fact_id in fact_ids if fact_id in self.facts}
        vectors = self._matrix.vectors(documents) if self._matrix is not None else {}
        return {
            fact_id: cached_candidate(fact_id, self.key, document, vectors.get(fact_id))
            for fact_id, document in documents.items()
        }

    async def nearest(self, vectors: Sequence[bytes], most: int, least: float, when: When) -> list[list[Hit]]:
        """Return each vector's nearest facts that are not hidden; none for vectors of another length."""
        hidden = self.hidden(when)
        found = await self._nearest(vectors, most + len(hidden), least)
        if not hidden:
            return found
        return [[hit for hit in hits if hit.fact_id not in hidden][:most] for hits in found]

    async def _nearest(self, vectors: Sequence[bytes], most: int, least: float) -> list[list[Hit]]:
        matrix = self._matrix
        if matrix is None or not all(map(matrix.fits, vectors)):
            return [[] for _ in vectors]
        if len(matrix) * matrix.dimensions * len(vectors) < THREAD_PRODUCTS:
            return matrix.nearest(vectors, most, least)
        async with self.lock:
            return await in_thread(partial(matrix.nearest, vectors, most, least))

    async def words_ready(self) -> None:
        """Index its words, all of them the first time; a cancelled caller does not stop the others."""
        while self.words_waiting:
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write_words())
            await asyncio.shield(self._writing)

    async def _write_words(self) -> None:
        words, writes = self._words, self._words.take()
        try:
            await asyncio.get_running_loop().run_in_executor(_writers(), words.write, writes)
        except BaseException:
            self.clear()
            self.reported += 1
            raise
        words.written(writes)
        self.has_words = self._words is words

    @property
    def words_waiting(self) -> bool:
        """Whether words wait to be indexed."""
        return self._words.waiting or (self._writing is not None and not self._writing.done())

    def rarity(self, words: Iterable[AskedWord]) -> Rarity:
        """Count how often stems occur in its facts."""
        return self._words.rarity(words)

    async def by_words(
        self, words: Sequence[AskedWord], rarity: Rarity, most: int, when: When
    ) -> list[tuple[str, float]]:
        """Return the facts that have these words and are not hidden, best first."""
        hidden = self.hidden(when)
        found = await self._by_words(words, rarity, most + len(hidden))
        return [hit for hit in found if hit[0] not in hidden][:most] if hidden else found

    def hidden(self, when: When) -> Set[str]:
        """Return the facts that this search may not find."""
        moment = when.unexpired_at
        expired = self._expiring.past(moment) if moment is not None else frozenset[str]()
        hidden = when.private & self.facts.keys() if when.private else frozenset[str]()
        return expired | hidden | (self.of_users if self.key in when.private else frozenset[str]())

    async def _by_words(
        self, words: Sequence[AskedWord], rarity: Rarity, most: int
    ) -> list[tuple[str, float]]:
        if len(self.facts) < THREAD_FACTS:
            return self._words.search(words, rarity, most)
        return await asyncio.to_thread(self._words.search, words, rarity, most)


@cache
def _writers() -> ThreadPoolExecutor:
    """Return threads that only write, so that searches never wait for writes."""
    return ThreadPoolExecutor(2, "words")


class ExpiringFacts:
    """Facts with a time at which they expire; few are expired at any moment, because they are soon retired."""

    def __init__(self) -> None:
        self._times: dict[str, datetime] = {}
        self._ahead: list[tuple[datetime, str]] = []
        """A heap by time; an entry whose time is no longer the fact's is left out once it is reached."""
        self._past: set[str] = set()
        """Facts whose expiry a search has reached."""

    def clear(self) -> None:
        """Forget all facts."""
        self._times.clear()
        self._ahead.clear()
        self._past.clear()

    def put(self, fact_id: str, time: datetime | None) -> None:
        """Note when a fact expires; None: never, or it is gone."""
        if self._times.get(fact_id) == time:
            return
        self._past.discard(fact_id)
        if time is None:
            del self._times[fact_id]
        else:
            self._times[fact_id] = time
            heappush(self._ahead, (time, fact_id))

    def past(self, moment: datetime) -> Set[str]:
        """Return the facts that have expired by a moment."""
        while self._ahead and self._ahead[0][0] <= moment:
            time, fact_id = heappop(self._ahead)
            if self._times.get(fact_id) == time:
                self._past.add(fact_id)
        return {fact_id for fact_id in self._past if self._times[fact_id] <= moment}
