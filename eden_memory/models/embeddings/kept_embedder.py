"""The Embedder port over an embedding provider: kept vectors first, calls shared by requests of the same moment."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Generic, TypeVar

from eden_memory.errors import EdenError
from eden_memory.models.asking.answer_keys import text_key
from eden_memory.models.call_accounts import Accounts, Ended, of_kept
from eden_memory.models.calls import Tokens
from eden_memory.models.embeddings.embedding_calls import EmbeddingCalls, Wish
from eden_memory.models.question import Asking
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.provenance import Embedding
from eden_memory.stages.handler_run import RUN, off_the_clock

T = TypeVar("T")


RECENT = 30
"""Whoever comes so many lingers after the last round was alone, and does not wait for others."""


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
        """Let it be worked on with what else comes now."""
        self._waiting.append(item)
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._soon())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what is under way."""
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
        """Its name, as it stands beside every vector."""
        return self._model

    @property
    def dimensions(self) -> int:
        """Numbers of a vector; EdenError while that is not known."""
        if self._dimensions is None:
            raise EdenError(
                f"how many numbers a vector of {self._model} has is not known yet", "embed one text first"
            )
        return self._dimensions

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        """One vector for each text, in order, each of length 1; ProviderError, PermanentError."""
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
        """End what is under way."""
        await self._wishes.close()

    def _embedding(self, kept: Answer) -> Embedding:
        return Embedding(model=self._model, vector=kept.vectors[0], call_id=kept.call_id)

    def _note(self, wish: Wish) -> None:
        """Note this request's share of each call, also of those that it paid before a crash."""
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
