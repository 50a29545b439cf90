"""Vectors of queries: cached in the process, asked of the provider for a bounded time, never stored."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256

from eden_memory.models.asking.answer_forwarding import Forwarding
from eden_memory.models.calls import CallFailed
from eden_memory.models.question import Asking, Embedder
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.provenance import Embedding

SECONDS = 3.0
"""Seconds that a search waits for its vectors; then it goes on with words alone."""
CACHE_BYTES = 32 * 2**20
ENTRY_BYTES = 256
"""Of the cache, for each vector beside its numbers."""
ON_NOBODYS_BEHALF = Asking("search", "facts", "", "", "")
Admit = Callable[[Asking | None], Awaitable[None]]


class Unstored(Forwarding):
    """Reads the store of answers and writes nothing to it: a query's text and vector are stored nowhere."""

    async def keep(self, answer: Answer) -> Answer:
        """Return the answer."""
        return answer

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """Return the answers."""
        return list(answers)


class SearchEmbedder:
    """An Embedder of searches; `admit` raises where a call may not be made.

    A call that takes too long goes on in the background: it is paid for, so it is counted and its vectors are cached.
    """

    def __init__(
        self, embedder: Embedder, admit: Admit, *, seconds: float = SECONDS, cache_bytes: int = CACHE_BYTES
    ) -> None:
        self._embedder, self._admit = embedder, admit
        self._seconds, self._most = seconds, cache_bytes
        self._cache: OrderedDict[bytes, bytes] = OrderedDict()
        self._bytes = 0
        self._calls: set[asyncio.Task[None]] = set()

    @property
    def model(self) -> str:
        """Its name, as it stands beside every vector."""
        return self._embedder.model

    @property
    def dimensions(self) -> int:
        """Numbers of a vector; EdenError while that is not known."""
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        """One vector for each text, in order; what `admit` raises, ProviderError, PermanentError."""
        vectors = {text: self._cached(text) for text in texts}
        missing = [text for text, vector in vectors.items() if vector is None]
        if missing:
            await self._admit(asking)
            vectors |= await self._asked(missing, asking or ON_NOBODYS_BEHALF)
        found = (vectors[text] for text in texts)
        return [Embedding(model=self.model, vector=vector) for vector in found if vector is not None]

    async def close(self) -> None:
        """End the calls that are under way."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _asked(self, texts: Sequence[str], asking: Asking) -> dict[str, bytes]:
        found: dict[str, bytes] = {}

        async def call() -> None:
            for text, made in zip(texts, await self._embedder.embed(texts, asking), strict=True):
                found[text] = made.vector
                self._cache_vector(text, made.vector)

        task = asyncio.create_task(call(), name="search embedding")
        self._calls.add(task)
        task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._seconds):
                await asyncio.shield(task)
        except TimeoutError as error:
            raise CallFailed("timed_out", f"no vectors within {self._seconds:g} s") from error
        return found

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has it

    def _cached(self, text: str) -> bytes | None:
        key = _key(text)
        if key in self._cache:
            self._cache.move_to_end(key)
        return self._cache.get(key)

    def _cache_vector(self, text: str, vector: bytes) -> None:
        if _key(text) not in self._cache:
            self._bytes += len(vector) + ENTRY_BYTES
        self._cache[_key(text)] = vector
        while self._bytes > self._most:
            _, oldest = self._cache.popitem(last=False)
            self._bytes -= len(oldest) + ENTRY_BYTES


def _key(text: str) -> bytes:
    return sha256(text.encode()).digest()
