"""Recall: which messages ask for something past."""

import timeit
from time import process_time

import pytest

from eden_memory.context.context_xml import QUERY_CHARACTERS, may_need_recall, query_of, unknown_names
from eden_memory.settings import MessagesSettings, Settings

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
    assert may_need_recall(message, "")


@pytest.mark.parametrize("message", PRESENT)
def test_any_other_message_is_not(message: str) -> None:
    assert not may_need_recall(message, "")


@pytest.mark.parametrize(
    "message",
    [
        "Wie hoch ist meine Miete?",
        "wo wohne ich",
        "¿Dónde vivo?",
        "我的猫叫什么名字",
        "試験はいつですか",
        "고양이 이름이 뭐예요?",
        "แมวชื่ออะไร",
        "ما اسم القطة؟",
        "מה שם החתול?",
        "Где я живу?",
    ],
)
def test_a_message_in_another_language_is_searched_for_whatever_it_asks(message: str) -> None:
    assert may_need_recall(message, "")


def test_names_that_the_context_shows_are_known() -> None:
    message = "Please send it to Marguerite at Holloway before lunch"
    assert unknown_names(message, "") == {"Marguerite", "Holloway"}
    assert not may_need_recall(message, "<Facts>- [agent] Marguerite works in Paris</Facts>")


def test_the_first_word_of_a_sentence_is_no_name() -> None:
    assert unknown_names("Good. Nice work. Tell me more", "") == set()


def test_of_a_long_message_the_end_is_searched_for() -> None:
    assert query_of("x " * 1_000 + "end", Settings()) == ("x " * 1_000 + "end")[-QUERY_CHARACTERS:]


def test_no_half_of_a_secret_is_left_where_a_long_message_is_cut() -> None:
    secret = "sk-" + "a1b2c3d4" * 5
    message = f"Do you remember my key {secret} " + "x" * (QUERY_CHARACTERS - 20)
    assert "c3d4" not in query_of(message, Settings())
    kept = Settings(messages=MessagesSettings(redact_secrets=False))
    assert "c3d4" in query_of(message, kept)


@pytest.mark.parametrize("piece", ["what did i ", "who ", "a Foo, ", "how ab "])
def test_a_message_of_any_length_costs_no_more_than_a_long_one(piece: str) -> None:
    assert _seconds(piece * 20_000) < 20 * _seconds(piece * 1_000)


def _seconds(message: str) -> float:
    """Of CPU: other work beside it does not count."""
    return min(timeit.repeat(lambda: may_need_recall(message, ""), number=1, repeat=5, timer=process_time))


def test_a_question_around_what_was_pasted_is_heard() -> None:
    pasted = "2026-01-01 INFO ok\n" * 5_000
    assert may_need_recall(f"What did I say about this? {pasted}", "")
    assert may_need_recall(f"{pasted} What did I say about this?", "")
    assert not may_need_recall(pasted, "")


@pytest.mark.parametrize("shift", range(0, 40, 4))
def test_no_half_of_a_secret_is_searched_for_where_a_long_message_is_cut(shift: int) -> None:
    secret = "".join(f"{number:x}A" for number in range(30, 60))
    behind = f"{' ' * (1_270 + shift)}What did I say?"
    query = query_of(f"{'word ' * 9_000}password: {secret}{behind}", Settings())
    assert query.endswith("What did I say?")
    assert not any(secret[start : start + 16] in query for start in range(len(secret) - 15))
