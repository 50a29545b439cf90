"""The models of an evaluation: calls counted, capped in US dollars, and their answers kept in a file."""

import asyncio
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import numpy as np

from eden_memory.assembly.model_factory import Models
from eden_memory.errors import CapReached, EdenError
from eden_memory.metrics import unpriced
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
    """Money paid in this run; answers paid for before cost nothing."""

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
        """Release threads, connections and the file."""
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


class AnswerFile:
    """An AnswerStore for one process, for its owner alone; an answer is on the disk before it is used."""

    def __init__(self, path: Path) -> None:
        """EdenError if the file holds anything else; a last line that was cut off is dropped.

        Questions that got no valid answer in earlier runs are asked anew.
        """
        self._answers: dict[str, Answer] = {}
        self.calls: dict[str, Answer] = {}
        """Answers by the id of the call that brought them."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for line in _whole_lines(path):
            self._know(_answer(path, line))
        answered = {answer.unit for answer in self._answers.values() if answer.invalid is None}
        self._answers = {name: answer for name, answer in self._answers.items() if answer.unit in answered}
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        """The answer under an id; answers are found by what was asked alone."""
        del unit
        return {} if answer_id is None else await self.find([answer_id])

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        """Return those of the answers that are stored, by id."""
        return {name: self._answers[name] for name in ids if name in self._answers}

    async def of_call(self, call_id: str) -> Answer | None:
        """Return the answer that a call brought, if it is stored."""
        return self.calls.get(call_id)

    async def keep(self, answer: Answer) -> Answer:
        """Store an answer; if one is stored under its id, return that instead."""
        if answer.id not in self._answers:
            self._write(answer)
        return self._answers[answer.id]

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        """The same of several."""
        return [await self.keep(answer) for answer in answers]

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        """Mark an answer as useless."""
        if answer_id in self._answers:
            self._write(self._answers[answer_id].model_copy(update={"invalid": reason[:1_000]}))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, answer: Answer) -> None:
        self._file.write(answer.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n")
        self._know(answer)

    def _know(self, answer: Answer) -> None:
        self._answers[answer.id] = self.calls[answer.call_id] = answer


def _whole_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:  # the process was killed while it wrote
        path.write_bytes(whole)
    return whole.splitlines()


def _answer(path: Path, line: bytes) -> Answer:
    try:
        return Answer.model_validate_json(line)
    except ValueError:
        raise EdenError(
            f"{path} contains a line that is not an answer", "Name another folder with --out."
        ) from None
