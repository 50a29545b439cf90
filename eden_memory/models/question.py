"""A question to a language model, its answer, and the interfaces of models, embedders and rerankers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.provenance import Call, Embedding
from eden_memory.stages.stage import Delivery

A = TypeVar("A", bound=ModelAnswer)

Role = Literal["facts", "decisions", "reflections", "consolidation", "propagation"]
"""The purpose of a call: settings choose the model by it, and by the tier."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt ready to be sent. Nothing in it is random or comes from a clock."""

    name: str
    """With its version: `fact-extraction/1`."""
    system: str
    """Instructions; the same for all calls of an agent as far as possible, so that providers can cache it."""
    user: str
    """The fenced content."""
    material: object
    """The source of `user`, for models that read no text (the offline rules)."""
    answer_tokens: int = 0
    """Of the longest answer that the prompt allows; 0: a short one."""
    takes_part: bool = False
    """Take the complete items of an answer that is cut off twice: small models repeat themselves."""


def unit_of(stage: str, decision: str, anew: int = 0) -> str:
    """The name of a question: `<stage>:<decision>`, of a dead letter sent again with the number of times."""
    return f"{stage}:{decision}#{anew}" if anew else f"{stage}:{decision}"


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks, about what, and what an answer that arrives is kept under."""

    stage: str
    role: Role
    unit: str
    """Names the question (:func:`unit_of`): once an answer to it has arrived, that answer is used again
    after a crash, even where the prompt would read otherwise by then."""
    agent_id: str
    cause: str
    """`ce_id` of the event being handled."""
    user_id: str | None = None
    session_id: str | None = None
    formation_id: str | None = None
    scope: str | None = None
    """Scope key, where the call is for one scope."""
    tier: int = 0
    attempt: int = 1
    anew: int = 0
    """How often the input was a dead letter sent again: answers of earlier times are not used."""
    shown: tuple[str, ...] = ()
    """Ids behind the numbers of the prompt, in order; kept beside the answer."""
    model: str | None = None
    """Override of an agent or stream."""
    splits: bool = False
    """Raise Splits after two invalid answers: the asker then asks about parts of it."""
    part_of: str | None = None
    """The unit of the question that this one asks a part of."""

    @classmethod
    def about(cls, delivery: Delivery, stage: str, role: Role, agent_id: str) -> "Asking":
        """A question about one delivery; replace what else is known."""
        return cls(
            stage=stage,
            role=role,
            unit=unit_of(stage, delivery.id, delivery.sent_again),
            agent_id=agent_id,
            cause=delivery.id,
            attempt=delivery.attempt,
            anew=delivery.sent_again,
        )


@dataclass(frozen=True, slots=True)
class Answered(Generic[A]):
    """A valid answer."""

    value: A
    call: Call | None
    """Null where no model was called (offline rules); `items` is 1, the stage sets it."""
    provider: str | None = None
    """Whose model it was, as it stands in records: `openai`, or an endpoint's host and port."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """A unit's answer that arrived before a crash."""

    shown: tuple[str, ...]
    exhausted: bool
    """The answer and all repairs of it were invalid."""
    answered: bool = True
    """One of its answers is valid."""


@dataclass(frozen=True, slots=True)
class Kept(Generic[A]):
    """The answer that an earlier call brought, and the ids behind the numbers that it was shown."""

    answered: Answered[A]
    shown: tuple[str, ...]


class Reranker(Protocol):
    """Judges texts against a query, both read together."""

    async def relevances(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Of each text, in order, 0 to 1; what fails raises (the search goes on without)."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors."""

    @property
    def model(self) -> str:
        """Its name, as it stands beside every vector."""
        ...

    @property
    def dimensions(self) -> int:
        """Numbers of a vector."""
        ...

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        """One vector for each text, in order, each of length 1; ProviderError, PermanentError."""
        ...


class KeptAnswers(Protocol):
    """Answers of earlier calls."""

    async def answered(self, call_id: str, answer: type[A]) -> Kept[A] | None:
        """Return what a call brought; None if its answer is kept no longer, or is another one's."""
        ...


class LanguageModel(Protocol):
    """Asks a model and returns a valid answer, however it is reached."""

    async def earlier(self, unit: str) -> Earlier | None:
        """Return what arrived for a unit before a crash; the unit's next `ask` returns its answer."""
        ...

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        """The answer, kept before anything is decided from it; ProviderError, PermanentError.

        An answer that is not an `answer` is asked for again with the error (at most twice). `check` may name a
        shortcoming (None: fine): the model is shown it once, and the answer after that is taken as it is.
        """
        ...
