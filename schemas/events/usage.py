"""`memory.usage`: every call of a model, what it cost and how it ended."""

from typing import Annotated, Literal

from pydantic import Field

from eden_memory.schemas.events.base import Event
from eden_memory.schemas.fields import Count, EventId, KeyText, Moment, Ordinal, Usd
from eden_memory.schemas.ids import EntityId
from eden_memory.schemas.scopes import ScopeKey

Seconds = Annotated[float, Field(ge=0)]
CallOutcome = Literal[
    "answered", "invalid", "truncated", "refused", "rate_limited", "timed_out", "provider_error", "cancelled"
]


class ModelCalled(Event):
    """One request to a model, also a failed one. Never prompt or answer.

    Requests are counted as the provider counts them: one that several units share is counted by one of their records.
    """

    call_id: KeyText
    namespace: str
    """live, or the shadow that a reform runs in."""
    agent_id: EntityId | None
    """Null for calls on nobody's behalf (a check of the model, a search without an agent)."""
    user_id: EntityId | None = None
    """Whose memory it was for, where it was for one user's."""
    session_id: EntityId | None = None
    formation_id: KeyText | None = None
    scope: ScopeKey | None = None
    stage: str
    operation: Literal["chat", "embeddings"]
    provider: str
    model: str
    """As asked for."""
    response_model: str | None = None
    """As the provider named it."""
    prompt: str | None = None
    """Name and version: `fact-extraction/3`; null for embeddings."""
    cause: EventId | None = None
    """`ce_id` of the event being handled."""
    attempt: Ordinal = 1
    repair: Count = 0
    """0, or which repair of an invalid answer this asks for."""
    requests: Count = 1
    """Requests that the provider received: 0 for a share of a request that another record counts."""
    items: Count = 1
    """Texts embedded, or facts, reflections and decisions in the answer."""
    outcome: CallOutcome
    error: str | None = None
    """The error's kind or status code; never content."""
    input_tokens: Count = 0
    cached_tokens: Count = 0
    """Those of the input that the provider read from its cache."""
    output_tokens: Count = 0
    """Reasoning included."""
    reasoning_tokens: Count = 0
    cost_usd: Usd | None = None
    """Null where the price is unknown: never 0 for that."""
    started_at: Moment
    seconds: Seconds

    def key(self) -> str:
        """The call."""
        return self.call_id

    def ordering_key(self) -> str:
        """The agent."""
        return self.agent_id or self.call_id

    def subject(self) -> str:
        """The call."""
        return self.call_id
