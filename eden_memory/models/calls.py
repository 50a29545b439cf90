"""One request to a provider and what came back, as adapters and the wrappers around them share it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from eden_memory.failures import ProviderError
from eden_memory.schemas.answers import Answer
from eden_memory.schemas.events.usage import CallOutcome

Finish = Literal["complete", "truncated", "refused"]


@dataclass(frozen=True, slots=True)
class PromptTurn:
    """One message of the request after the system prompt."""

    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that the provider counted; `cached` is a part of `input`, `reasoning` of `output`."""

    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


def less(whole: Tokens, part: Tokens) -> Tokens:
    """Return what is left of a count without a part of it."""
    return Tokens(
        whole.input - part.input,
        whole.cached - part.cached,
        whole.output - part.output,
        whole.reasoning - part.reasoning,
    )


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


class ChatProvider(Protocol):
    """One provider's chat models."""

    @property
    def name(self) -> str:
        """`openai`, `google`, or the host of a compatible endpoint."""
        ...

    async def complete(
        self,
        model: str,
        system: str,
        turns: Sequence[PromptTurn],
        answer: type[Answer],
        most: int | None = None,
        trials: list[Trial] | None = None,
    ) -> Completion:
        """One request, no retries; CallFailed, PermanentError (the provider will never accept this input).

        `most`: tokens of the longest answer wanted, without what the model thinks before it. Requests made on the way
        to the one that counts are added to `trials`, also when the call fails.
        """
        ...

    async def close(self) -> None:
        """Let go of its connections."""
        ...


class EmbeddingProvider(Protocol):
    """One provider's embedding models."""

    @property
    def name(self) -> str:
        """As of ChatProvider."""
        ...

    async def embed(self, model: str, texts: Sequence[str]) -> tuple[list[list[float]], Tokens]:
        """A vector for each text, in order; CallFailed, PermanentError."""
        ...

    async def close(self) -> None:
        """Let go of its connections."""
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
