"""Memory systems that are compared, the baselines without a memory, and the measures of an order or an answer.

An adapter of one's own is named `package.module:function`: the function takes an :class:`EvalSetup` and returns an
asynchronous context manager around a :class:`MemorySystem`.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from math import log2, sqrt
from pathlib import Path
from statistics import stdev
from typing import Any, NamedTuple, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict

from eden_memory.errors import EdenError
from eden_memory.evals.dataset import EvalConversation, EvalSet, QuestionLine
from eden_memory.evals.spending import EvalModels
from eden_memory.settings import Settings

K = 10

Z = 1.96
"""Of an interval that holds the true value in 95 of 100 cases."""

_ALONE = re.compile(
    r"[\u0e00-\u0e7f\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]"
)
"""Letters of scripts without spaces; each counts as a word."""

_ARTICLES = frozenset(("a", "an", "the"))


class Quality(NamedTuple):
    """Of one question, or a mean."""

    recall: float
    ndcg: float


def found_quality(ranked: Sequence[frozenset[str]], evidence: frozenset[str], k: int = K) -> Quality:
    """`ranked`: the messages that each unit bears, best first; a message counts where it is first borne.

    The ideal of nDCG bears one message of the evidence after the other: it is the same for every system.
    """
    seen, gain = frozenset[str](), 0.0
    for place, bears in enumerate(ranked[:k]):
        new = bears & evidence - seen
        gain, seen = gain + len(new) / log2(place + 2), seen | new
    ideal = sum(1 / log2(place + 2) for place in range(min(k, len(evidence))))
    return Quality(len(seen) / len(evidence), min(1.0, gain / ideal))


def mean_quality(of: Sequence[Quality]) -> Quality:
    """The mean over questions, each with the same weight."""
    return Quality(mean([each.recall for each in of]), mean([each.ndcg for each in of]))


def mean(values: Sequence[float]) -> float:
    """0 for none."""
    return sum(values) / len(values) if values else 0.0


def newer_above(ranked: Sequence[frozenset[str]], evidence: frozenset[str], outdated: frozenset[str]) -> bool:
    """Return whether the first unit that bears the newer statement stands above all that bear only the older.

    A newer statement that is not found is not above.
    """
    newer = next((place for place, bears in enumerate(ranked) if bears & evidence), None)
    older = next(
        (place for place, bears in enumerate(ranked) if bears & outdated and not bears & evidence), None
    )
    return newer is not None and (older is None or newer < older)


def words(text: str) -> list[str]:
    """Words without case, punctuation and English articles; letters of scripts without spaces stand alone."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    spaced = _ALONE.sub(lambda found: f" {found[0]} ", folded)
    kept = "".join(" " if unicodedata.category(letter)[0] in "PSZC" else letter for letter in spaced)
    return [word for word in kept.split() if word not in _ARTICLES]


def exact(answer: str, accepted: Sequence[str]) -> bool:
    """Return whether an answer is one of the accepted ones, word for word."""
    return words(answer) in [words(text) for text in accepted]


def contains(text: str, accepted: Sequence[str]) -> bool:
    """Return whether a text contains one of the accepted answers."""
    held = f" {' '.join(words(text))} "
    return any(f" {' '.join(words(answer))} " in held for answer in accepted if words(answer))


def f1(answer: str, accepted: Sequence[str]) -> float:
    """Return the harmonic mean of precision and recall of words, against the nearest accepted answer."""
    return max((_f1(words(answer), words(text)) for text in accepted), default=0.0)


def _f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    same = (Counter(given) & Counter(wanted)).total()
    return 2 * same / (len(given) + len(wanted)) if same else 0.0


def tokens(text: str) -> int:
    """Return about how many tokens a text is: four characters each, letters of scripts without spaces one each.

    The same for all systems, so that budgets are equal; what a provider counts is reported beside.
    """
    alone = len(_ALONE.findall(text))
    return alone + -(-(len(text) - alone) // 4)


class MeasuredShare(NamedTuple):
    """A share with its confidence interval."""

    hits: int
    of: int
    low: float
    high: float

    @property
    def value(self) -> float:
        """0 for none."""
        return self.hits / self.of if self.of else 0.0


def share(count: int, of: int) -> MeasuredShare:
    """Return a share with its 95 % interval (Wilson)."""
    if not of:
        return MeasuredShare(0, 0, 0.0, 1.0)
    middle, spread = (count + Z * Z / 2) / (of + Z * Z), sqrt(count * (of - count) / of + Z * Z / 4)
    around = Z * spread / (of + Z * Z)
    return MeasuredShare(count, of, max(0.0, middle - around), min(1.0, middle + around))


class BootstrappedMean(NamedTuple):
    """A mean over questions with its 95 % interval."""

    mean: float
    low: float
    high: float
    of: int


RESAMPLES = 2_000


def bootstrapped(values: Sequence[float]) -> BootstrappedMean:
    """Return the mean with its percentile interval over resampled questions; the same for the same values."""
    if not values:
        return BootstrappedMean(0.0, 0.0, 1.0, 0)
    drawn = np.random.default_rng(len(values)).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.percentile(np.asarray(values)[drawn].mean(axis=1), [2.5, 97.5]).tolist()
    return BootstrappedMean(mean(values), low, high, len(values))


class Difference(NamedTuple):
    """How much better a second memory answers the same questions, with its 95 % interval."""

    mean: float
    low: float
    high: float
    of: int

    @property
    def verdict(self) -> str:
        """In words."""
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "too close to tell with this many questions"


def difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """Compare question by question."""
    gains = [new - old for old, new in zip(before, after, strict=True)]
    middle = mean(gains)
    around = Z * stdev(gains) / sqrt(len(gains)) if len(gains) > 1 else 1.0
    return Difference(middle, middle - around, middle + around, len(gains))


class PlainWords:
    """Over a few texts by id; EdenError without the extra `eval`."""

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self._library = _bm25s()
        self._ids = list(ids)
        self._index: Any = self._library.BM25()
        self._index.index(self._tokens(list(texts)), show_progress=False)

    def order(self, query: str) -> list[str]:
        """Ids of the texts that hold any of its words, best first."""
        numbers, scores = self._index.retrieve(self._tokens([query]), k=len(self._ids), show_progress=False)
        found = zip(numbers[0].tolist(), scores[0].tolist(), strict=True)
        return [self._ids[number] for number, score in found if score > 0]

    def _tokens(self, texts: list[str]) -> Any:
        return self._library.tokenize(texts, stopwords=None, show_progress=False)


def _bm25s() -> Any:
    try:
        return import_module("bm25s")
    except ImportError:
        raise EdenError("BM25 needs the package bm25s", "pip install 'eden-memory[eval]'") from None


RRF_K = 60.0


class MemoryItem(BaseModel):
    """A piece of memory in the form in which the reader sees it."""

    model_config = ConfigDict(frozen=True)

    text: str
    at: datetime | None = None
    """Since when it holds, or when it was said."""
    bears: frozenset[str] = frozenset()
    """Ids of the messages from which it comes, as far as they are known."""

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
    """A folder for the adapter's own files, empty at first."""
    dataset: EvalSet
    note: Callable[[str], None]
    """Prints a line of progress."""


Adapter = Callable[[EvalSetup], AbstractAsyncContextManager[MemorySystem]]


def adapter_of(name: str) -> Adapter:
    """Return the adapter `module:function`; EdenError if there is none."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError):
        hint = f"There are eden, offline, {', '.join(BASELINES)} and mem0; an adapter is package.module:function."
        raise EdenError(f"there is no memory system {name}", hint) from None


ALL = 0
"""In place of a budget: everything."""


def packed(items: Iterable[MemoryItem], budget: int) -> list[MemoryItem]:
    """Return the best items that fit into a budget of tokens (or `ALL`), in the order of time."""
    left, taken = budget, list[MemoryItem]()
    for item in items:
        cost = tokens(item.line) + 1
        if budget == ALL or cost <= left:
            taken.append(item)
            left -= cost
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
    """No memory: the newest messages, as many as fit; all of them where there is no budget."""

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


class Dense(Bm25):
    """Messages by meaning."""

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
        return [items[at] for at in await self.near(conversation, question)] if items else []

    async def near(self, conversation: EvalConversation, question: QuestionLine) -> list[int]:
        """Places of all messages of a conversation that has some, nearest first."""
        asked = (await self._models.vectors([question.text]))[0]
        return np.argsort(-(self._vectors[conversation.id] @ asked), kind="stable").tolist()


class Rrf(Dense):
    """Messages by words and meaning: reciprocal rank fusion of both lists, k = 60."""

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """All messages."""
        items = self._items[conversation.id]
        if not items:
            return []
        near = await self.near(conversation, question)
        return [items[at] for at in fused(near, self.order(conversation, question.text))]


def fused(*lists: Sequence[int]) -> list[int]:
    """Merge lists by Σ 1/(k + rank), best first."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranked in lists:
        for rank, item in enumerate(ranked, 1):
            scores[item] += 1 / (RRF_K + rank)
    return sorted(scores, key=lambda item: -scores[item])


HISTORY = "history"

BASELINES: Mapping[str, Callable[[EvalSetup], MemorySystem]] = {
    HISTORY: lambda _: WholeConversation(),
    "whole": lambda _: WholeConversation(),
    "bm25": lambda _: Bm25(),
    "dense": lambda setup: Dense(setup.models),
    "rrf": lambda setup: Rrf(setup.models),
}


def baseline(name: str) -> Adapter | None:
    """Return the adapter of a baseline, None for another name."""
    return _opened(BASELINES[name]) if name in BASELINES else None


def _opened(make: Callable[[EvalSetup], MemorySystem]) -> Adapter:
    @asynccontextmanager
    async def opened(setup: EvalSetup) -> AsyncGenerator[MemorySystem]:
        yield make(setup)

    return opened


def counted(number: int, noun: str) -> str:
    """Return `1 question`, `2 questions`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"
