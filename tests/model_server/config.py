"""What can be set of the model server, at its start and while it runs."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

FaultName = Literal[
    "rate_limited",  # 429: Retry-After (OpenAI), RetryInfo (Google)
    "quota",  # 429 without any time
    "error",  # 500
    "overloaded",  # 503
    "hang",  # nothing, until the client goes away
    "drop",  # an empty and broken response
    "malformed",  # 200, but the body is no JSON
    "unauthorized",  # 401 (Google: 400 API_KEY_INVALID, as it does)
    "forbidden",  # 403
    "no_model",  # 404
    "context_length",  # 400
    "truncated",  # half of the answer, finish reason length / MAX_TOKENS
    "wrong_schema",  # valid JSON of another shape
    "unshown_ids",  # numbers and scopes that no prompt showed
    "refusal",  # OpenAI: refusal; Google: finish reason SAFETY
    "blocked",  # OpenAI: finish reason content_filter; Google: the prompt was blocked
    "empty",  # an answer without text
    "fenced",  # the right JSON in ```json fences with chatter around it
    "no_choices",  # 200 without any choice or candidate
]
SPOILED: frozenset[FaultName] = frozenset(
    {"truncated", "wrong_schema", "unshown_ids", "refusal", "blocked", "empty", "fenced", "no_choices"}
)
"""Answers that arrive (and are paid), but are of no use as they are; meant for chats only."""


class Rule(BaseModel):
    """Prompts that hold a text meet a fault, always or so many times."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    contains: str
    fault: FaultName
    times: int | None = None


class Config(BaseModel):
    """All of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_seconds: float = 0.0
    token_seconds: float = 0.0
    embed_seconds: float = 0.0
    """Of one embedding request."""
    slots: int | None = None
    """Answers that are made at once; others wait for their turn, as with a local model. None: all."""
    calls_per_second: float | None = None
    """Chats beyond that are refused with 429; None: none are."""
    refuses: tuple[Literal["max_tokens", "max_completion_tokens", "maxItems"], ...] = ()
    """Bounds of an answer, or of the lists in its schema, that the OpenAI side refuses with 400."""
    reasoning_tokens: int = 0
    """Added to every answer's output."""
    stops_thinking: bool = False
    """No reasoning tokens where the OpenAI side is asked for `reasoning_effort` none."""
    calls_tools: bool = False
    """The OpenAI side calls the first tool of a request."""
    seed: int = 0
    rates: dict[FaultName, float] = {}
    embedding_rates: dict[FaultName, float] = {}
    rules: tuple[Rule, ...] = ()
    retry_after: float = 1.0
    outage: bool = False
    """Everything is answered with 503."""
    held: bool = False
    """Nothing is answered, until this is changed."""
    supports: Literal["schema", "json", "text"] = "schema"
    """What the OpenAI side accepts as `response_format`; it refuses more with 400."""
    models: tuple[str, ...] | None = None
    """Models that exist; None: all."""
    local: Literal["ollama", "llama.cpp", "vllm"] | None = None
    """The local server whose own paths it has beside OpenAI's."""
    sizes: dict[str, int] = {}
    """Bytes of models, as Ollama lists them."""
    context_tokens: int = 1_000_000
    dimensions: int = 64
    """Of vectors, where the request names none."""
