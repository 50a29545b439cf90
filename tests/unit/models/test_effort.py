"""How much a model thinks, in the words that each one takes."""

import pytest

from eden_memory.models.provider_calls import EFFORTS, anthropic_effort, google_thinking, openai_effort


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("gpt-5-mini", ["minimal", "minimal", "low", "medium", "high"]),
        ("gpt-5-2025-08-07", ["minimal", "minimal", "low", "medium", "high"]),
        ("gpt-5.1", ["none", "low", "low", "medium", "high"]),
        ("gpt-5.4-mini", ["none", "low", "low", "medium", "high"]),
        ("o4-mini", ["low", "low", "low", "medium", "high"]),
        ("gpt-4.1-mini", [None] * 5),
        ("gpt-5-chat-latest", [None] * 5),
    ],
)
def test_openai_is_sent_the_nearest_effort_that_the_model_takes(model: str, taken: list[str | None]) -> None:
    assert [openai_effort(model, effort) for effort in EFFORTS] == taken


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("gemini-3-flash-preview", ["MINIMAL", "MINIMAL", "LOW", "MEDIUM", "HIGH"]),
        ("gemini-3.1-pro-preview", ["LOW", "LOW", "LOW", "MEDIUM", "HIGH"]),
        ("models/gemini-2.5-flash", [0, 1_024, 1_024, 8_192, 24_576]),
        ("gemini-2.5-pro", [128, 1_024, 1_024, 8_192, 24_576]),
        ("gemini-2.0-flash", [None] * 5),
    ],
)
def test_google_is_sent_a_level_or_a_budget_as_the_model_takes_it(
    model: str, taken: list[str | int | None]
) -> None:
    assert [google_thinking(model, effort) for effort in EFFORTS] == taken


@pytest.mark.parametrize(
    ("model", "taken"),
    [
        ("claude-haiku-5-5", ["low", "low", "low", "medium", "high"]),
        ("claude-opus-4-5-20251101", ["low", "low", "low", "medium", "high"]),
        ("claude-sonnet-4-6", ["low", "low", "low", "medium", "high"]),
        ("claude-haiku-4-5-20251001", [None] * 5),
        ("claude-sonnet-4-5", [None] * 5),
        ("claude-opus-4-1", [None] * 5),
    ],
)
def test_anthropic_is_sent_the_nearest_effort_that_the_model_takes(
    model: str, taken: list[str | None]
) -> None:
    assert [anthropic_effort(model, effort) for effort in EFFORTS] == taken


def test_unset_nothing_is_sent() -> None:
    assert anthropic_effort("claude-haiku-5-5", None) is None
    assert openai_effort("gpt-5-mini", None) is None
    assert google_thinking("gemini-2.5-pro", None) is None
