"""Memory systems that are compared, behind an adapter of two methods, and the baselines without a memory.

An adapter of one's own is named `package.module:function`: the function takes an :class:`EvalSetup` and returns an
asynchronous context manager around a :class:`MemorySystem`.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict

from eden_memory.errors import EdenError
from eden_memory.evals.dataset import EvalConversation, EvalSet, QuestionLine
from eden_memory.evals.measures import tokens
from eden_memory.evals.plain_words import PlainWords
from eden_memory.evals.spending import EvalModels
from eden_memory.settings import Settings

RRF_K = 60.0


class MemoryItem(BaseModel):
    """A piece of memory as it is shown to whoever answers."""

    model_config = ConfigDict(frozen=True)

    text: str
    at: datetime | None = None
    """Since when it holds, or when it was said."""
    bears: frozenset[str] = frozenset()
    """Ids of the messages that it comes from, as far as they are known."""

    @property
    def line(self) -> str:
        """One line with its time."""
        text = " ".join(self.text.split())
        return f"- [{self.at:%Y-%m-%d %H:%M}] {text}" if self.at else f"- {text}"


class MemorySystem(Protocol):
    """A memory under evaluation."""

    async def ingest(self, conversations: Sequence[EvalConversation]) -> None:
        """Take in all conversations; return once memory of them is formed. Conversations share no memory."""
        ...

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """Return what is known that may answer a question, best first; the budget is kept by the caller."""
        ...


@dataclass(frozen=True, slots=True)
class EvalSetup:
    """Everything that an adapter receives."""

    settings: Settings
    models: EvalModels
    """The language model and the embedder that the settings name: their calls are counted, capped and kept."""
    folder: Path
    """For the adapter's own files; empty at first."""
    dataset: EvalSet
    note: Callable[[str], None]
    """Shows a line of progress."""


Adapter = Callable[[EvalSetup], AbstractAsyncContextManager[MemorySystem]]


def adapter_of(name: str) -> Adapter:
    """Return the adapter `module:function`; EdenError if there is none."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError):
        hint = "There are eden, offline, whole, bm25, rrf and mem0; an adapter is package.module:function."
        raise EdenError(f"there is no memory system {name}", hint) from None


def packed(items: Iterable[MemoryItem], budget: int | None) -> list[MemoryItem]:
    """Return the best items that fit into a budget of tokens, in the order of time."""
    left, taken = budget, list[MemoryItem]()
    for item in items:
        cost = tokens(item.line) + 1
        if left is None or cost <= left:
            taken.append(item)
            left = None if left is None else left - cost
    dated = sorted((item for item in taken if item.at), key=lambda item: item.at or datetime.min)
    return [*(item for item in taken if not item.at), *dated]


def messages_of(conversation: EvalConversation) -> list[MemoryItem]:
    """Every message as an item, in order; the speaker stands before the text."""
    return [
        MemoryItem(
            text=f"{message.user or (session.users[0] if message.role == 'user' else message.role)}:"
            f" {message.text}",
            at=message.at or session.at,
            bears=frozenset((message.id,)),
        )
        for session in sorted(conversation.sessions, key=lambda session: session.at)
        for message in session.messages
    ]


class WholeConversation:
    """No memory: the newest messages, as many as fit."""

    async def ingest(self, conversations: Sequence[EvalConversation]) -> None:
        """Nothing is formed."""

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """All messages, the newest first."""
        del question
        return messages_of(conversation)[::-1]


class Bm25:
    """Messages by their words."""

    def __init__(self) -> None:
        self._items: dict[str, list[MemoryItem]] = {}
        self._words: dict[str, PlainWords] = {}

    async def ingest(self, conversations: Sequence[EvalConversation]) -> None:
        """Index every message."""
        for conversation in conversations:
            items = messages_of(conversation)
            self._items[conversation.id] = items
            if items:
                ids = [str(number) for number in range(len(items))]
                self._words[conversation.id] = PlainWords(ids, [item.text for item in items])

    def order(self, conversation: EvalConversation, query: str) -> list[int]:
        """Places of the messages that hold any of the query's words, best first."""
        index = self._words.get(conversation.id)
        return [int(name) for name in index.order(query)] if index else []

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """Messages that hold any of its words."""
        return [self._items[conversation.id][at] for at in self.order(conversation, question.text)]


class Rrf(Bm25):
    """Messages by words and meaning: reciprocal rank fusion of both lists, k = 60."""

    def __init__(self, models: EvalModels) -> None:
        super().__init__()
        self._models = models
        self._vectors: dict[str, np.ndarray] = {}

    async def ingest(self, conversations: Sequence[EvalConversation]) -> None:
        """Index and embed every message."""
        await super().ingest(conversations)
        for conversation in conversations:
            texts = [item.text for item in self._items[conversation.id]]
            self._vectors[conversation.id] = await self._models.vectors(texts)

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """All messages."""
        items = self._items[conversation.id]
        if not items:
            return []
        asked = (await self._models.vectors([question.text]))[0]
        near = np.argsort(-(self._vectors[conversation.id] @ asked), kind="stable").tolist()
        return [items[at] for at in fused(near, self.order(conversation, question.text))]


def fused(*lists: Sequence[int]) -> list[int]:
    """Merge lists by Σ 1/(k + rank), best first."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranked in lists:
        for rank, item in enumerate(ranked, 1):
            scores[item] += 1 / (RRF_K + rank)
    return sorted(scores, key=lambda item: -scores[item])


def baseline(name: str) -> Adapter | None:
    """Return the adapter of a baseline, None for another name."""
    made: dict[str, Callable[[EvalSetup], MemorySystem]] = {
        "whole": lambda _: WholeConversation(),
        "bm25": lambda _: Bm25(),
        "rrf": lambda setup: Rrf(setup.models),
    }
    return _opened(made[name]) if name in made else None


def _opened(make: Callable[[EvalSetup], MemorySystem]) -> Adapter:
    @asynccontextmanager
    async def opened(setup: EvalSetup) -> AsyncGenerator[MemorySystem]:
        yield make(setup)

    return opened


def counted(number: int, noun: str) -> str:
    """Return `1 question`, `2 questions`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
