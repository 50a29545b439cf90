"""A provider that says what a test gives it, and answers kept in memory (the real store has its own tests)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from eden_memory.formation.prompt_material import ConsolidationMaterial
from eden_memory.models.asking_model import AskingModel, Chat, Router
from eden_memory.models.breaker import Pings, Works
from eden_memory.models.cached_embedders import KeptEmbedder
from eden_memory.models.call_accounts import Accounts
from eden_memory.models.embedding_calls import EmbeddingCalls
from eden_memory.models.guard import Guard
from eden_memory.models.judging import CallBudget
from eden_memory.models.provider_calls import ChatProvider, Completion, Finish, PromptTurn, Tokens, Trial
from eden_memory.models.question import Asking, Prompt
from eden_memory.models.stored_answers import AnswerStore
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.documents import Answer

Said = str | Completion | BaseException
PROMPT = Prompt("consolidation/1", "Merge.", "the blob", ConsolidationMaterial("user", None, (), None, 300))
GOOD = '{"text": "all of it"}'
NOW = datetime(2026, 3, 2, 9, 15, tzinfo=UTC)


def completion(text: str, finish: Finish = "complete") -> Completion:
    """An answer of 100 tokens in and 10 out."""
    return Completion(text, finish, Tokens(input=100, output=10), "test-1-2026")


def asking(unit: str = "consolidation:e1", **fields: object) -> Asking:
    """A question on behalf of agent a."""
    known: dict[str, object] = {
        "stage": "consolidation",
        "role": "consolidation",
        "unit": unit,
        "agent_id": "s.a",
        "cause": "e1",
    }
    return Asking(**{**known, **fields})  # pyright: ignore[reportArgumentType]


def cost(_provider: str, _model: str, tokens: Tokens) -> Decimal | None:
    """A dollar per million tokens."""
    return Decimal(tokens.input + tokens.output) / 1_000_000


class MemoryAnswers:
    """An AnswerStore."""

    def __init__(self) -> None:
        self.kept: dict[str, Answer] = {}

    async def of_unit(self, unit: str, answer_id: str | None = None) -> Mapping[str, Answer]:
        return {one.id: one for one in self.kept.values() if one.unit == unit or one.id == answer_id}

    async def find(self, ids: Iterable[str]) -> Mapping[str, Answer]:
        return {name: self.kept[name] for name in ids if name in self.kept}

    async def of_call(self, call_id: str) -> Answer | None:
        return next((one for one in self.kept.values() if one.call_id == call_id), None)

    async def keep(self, answer: Answer) -> Answer:
        return self.kept.setdefault(answer.id, answer)

    async def keep_all(self, answers: Sequence[Answer]) -> list[Answer]:
        return [await self.keep(one) for one in answers]

    async def judged_invalid(self, answer_id: str, reason: str) -> None:
        self.kept[answer_id] = self.kept[answer_id].model_copy(update={"invalid": reason})


@dataclass
class FakeChat:
    """A ChatProvider: `says` in turn, the last one for ever; pings are counted and answered apart."""

    says: Callable[[Sequence[PromptTurn]], Said] | Sequence[Said]
    ping: BaseException | None = None
    asked: list[tuple[PromptTurn, ...]] = field(default_factory=list[tuple[PromptTurn, ...]])
    models: list[str] = field(default_factory=list[str])
    bounds: list[int] = field(default_factory=list[int])
    """Of the answers asked for, in tokens."""
    pings: int = 0
    before: Callable[[], Awaitable[None]] | None = None

    name = "test"

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[ModelAnswer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        if answer is Works:
            self.pings += 1
            if self.ping is not None:
                raise self.ping
            return completion('{"works": true}')
        self.models.append(model)
        self.asked.append(tuple(turns))
        self.bounds.append(most or 0)
        if self.before is not None:
            await self.before()
        says = self.says
        said = says(turns) if callable(says) else says[min(len(self.asked), len(says)) - 1]
        if isinstance(said, BaseException):
            raise said
        return completion(said) if isinstance(said, str) else said

    async def close(self) -> None:
        return None


def model_over(
    provider: ChatProvider,
    answers: AnswerStore,
    *,
    seconds: float = 5.0,
    guard: Guard | None = None,
    namespace: str = "live",
) -> AskingModel:
    """A language model as a fresh process has it."""
    accounts, budget = Accounts(namespace), CallBudget()
    guarded = guard or Guard("test", 64, seconds)
    router = Router(
        lambda asked: (provider, asked.model or "test-1"), lambda _: guarded, Pings(accounts, cost).chat
    )
    chat = Chat(accounts, cost, budget)
    return AskingModel(router, chat, answers, budget, accounts, namespace)


@dataclass
class FakeVectors:
    """An EmbeddingProvider: (length, 1) for each text; `wrong` may refuse a call by its texts."""

    wrong: Callable[[Sequence[str]], BaseException | None] = lambda _texts: None
    calls: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    before: Callable[[], Awaitable[None]] | None = None

    name = "test"

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        if list(texts) == ["ping"]:
            return [[1.0, 0.0]], Tokens(input=1)
        self.calls.append(tuple(texts))
        if self.before is not None:
            await self.before()
        error = self.wrong(texts)
        if error is not None:
            raise error
        return [[float(len(text)), 1.0] for text in texts], Tokens(input=sum(map(len, texts)))

    async def close(self) -> None:
        return None


def embedder_over(provider: FakeVectors, answers: MemoryAnswers) -> KeptEmbedder:
    """An embedder as a fresh process has it."""
    accounts, guard = Accounts(), Guard("test", 64, 5.0)
    breaker = guard.breaker("embeddings/v", Pings(accounts, cost).embeddings(provider, "v"))
    calls = EmbeddingCalls(provider, "v", guard, breaker, answers, cost, CallBudget(), 2)
    return KeptEmbedder(calls, accounts, "v", 2)
