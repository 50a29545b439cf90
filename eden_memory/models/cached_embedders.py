"""Embedders that use stored vectors first: one for memory, one for the queries of searches."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from typing import Generic, TypeVar

from eden_memory.errors import EdenError
from eden_memory.models.call_accounts import Accounts, Ended, of_kept
from eden_memory.models.embedding_calls import EmbeddingCalls, Wish
from eden_memory.models.provider_calls import CallFailed, Tokens
from eden_memory.models.question import Asking, Embedder
from eden_memory.models.stored_answers import Forwarding, text_key
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.provenance import Embedding
from eden_memory.stages.handler_run import RUN, off_the_clock

T = TypeVar("T")


RECENT = 30
"""An item that arrives this many `linger`s after the last round is worked on at once, without waiting for others."""


class Batching(Generic[T]):
    """Collects what is added in the same moment, and within `linger` seconds where rounds follow each other.

    `work` settles each item and never raises.
    """

    def __init__(self, work: Callable[[list[T]], Awaitable[None]], linger: float) -> None:
        self._work, self._linger = work, linger
        self._waiting: list[T] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._last = -math.inf

    def add(self, item: T) -> None:
        """Process an item together with the others that arrive now."""
        self._waiting.append(item)
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._soon())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel the work in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _soon(self) -> None:
        clock = asyncio.get_running_loop().time
        alone = clock() - self._last > self._linger * RECENT
        await asyncio.sleep(0.0 if alone else self._linger)
        self._last = clock()
        items, self._waiting = self._waiting, []
        await self._work(items)


LINGER = 0.003
"""Seconds in which requests join the same call."""


class KeptEmbedder:
    """An Embedder; `dimensions` None: as many as the model gives, known after the first text."""

    def __init__(
        self,
        calls: EmbeddingCalls,
        accounts: Accounts,
        model: str,
        dimensions: int | None,
        *,
        namespace: str = "live",
        linger: float = LINGER,
    ) -> None:
        self._accounts, self._model = accounts, model
        self._asked, self._dimensions = dimensions, dimensions
        self._prefix = "" if namespace == "live" else f"{namespace}/"
        self._wishes: Batching[Wish] = Batching(calls.fulfil, linger)

    @property
    def model(self) -> str:
        """The model's name, as stored with every vector."""
        return self._model

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector; EdenError while they are unknown."""
        if self._dimensions is None:
            raise EdenError(
                f"how many numbers a vector of {self._model} has is not known yet", "embed one text first"
            )
        return self._dimensions

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        """Return one vector for each text, in order, each of length 1; ProviderError, PermanentError."""
        if not texts:
            return ()
        keys = [text_key(self._model, self._asked, text) for text in texts]
        unit = f"{self._prefix}{asking.unit}/embeddings" if asking and asking.unit else None
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        wish = Wish(dict(zip(keys, texts, strict=True)), asking, unit, done, RUN.get())
        self._wishes.add(wish)
        try:
            with off_the_clock():
                await done
        finally:
            self._note(wish)
        found = [self._embedding(wish.kept[key]) for key in keys]
        self._dimensions = len(found[0].vector) // 4
        return found

    async def close(self) -> None:
        """Cancel the work in progress."""
        await self._wishes.close()

    def _embedding(self, kept: Answer) -> Embedding:
        return Embedding(model=self._model, vector=kept.vectors[0], call_id=kept.call_id)

    def _note(self, wish: Wish) -> None:
        """Record this request's share of each call, also of those that it paid before a crash."""
        for ended in wish.failed:
            self._accounts.note(ended, wish.asking)
        calls: dict[str, list[Answer]] = {}
        for kept in wish.kept.values():
            if kept.id in wish.paid or (wish.unit and kept.unit == wish.unit):
                calls.setdefault(kept.call_id, []).append(kept)
        for share in calls.values():
            again = share[0].id not in wish.paid
            self._accounts.note(_sum(share), wish.asking, again=again)


def _sum(share: Sequence[Answer]) -> Ended:
    """The call of one request's texts."""
    costs = [answer.cost_usd for answer in share if answer.cost_usd is not None]
    tokens = Tokens(input=sum(answer.input_tokens for answer in share))
    call = of_kept(share[0], "answered", 0, len(share))
    return replace(call, tokens=tokens, cost=sum(costs, Decimal(0)) if costs else None)


SECONDS = 3.0
"""Seconds that a search waits for its vectors; then it uses words alone."""

CACHE_BYTES = 32 * 2**20

ENTRY_BYTES = 256
"""Bytes of the cache for each vector, beside its numbers."""

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
        """The model's name, as stored with every vector."""
        return self._embedder.model

    @property
    def dimensions(self) -> int:
        """The dimensions of a vector; EdenError while they are unknown."""
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        """Return one vector for each text, in order; errors of `admit`, ProviderError, PermanentError."""
        vectors = {text: self._cached(text) for text in texts}
        missing = [text for text, vector in vectors.items() if vector is None]
        if missing:
            await self._admit(asking)
            vectors |= await self._asked(missing, asking or ON_NOBODYS_BEHALF)
        found = (vectors[text] for text in texts)
        return [Embedding(model=self.model, vector=vector) for vector in found if vector is not None]

    async def close(self) -> None:
        """Cancel the calls in progress."""
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
            task.exception()  # the waiting searches have received it

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
