"""The models of an evaluation: calls counted, capped in US dollars, and kept in a file."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import numpy as np

from eden_memory.assembly.model_factory import Models
from eden_memory.call_costs import unpriced
from eden_memory.errors import EdenError
from eden_memory.evals.answer_file import AnswerFile
from eden_memory.failures import CapReached
from eden_memory.models.call_accounts import Prices
from eden_memory.models.catalogue import OFFLINE, choice_for
from eden_memory.models.local_embedder import LocalEmbedder
from eden_memory.models.question import Asking, Prompt, unit_of
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import Settings

AT_ONCE = 8
STAGE = "eval"
A = TypeVar("A", bound=ModelAnswer)


@dataclass(frozen=True, slots=True)
class Spent:
    """Calls, tokens and cost; `usd` where the price is known."""

    tokens_in: int = 0
    tokens_out: int = 0
    usd: Decimal = Decimal(0)
    seconds: float = 0.0
    calls: int = 0

    def plus(self, other: "Spent") -> "Spent":
        """Return the sum."""
        return Spent(
            self.tokens_in + other.tokens_in,
            self.tokens_out + other.tokens_out,
            self.usd + other.usd,
            self.seconds + other.seconds,
            self.calls + other.calls,
        )

    def since(self, before: "Spent", seconds: float) -> "Spent":
        """Return what was spent after a moment, and in how many seconds."""
        return Spent(
            self.tokens_in - before.tokens_in,
            self.tokens_out - before.tokens_out,
            self.usd - before.usd,
            seconds,
            self.calls - before.calls,
        )

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.tokens_in + self.tokens_out


NOTHING_SPENT = Spent()


@dataclass(slots=True)
class EvalCap:
    """Money paid in this run; what was paid before is free."""

    usd: Decimal
    paid: Decimal = Decimal(0)
    unpriced: int = 0
    """Calls whose price is unknown: they do not count."""
    spent: Spent = NOTHING_SPENT
    """On calls of this process."""

    def called(self, call: ModelCalled) -> None:
        """Count a call (eden_memory.models.call_accounts.CallWatch)."""
        usd = call.cost_usd or Decimal(0)
        self.paid += usd
        new = Spent(call.input_tokens, call.output_tokens, usd, call.seconds, call.requests)
        self.spent = self.spent.plus(new)
        self.unpriced += call.requests if unpriced(call) else 0

    @property
    def left(self) -> Decimal:
        """US dollars."""
        return self.usd - self.paid

    def demand(self) -> None:
        """Raise CapReached if nothing is left."""
        if self.paid > 0 and self.left <= 0:
            raise CapReached("the cap leaves no room for this call")


class EvalModels:
    """The language model and embedder that the settings name; make it in the event loop that uses it."""

    def __init__(self, settings: Settings, file: Path, cap: EvalCap) -> None:
        """EdenError if a provider that is asked for has no key."""
        self._settings, self.cap = settings, cap
        self._answers = AnswerFile(file)
        self._models = Models(settings, self._answers, Prices().cost, calls=cap)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self.dimensions = 0

    async def close(self) -> None:
        """Let go of threads, connections and the file."""
        await self._models.close()
        self._answers.close()

    def named(self, model: str | None) -> str | None:
        """Return a chat model's name for people; None: rules answer, or none is named."""
        try:
            choice = choice_for("facts", 0, self._settings, model)
        except EdenError:
            return None
        return None if choice.provider == OFFLINE else str(choice)

    async def ask(self, prompt: Prompt, answer: type[A], model: str | None = None) -> tuple[A, Spent]:
        """Return the answer, and what it cost when it was paid for; CapReached before a call without room.

        `model` in place of the settings'. ProviderError, PermanentError.
        """
        named = sha256(f"{model} {prompt.system} {prompt.user}".encode()).hexdigest()
        asking = Asking(STAGE, "facts", unit_of(STAGE, named), "", "", model=model)
        async with self._at_once:
            self.cap.demand()
            answered = await self._models.language_model.ask(prompt, answer, asking)
        kept = self._answers.calls.get(answered.call.call_id) if answered.call else None
        return answered.value, NOTHING_SPENT if kept is None else _spent(kept)

    async def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """Return a row of length 1 for each text."""
        self.cap.demand()
        found = [row for part in _parts(texts) for row in await self._models.embedder.embed(part)]
        return np.stack([np.frombuffer(each.vector, "<f4") for each in found]) if found else np.zeros((0, 1))

    @property
    def local_embedder(self) -> bool:
        """Whether texts are embedded on this machine."""
        return isinstance(self._models.embedder, LocalEmbedder)

    @property
    def embedder_name(self) -> str:
        """As it stands beside vectors."""
        return self._models.embedder.model


def _parts(texts: Sequence[str], most: int = 256) -> list[Sequence[str]]:
    return [texts[at : at + most] for at in range(0, len(texts), most)]


def _spent(kept: Answer) -> Spent:
    return Spent(kept.input_tokens, kept.output_tokens, kept.cost_usd or Decimal(0), kept.seconds, 1)


class Timer:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Until now."""
        return time.perf_counter() - self._began
