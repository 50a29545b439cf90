"""What calls cost."""

from decimal import Decimal

import pytest
from structlog.testing import capture_logs

from eden_memory.models.call_accounts import Prices, deprecated, per_million
from eden_memory.models.provider_calls import Tokens


def cost(tokens: Tokens, model: str = "gpt-5-mini", provider: str = "openai") -> Decimal:
    found = Prices().cost(provider, model, tokens)
    assert found is not None
    return found


def test_cost_is_exact_and_grows_with_tokens() -> None:
    assert cost(Tokens(input=100, output=20)) == cost(Tokens(input=100)) + cost(Tokens(output=20))
    assert cost(Tokens(input=300)) == 3 * cost(Tokens(input=100)) > 0


def test_cached_tokens_are_a_cheaper_part_of_the_input() -> None:
    assert (
        0 < cost(Tokens(input=100, cached=100)) < cost(Tokens(input=100, cached=50)) < cost(Tokens(input=100))
    )


def test_reasoning_is_paid_as_the_output_that_it_is_part_of() -> None:
    assert cost(Tokens(output=100, reasoning=90)) == cost(Tokens(output=100))


def test_a_dated_name_costs_what_its_model_costs() -> None:
    assert cost(Tokens(input=100), "gpt-5-mini-2025-08-07") == cost(Tokens(input=100))


def test_vectors_have_a_price() -> None:
    assert cost(Tokens(input=100), "text-embedding-3-small") > 0
    found = per_million("openai", "text-embedding-3-small")
    assert found is not None
    assert found.output is None


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "gpt-of-tomorrow"), ("127.0.0.1:11434", "gpt-5-mini"), ("models.example.org", "gpt-5.1")],
)
def test_an_unknown_price_is_none_and_never_nothing(provider: str, model: str) -> None:
    assert Prices().cost(provider, model, Tokens(input=100, output=10)) is None
    assert per_million(provider, model) is None


def test_a_known_endpoint_is_priced_by_its_address() -> None:
    assert cost(Tokens(input=100), "deepseek-chat", "api.deepseek.com") > 0


def test_unknown_and_deprecated_models_are_warned_of_once() -> None:
    prices = Prices()
    with capture_logs() as logs:
        for _ in range(3):
            prices.cost("openai", "gpt-of-tomorrow", Tokens(input=1))
            prices.cost("google", "gemini-3-pro-preview", Tokens(input=1))
            prices.cost("openai", "gpt-5-mini", Tokens(input=1))
    assert [(one["log_level"], one["model"]) for one in logs] == [
        ("warning", "gpt-of-tomorrow"),
        ("warning", "gemini-3-pro-preview"),
    ]
    assert deprecated("google", "gemini-3-pro-preview")
    assert not deprecated("openai", "gpt-5-mini")
