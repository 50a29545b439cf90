"""Records and prices every model call: what it was for, what it cost, how it ended."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Protocol
from uuid import uuid4

from eden_memory.logs import LibraryLogger
from eden_memory.models.provider_calls import CallFailed, Tokens
from eden_memory.models.question import Asking
from eden_memory.schemas.documents import Answer
from eden_memory.schemas.events import ModelCalled
from eden_memory.schemas.events.usage import CallOutcome
from eden_memory.stages.handler_run import note
from eden_memory.telemetry.spans import called as span_of_call

log = LibraryLogger()


Cost = Callable[[str, str, Tokens], Decimal | None]
"""(provider, model, tokens) → US dollars; None if the price is unknown."""

Operation = Literal["chat", "embeddings"]

CENTS = Decimal("0.000000000001")

KEY_CHARACTERS = 40

NO_TOKENS = Tokens()

UNASKED = Asking("-", "facts", "-", "", "")
"""The agent of calls that are made for nobody."""


class CallWatch(Protocol):
    """Whoever counts calls as they end."""

    def called(self, call: ModelCalled) -> None:
        """Count a call that has ended; calls found again in the store are not passed."""
        ...


@dataclass(frozen=True, slots=True)
class Ended:
    """One request and how it ended."""

    call_id: str
    operation: Operation
    provider: str
    model: str
    outcome: CallOutcome = "answered"
    started_at: datetime = datetime.min
    seconds: float = 0.0
    tokens: Tokens = NO_TOKENS
    cost: Decimal | None = None
    response_model: str | None = None
    prompt: str | None = None
    repair: int = 0
    requests: int = 1
    items: int = 0
    error: str | None = None

    @classmethod
    def of(cls, operation: Operation, provider: str, model: str, prompt: str | None = None) -> "Ended":
        """A call of which only the destination is known so far."""
        return cls("", operation, provider, model, prompt=prompt)


def price(cost: Cost, provider: str, model: str, tokens: Tokens) -> Decimal | None:
    """US dollars to 12 places; None if the price is unknown."""
    amount = cost(provider, model, tokens)
    return None if amount is None else amount.quantize(CENTS)


def call_id(key: str) -> str:
    """The id of an answered request: the same whenever its answer is found again."""
    return key[:KEY_CHARACTERS]


def unanswered_id(key: str) -> str:
    """An id of its own, for a request that brought nothing to store."""
    return f"{key[:KEY_CHARACTERS]}-{uuid4().hex[:12]}"


def error_kind(error: BaseException) -> tuple[CallOutcome, str | None]:
    """Return how a failed request ended; never the error's text, which may quote what was sent."""
    if isinstance(error, CallFailed):
        cause = error.__cause__
        return error.outcome, type(cause).__name__ if cause is not None else None
    return (
        ("cancelled", None) if not isinstance(error, Exception) else ("provider_error", type(error).__name__)
    )


class Accounts:
    """Records calls for the running handler, and passes them to those who count."""

    def __init__(self, namespace: str = "live", watch: CallWatch | None = None) -> None:
        self._namespace, self._watch = namespace, watch

    def note(self, ended: Ended, asking: Asking | None, *, again: bool = False) -> None:
        """Record a call; `again`: it was recorded before a crash, so it is the same record."""
        called = self._called(ended, asking)
        note(called)
        if again:
            return
        span_of_call(called)
        if self._watch is not None:
            self._watch.called(called)

    def _called(self, ended: Ended, asking: Asking | None) -> ModelCalled:
        on = asking or UNASKED
        return ModelCalled(
            call_id=ended.call_id,
            namespace=self._namespace,
            agent_id=on.agent_id or None,
            user_id=on.user_id,
            session_id=on.session_id,
            formation_id=on.formation_id,
            scope=on.scope,
            stage=on.stage,
            operation=ended.operation,
            provider=ended.provider,
            model=ended.model,
            response_model=ended.response_model,
            prompt=ended.prompt,
            cause=on.cause or None,
            attempt=max(1, on.attempt),
            repair=ended.repair,
            requests=ended.requests,
            items=ended.items,
            outcome=ended.outcome,
            error=ended.error,
            input_tokens=ended.tokens.input,
            cached_tokens=ended.tokens.cached,
            output_tokens=ended.tokens.output,
            reasoning_tokens=ended.tokens.reasoning,
            cost_usd=ended.cost,
            started_at=ended.started_at,
            seconds=ended.seconds,
        )


def kept_tokens(kept: Answer) -> Tokens:
    """Return what a stored answer cost, in tokens."""
    return Tokens(kept.input_tokens, kept.cached_tokens, kept.output_tokens, kept.reasoning_tokens)


def of_kept(kept: Answer, outcome: CallOutcome, repair: int, items: int) -> Ended:
    """Return the call that brought a stored answer."""
    return Ended(
        call_id=kept.call_id,
        operation=kept.operation,
        provider=kept.provider or "unknown",
        model=kept.model,
        outcome=outcome,
        started_at=kept.answered_at - timedelta(seconds=kept.seconds),
        seconds=kept.seconds,
        tokens=kept_tokens(kept),
        cost=kept.cost_usd,
        response_model=kept.response_model,
        prompt=kept.prompt,
        repair=repair,
        requests=kept.requests,
        items=items,
    )


def with_id(ended: Ended, key: str) -> Ended:
    """Return the call under an id of its own: it was paid although another process had stored an answer first."""
    return replace(ended, call_id=unanswered_id(key))


def shared(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a whole number in proportion to the weights, by largest remainder; the parts add up to it."""
    whole = sum(weights)
    if not whole:
        return [total, *([0] * (len(weights) - 1))] if weights else []
    shares = [total * weight // whole for weight in weights]
    by_rest = sorted(range(len(weights)), key=lambda at: (-(total * weights[at] % whole), at))
    for at in by_rest[: total - sum(shares)]:
        shares[at] += 1
    return shares


def shared_cost(total: Decimal | None, weights: Sequence[int]) -> list[Decimal | None]:
    """Divide money in the same way, to its smallest part; None stays None."""
    if total is None:
        return [None] * len(weights)
    return [part * CENTS for part in shared(int(total / CENTS), weights)]


OWN_IDS = frozenset({"openai", "anthropic", "google"})

SMALL = 1_000
"""Tokens of a short call, below every tier from which prices rise."""


@dataclass(frozen=True, slots=True)
class PerMillion:
    """US dollars per million tokens of a short call."""

    input: Decimal
    output: Decimal | None
    """None for embedding models, which have no output price."""


class Prices:
    """Remembers of which models it has warned."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def cost(self, provider: str, model: str, tokens: Tokens, at: datetime | None = None) -> Decimal | None:
        """Return US dollars; None if the price is unknown. `at`: when it was asked, for prices that change."""
        self._warn_once(provider, model)
        return _cost(provider, model, tokens, at)

    def _warn_once(self, provider: str, model: str) -> None:
        if (provider, model) in self._seen:
            return
        self._seen.add((provider, model))
        found = _model(provider, model)
        if found is None:
            log.warning(
                "model without a known price: its tokens are counted, its cost is unknown", model=model
            )
        elif found.deprecated:
            log.warning("deprecated model: its provider will shut it down", provider=provider, model=model)


def prepare() -> None:
    """Load the price tables now instead of while a window waits."""
    _cost("openai", "gpt-5-mini", Tokens(input=1, output=1))


def per_million(provider: str, model: str) -> PerMillion | None:
    """Return the price for people; None if it is unknown."""
    thousand = Decimal(1_000_000) / SMALL
    of_input = _cost(provider, model, Tokens(input=SMALL))
    of_output = _cost(provider, model, Tokens(output=SMALL))
    if of_input is None:
        return None
    return PerMillion(of_input * thousand, None if of_output is None else of_output * thousand)


def deprecated(provider: str, model: str) -> bool:
    """Whether the provider has announced the model's end."""
    found = _model(provider, model)
    return bool(found and found.deprecated)


def _cost(provider: str, model: str, tokens: Tokens, at: datetime | None = None) -> Decimal | None:
    import genai_prices  # noqa: PLC0415 - comes with a provider's extra

    usage = genai_prices.Usage(
        input_tokens=tokens.input,
        cache_read_tokens=(cached := min(tokens.cached, tokens.input)),
        cache_write_tokens=min(tokens.written, tokens.input - cached),
        output_tokens=tokens.output,
    )
    try:
        found = genai_prices.calc_price(usage, model, genai_request_timestamp=at, **_provider(provider))
    except (LookupError, ValueError):
        return None
    listed = found.model_price
    unpriced = listed.input_mtok is None or (tokens.output > 0 and listed.output_mtok is None)
    return None if unpriced else found.total_price


def _model(provider: str, model: str) -> Any:
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415 - as above

    where = _provider(provider)
    try:
        return get_snapshot().find_provider_model(
            model, None, where.get("provider_id"), where.get("provider_api_url")
        )[1]
    except LookupError:
        return None


def _provider(provider: str) -> dict[str, Any]:
    """Find the provider by id or by an endpoint's address; it is never guessed from the model's name alone."""
    return {"provider_id": provider} if provider in OWN_IDS else {"provider_api_url": f"https://{provider}"}
