"""fact-dedup on ports in memory: a scope whose writer applies when told, a scripted model, plain vectors."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from math import sqrt
from typing import Any

from eden_memory.errors import PermanentError
from eden_memory.forgotten import Mark, Marks
from eden_memory.formation.fact_statements import KnownFact, Near
from eden_memory.formation.prompt_material import DecisionMaterial
from eden_memory.formation.prompts import Fence
from eden_memory.memory.memory_batch import normalised
from eden_memory.memory.scope_matrix import matrix_of
from eden_memory.metrics import DEDUP
from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.processors.fact_dedup import FactDedup, Stores
from eden_memory.schemas.answers import FactDecision, FactDecisions
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FactChanged, FactCommanded, FactsProposed
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.fields import pack_vector
from eden_memory.schemas.provenance import Call, Embedding, SourceMessage, Statement
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import MemorySettings
from eden_memory.stages.stage import Decision, Delivery, Emit
from tests.counted import Grown

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ANA = Scope.of_user("s.agent", "s.ana")
DIMENSIONS = 64
SIMILAR = MemorySettings().similar
Script = Callable[[DecisionMaterial], list[FactDecision]]


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def source(
    message: str, session: str = "s.one", user: str = "s.ana", minutes: float = 0, said: float | None = None
) -> SourceMessage:
    return SourceMessage(
        message_id=f"s.{message}",
        version=f"{1:016x}",
        session_id=session,
        user_id=user,
        time=at(minutes),
        said_at=at(minutes if said is None else said),
    )


def delivery(identity: str, event: Event, minutes: float = 0, **fields: Any) -> Delivery:
    envelope = Envelope(
        id=identity,
        name=event.NAME,
        version=1,
        source="test",
        time=at(minutes),
        subject=event.subject(),
        ordering_key=event.ordering_key(),
    )
    return Delivery(envelope, event, "memory.candidates", event.key(), **fields)


def proposal(
    name: str,
    *texts: str | tuple[str, Sequence[str]],
    scope: Scope = ANA,
    minutes: float = 0,
    said: float | None = None,
    **fields: Any,
) -> Delivery:
    """A formation's facts; a text alone rests on a message named after formation and place.

    `minutes`: when the window closed and its messages were written; `said`: when they were said, if before that.
    """
    facts: list[Statement] = []
    for number, one in enumerate(texts, 1):
        text, messages = (one, [f"{name}-{number}"]) if isinstance(one, str) else one
        sources = tuple(source(message, f"s.{name}", minutes=minutes, said=said) for message in messages)
        facts.append(Statement(number=number, text=text, formation_id=f"s.{name}:1", sources=sources))
    event = FactsProposed(
        cause=f"cause-{name}",
        formation_id=f"s.{name}:1",
        session_id=f"s.{name}",
        scope=scope,
        facts=tuple(facts),
        formed_at=at(minutes),
        settings_version="1",
    )
    return delivery(f"proposed-{name}", event, minutes, **fields)


def command(name: str, action: Any, *, scope: Scope = ANA, minutes: float = 0, **fields: Any) -> Delivery:
    given: dict[str, Any] = {"by": "person", "asked_at": at(minutes), "reason": "as asked", **fields}
    event = FactCommanded(command_id=f"s.{name}", scope=scope, action=action, **given)
    return delivery(f"commanded-{name}", event, minutes)


def embedded(text: str, model: str = "test") -> Embedding:
    """Words, counted into as many places: the same words are the same vector."""
    numbers = [0.0] * DIMENSIONS
    for word in normalised(text).split():
        numbers[blake2b(word.encode(), digest_size=2).digest()[0] % DIMENSIONS] += 1.0
    length = sqrt(sum(one * one for one in numbers)) or 1.0
    return Embedding(model=model, vector=pack_vector(one / length for one in numbers))


@dataclass
class WordEmbedder:
    """Counts its calls."""

    model: str = "test"
    dimensions: int = DIMENSIONS
    calls: list[list[str]] = field(default_factory=list[list[str]])

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        self.calls.append(list(texts))
        return [embedded(text, self.model) for text in texts]


def none_of(material: DecisionMaterial) -> list[FactDecision]:
    """All new facts are new."""
    return []


def said(fact: int, decision: Any, existing: int | str | None, text: str | None = None) -> FactDecision:
    """`existing`: a label, or the number in the plan, as earlier prompts showed it."""
    named = None if existing is None else str(existing)
    return FactDecision(fact=f"N{fact}", decision=decision, existing=named, text=text, reason="so it is")


@dataclass
class ScriptedModel:
    """Answers as the script says, keeps each answer under its unit; `crashes` so often after an answer arrived."""

    script: Script = none_of
    crashes: int = 0
    asked: list[tuple[DecisionMaterial, Asking]] = field(
        default_factory=list[tuple[DecisionMaterial, Asking]]
    )
    prompts: list[Prompt] = field(default_factory=list[Prompt])
    answers: dict[str, tuple[Asking, Any]] = field(default_factory=dict[str, tuple[Asking, Any]])
    exhausted: set[str] = field(default_factory=set[str])
    """Units whose answers were all invalid."""
    between: Callable[[], None] = lambda: None
    """What happens while the model thinks."""

    async def earlier(self, unit: str) -> Earlier | None:
        kept = self.answers.get(unit)
        return None if kept is None else Earlier(kept[0].shown, exhausted=unit in self.exhausted)

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        assert answer is FactDecisions
        if asking.unit in self.exhausted:
            raise PermanentError("invalid, again and again")
        if asking.unit not in self.answers:
            assert isinstance(prompt.material, DecisionMaterial)
            self.asked.append((prompt.material, asking))
            self.prompts.append(prompt)
            self.between()
            self.answers[asking.unit] = asking, FactDecisions(decisions=self.script(prompt.material))
        if self.crashes:
            self.crashes -= 1
            raise Killed
        call = Call(call_id=f"call-{len(self.asked)}", model="scripted", prompt="fact-decisions/1")
        return Answered(self.answers[asking.unit][1], call)


class Killed(BaseException):
    """The process died."""


class Memory:
    """One scope and more: decisions by number, and how many of them the writer has applied."""

    def __init__(self, model: str = "test", dimensions: int = DIMENSIONS) -> None:
        """`model`: of the vectors."""
        self._model, self._dimensions = model, dimensions
        self.decisions: dict[str, list[list[FactChanged]]] = {}
        self.marks: dict[str, int] = {}
        self.writes: set[str] = set()
        self.forgotten: list[Mark] = []
        self.streams: dict[str, Stream] = {}
        self.nearest_asked = 0

    def take(self, decision: Decision) -> list[FactChanged]:
        """Store an outcome as the ledger does."""
        taken = self.writes & set(decision.writes)
        assert not taken, f"{taken} decided twice"
        self.writes |= set(decision.writes)
        events = [one.event for one in decision.events if isinstance(one, Emit)]
        facts = [one for one in events if isinstance(one, FactChanged)]
        if facts:
            key = facts[0].scope.key
            self.decisions.setdefault(key, []).append(facts)
            assert {one.outcome for one in facts} == {len(self.decisions[key])}
            assert f"{key}#{len(self.decisions[key])}" in decision.writes
        return facts

    def apply(self, scope: Scope = ANA, to: int | None = None) -> None:
        """The writer applies the decisions up to a number (None: all)."""
        self.marks[scope.key] = len(self.decisions.get(scope.key, ())) if to is None else to

    def newest(self, scope: Scope = ANA) -> dict[str, FactChanged]:
        """All facts as the last decision left them."""
        facts: dict[str, FactChanged] = {}
        for decision in self.decisions.get(scope.key, ()):
            for one in decision:
                assert one.version == (facts[one.fact_id].version + 1 if one.fact_id in facts else 1)
                facts[one.fact_id] = one
        return facts

    def active(self, scope: Scope = ANA) -> list[FactChanged]:
        return [one for one in self.newest(scope).values() if one.retired_at is None]

    def texts(self, scope: Scope = ANA) -> list[str]:
        return sorted(one.text for one in self.active(scope))

    def _stored(self) -> dict[str, KnownFact]:
        stored: dict[str, KnownFact] = {}
        for key, decisions in self.decisions.items():
            for one in [event for events in decisions[: self.marks.get(key, 0)] for event in events]:
                if one.fact_id not in stored or stored[one.fact_id].version < one.version:
                    stored[one.fact_id] = KnownFact.of(one)
        return stored

    async def applied(self, scope_key: str) -> int:
        return max(0, self.marks.get(scope_key, 0) - 1)

    async def beyond(self, scope_key: str, applied: int) -> Sequence[FactChanged]:
        return [one for events in self.decisions.get(scope_key, [])[applied:] for one in events]

    async def given(self, known: Mapping[str, int]) -> Mapping[str, int]:
        return {}

    async def nearest(
        self, scope_key: str, vectors: Sequence[bytes], most: int, least: float
    ) -> Sequence[Sequence[Near]]:
        self.nearest_asked += 1
        stored = {
            name: one
            for name, one in self._stored().items()
            if one.scope_key == scope_key and not one.retired and one.embedding_model == self._model
        }
        matrix = matrix_of(((name, one.vector or b"") for name, one in stored.items()), self._dimensions)
        return [
            [Near(stored[hit.fact_id], hit.similarity) for hit in found]
            for found in matrix.nearest(vectors, most, least)
        ]

    async def with_hash(self, scope_key: str, hashes: Iterable[str]) -> Sequence[KnownFact]:
        wanted = set(hashes)
        facts = self._stored().values()
        return [one for one in facts if one.scope_key == scope_key and one.hash in wanted and not one.retired]

    async def facts(self, fact_ids: Iterable[str]) -> Mapping[str, KnownFact]:
        stored = self._stored()
        return {name: stored[name] for name in fact_ids if name in stored}

    async def among(self, named: Iterable[tuple[str, str]]) -> Marks:
        asked = set(named)
        return Marks(one for one in self.forgotten if (one.kind, one.target) in asked)

    async def of(self, agent_id: str) -> Mapping[str, Stream]:
        return self.streams


@dataclass
class Bench:
    """The handler with everything around it."""

    memory: Memory = field(default_factory=Memory)
    model: ScriptedModel = field(default_factory=ScriptedModel)
    embedder: WordEmbedder = field(default_factory=WordEmbedder)
    grown: Grown = field(default_factory=lambda: Grown(DEDUP))
    dedup: bool = True

    @property
    def counts(self) -> Counter[str]:
        return Counter({what: number for (what,), number in self.grown().items()})

    def handler(self) -> FactDedup:
        memory = self.memory
        stores = Stores(memory, memory, memory, memory)
        fence = Fence(b"sixteen bytes or more")
        return FactDedup(stores, self.model, self.embedder, fence, similar=SIMILAR, dedup=self.dedup)

    async def decide(self, *deliveries: Delivery) -> list[FactChanged]:
        """One unit, as the runtime runs it: what is not covered is decided next."""
        left, events = list(deliveries), list[FactChanged]()
        while left:
            decision = await self.handler()(left)
            events += self.memory.take(decision)
            left = [] if decision.covers is None else left[decision.covers :]
        return events
