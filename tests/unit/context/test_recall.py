"""Recall: which messages ask for something past."""

import pytest

from eden_memory.domain.context.recall import QUERY_CHARACTERS, asks_for_past, query_of, unknown_names

PAST = [
    "Do you remember my sister's name?",
    "remember when we planned the trip",
    "What did I say about the budget?",
    "what have we decided",
    "Where was the meeting held?",
    "Who signed the contract with us?",
    "When did Ada move?",
    "how much was it",
    "As I said, the blue one.",
    "Last time it took too long.",
    "Please send it to Marguerite at Holloway before lunch",
]
PRESENT = [
    "Write a poem about the sea.",
    "What is the capital of France?",
    "How do I sort a list in Python?",
    "thanks!",
    "Let's start on Monday.",
    "",
    "Which colour is better, red or green?",
]


@pytest.mark.parametrize("message", PAST)
def test_a_message_about_the_past_is_searched_for(message: str) -> None:
    assert asks_for_past(message, "")


@pytest.mark.parametrize("message", PRESENT)
def test_any_other_message_is_not(message: str) -> None:
    assert not asks_for_past(message, "")


def test_names_that_the_context_shows_are_known() -> None:
    message = "Please send it to Marguerite at Holloway before lunch"
    assert unknown_names(message, "") == {"Marguerite", "Holloway"}
    assert not asks_for_past(message, "<Facts>- [agent] Marguerite works in Paris</Facts>")


def test_the_first_word_of_a_sentence_is_no_name() -> None:
    assert unknown_names("Good. Nice work. Tell me more", "") == set()


def test_of_a_long_message_the_end_is_searched_for() -> None:
    assert query_of("x " * 1_000 + "end") == ("x " * 1_000 + "end")[-QUERY_CHARACTERS:]
