"""Prices calls by the tables that come with genai-prices; fetches nothing."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from eden_memory.logs import LibraryLogger
from eden_memory.models.calls import Tokens

OWN_IDS = frozenset({"openai", "google"})
SMALL = 1_000
"""Tokens: below every tier from which prices rise."""
log = LibraryLogger()


@dataclass(frozen=True, slots=True)
class PerMillion:
    """US dollars per million tokens of a short call."""

    input: Decimal
    output: Decimal | None
    """None for models without any, those of vectors."""


class Prices:
    """Remembers which models it has warned of."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def cost(self, provider: str, model: str, tokens: Tokens, at: datetime | None = None) -> Decimal | None:
        """US dollars; None where the price is unknown. `at`: when it was asked, for prices that change."""
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
    """Load the tables now, rather than while a window waits."""
    _cost("openai", "gpt-5-mini", Tokens(input=1, output=1))


def per_million(provider: str, model: str) -> PerMillion | None:
    """Price for people; None where it is unknown."""
    thousand = Decimal(1_000_000) / SMALL
    of_input = _cost(provider, model, Tokens(input=SMALL))
    of_output = _cost(provider, model, Tokens(output=SMALL))
    if of_input is None:
        return None
    return PerMillion(of_input * thousand, None if of_output is None else of_output * thousand)


def deprecated(provider: str, model: str) -> bool:
    """Whether the provider has announced its end."""
    found = _model(provider, model)
    return bool(found and found.deprecated)


def _cost(provider: str, model: str, tokens: Tokens, at: datetime | None = None) -> Decimal | None:
    import genai_prices  # noqa: PLC0415 - comes with a provider's extra

    usage = genai_prices.Usage(
        input_tokens=tokens.input,
        cache_read_tokens=min(tokens.cached, tokens.input),
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
    """By id, or by the address of an endpoint: never guessed from the model's name alone."""
    return {"provider_id": provider} if provider in OWN_IDS else {"provider_api_url": f"https://{provider}"}
