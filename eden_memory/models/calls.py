"""One request to a provider and what came back, as adapters and the wrappers around them share it."""

import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import add, sub
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

from eden_memory.failures import ProviderError
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.events.usage import CallOutcome

Finish = Literal["complete", "truncated", "refused"]


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """One message of the request after the system prompt."""

    role: Literal["user", "assistant"]
    text: str


class Tokens(NamedTuple):
    """The tokens that the provider counted; `cached` is a part of `input`, `reasoning` of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0

    def plus(self, other: "Tokens") -> "Tokens":
        """Return the sum of two counts."""
        return Tokens(*map(add, self, other))

    def less(self, part: "Tokens") -> "Tokens":
        """Return what is left of a count without a part of it."""
        return Tokens(*map(sub, self, part))


@dataclass(frozen=True, slots=True)
class Completion:
    """An unchecked answer of a chat model."""

    text: str
    finish: Finish
    tokens: Tokens
    response_model: str | None = None


@dataclass(frozen=True, slots=True)
class Trial:
    """A request on the way to the one that counts: a call of its own, whose tokens are in the whole completion's."""

    outcome: CallOutcome
    tokens: Tokens
    started_at: datetime
    seconds: float
    response_model: str | None = None
    error: str | None = None


class ProviderConnection(Protocol):
    """A provider's connections, under its name."""

    @property
    def name(self) -> str:
        """`openai`, `google`, or the host of a compatible endpoint."""
        ...

    async def close(self) -> None:
        """Let go of the connections."""
        ...


C = TypeVar("C", bound=ProviderConnection)


class Adapter(Generic[C]):
    """The part that all adapters share: the provider's name, and its connections, which end with the adapter."""

    def __init__(self, connection: C) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        """The provider's."""
        return self._connection.name

    async def close(self) -> None:
        """Let go of the connections."""
        await self._connection.close()


class ChatProvider(ProviderConnection, Protocol):
    """One provider's chat models."""

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[ModelAnswer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        """One request, no retries; CallFailed, PermanentError (the provider will never accept this input).

        `most`: tokens of the longest answer wanted, without what the model thinks before it. Requests made on the way
        to the one that counts are added to `trials`, also when the call fails.
        """
        ...


class EmbeddingProvider(ProviderConnection, Protocol):
    """One provider's embedding models."""

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        """A vector for each text, in order; CallFailed, PermanentError."""
        ...


class CallFailed(ProviderError):  # noqa: N818 - reads as what happened
    """A request that brought no answer: the provider was away, busy or too slow, or refused our key.

    `charged`: whether it counts against its question; a refusal for the rate does so in the call budget alone.
    """

    def __init__(
        self,
        outcome: CallOutcome,
        reason: str,
        retry_after: float | None = None,
        *,
        charged: bool = True,
        alone: bool = True,
    ) -> None:
        super().__init__(reason, retry_after, counts=charged and outcome != "rate_limited", alone=alone)
        self.outcome: CallOutcome = outcome
        self.charged = charged


SHORTEST_CALL = 1e-6


@dataclass(slots=True)
class Stopwatch:
    """When a call left, by the wall clock, and how many seconds it took."""

    started_at: datetime = datetime.min
    seconds: float = 0.0
    left: bool = False

    @property
    def ended_at(self) -> datetime:
        """When its answer was here."""
        return self.started_at + timedelta(seconds=self.seconds)

    @contextmanager
    def timing(self) -> Generator[None]:
        """Time the request that is sent inside."""
        self.left, self.started_at, begun = True, datetime.now(UTC), time.perf_counter()
        try:
            yield
        finally:
            self.seconds = max(SHORTEST_CALL, time.perf_counter() - begun)
