"""What makes a fact junk, at its corners."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from eden_memory.formation.audit_rules import (
    MOST_ALIKE,
    AuditedFact,
    Likeness,
    alike,
    by_itself,
    by_messages,
    repeats,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NOTHING = set[tuple[str, str, str]]()


def fact(name: str, text: str, days: int = 0) -> AuditedFact:
    return AuditedFact(name, 1, "user:s.a:s.u", "s.a", text, NOW + timedelta(days=days))


def found(facts: Sequence[AuditedFact], similar: float = 0.95) -> set[tuple[str, str, str]]:
    pairs = list(alike(facts))
    near = {(pair.older.fact_id, pair.newer.fact_id): Likeness(similar, 0.93) for pair in pairs}
    return {
        (junk.kind, junk.fact.fact_id, junk.because.fact_id)
        for junk in repeats(pairs, near, 0.7)
        if junk.because is not None
    }


@pytest.mark.parametrize(
    ("older", "newer", "kinds"),
    [
        ("Ada rows a wooden boat.", "ada rows: a wooden boat", {("duplicate", "new", "old")}),
        ("Ada rows a wooden boat.", "A wooden boat rows Ada", NOTHING),
        ("Ada has a wooden boat, blue", "Ada has a wooden boat, green", NOTHING),
        ("Ada's dog sleeps under wooden boats", "Ada's cat sleeps under wooden boats", NOTHING),
        ("Ada's choir practises Mon", "Ada's choir practises Fri", NOTHING),
        ("Ada writes wooden programs in C", "Ada writes wooden programs in C++", NOTHING),
        ("Ada rows a wooden boat", "Ada rows a wooden boat weekly", {("near_duplicate", "old", "new")}),
        ("Ada rows a wooden boat weekly", "Ada rows a wooden boat", {("near_duplicate", "new", "old")}),
        ("Ada rows a wooden boat weekly", "Ada rows this wooden boat", NOTHING),
        ("Ada rows 12 wooden boats", "Ada rows 14 wooden boats", {("contradicted", "old", "new")}),
        ("Ada likes wooden boats", "Ada never likes wooden boats", {("contradicted", "old", "new")}),
        ("Ada rows a wooden boat", "Ada paints the kitchen ceiling", NOTHING),
        ("Boat", "Boat", NOTHING),
    ],
)
def test_two_facts_of_a_scope(older: str, newer: str, kinds: set[tuple[str, str, str]]) -> None:
    assert found([fact("new", newer, 1), fact("old", older)]) == kinds


def test_what_is_far_apart_by_meaning_stays() -> None:
    assert (
        found([fact("o", "Ada rows 12 boats there"), fact("n", "Ada rows 14 boats there", 1)], 0.6) == set()
    )


def test_a_near_duplicate_means_the_same_to_its_model() -> None:
    pair = [fact("o", "Ada rows a wooden boat"), fact("n", "Ada rows a wooden boat weekly", 1)]
    assert found(pair, 0.9) == set()


def test_what_happened_at_two_times_contradicts_nothing() -> None:
    first, second = fact("o", "Ada rowed 12 miles upstream"), fact("n", "Ada rowed 14 miles upstream", 1)
    first, second = replace(first, occurred_at=NOW), replace(second, occurred_at=NOW + timedelta(days=1))
    assert found([first, second]) == set()


def test_a_word_that_all_facts_have_makes_no_more_pairs_than_the_bound() -> None:
    facts = [
        fact(f"{number:04}", f"weather seldom changes {'xyz'[number % 3]}", number) for number in range(900)
    ]
    assert 0 < len(list(alike(facts))) <= 900 * MOST_ALIKE


def test_a_fact_past_its_time_and_one_about_nobody() -> None:
    assert by_itself(replace(fact("f", "Ada rows"), expires_at=NOW), NOW) == "expired"
    assert by_itself(replace(fact("f", "Ada rows"), expires_at=NOW + timedelta(1)), NOW) is None
    assert by_itself(fact("f", "User 2 rows"), NOW) == "nobody"
    assert by_itself(fact("f", "They row"), NOW) == "nobody"
    for text in (
        "Theyer rows",
        "IT rows",
        "It rows",
        "They Might Be Giants play",
        "She and Ada row",
        "HE rows",
    ):
        assert by_itself(fact("f", text), NOW) is None


@pytest.mark.parametrize(
    ("messages", "kind"),
    [
        ([("user", "We went rowing, my boat is of wood")], None),
        ([("user", "Is it the same for you and me?")], "unsupported"),
        ([("user", "Hello there")], None),
        ([("user", "Ist das so für dich und mich?")], None),
        ([("user", "今日はいい天気 is it the")], None),
        ([], None),
        ([("tool", "<facts>Ada rows the wooden boat for you</facts>")], "quote"),
        ([("user", "<facts>Ada rows the wooden boat for you</facts>")], None),
        ([("assistant", "You row the wooden boat, Ada")], "quote"),
        ([("assistant", "You row the wooden boat, Ada"), ("user", "Yes, a wooden one")], None),
    ],
)
def test_what_messages_say_of_a_fact(messages: list[tuple[str, str]], kind: str | None) -> None:
    older = [fact("old", "Ada rows the wooden boat for you")]
    junk = by_messages(fact("new", "Ada rows the wooden boat for you weekly", 1), messages, older)
    assert (junk and junk.kind) == kind


def test_text_without_spaces_is_not_judged() -> None:
    assert by_messages(fact("new", "彼女は is the 木のボートを漕ぐ"), [("user", "Is it the same?")]) is None


def test_what_the_agent_says_first_is_no_quote() -> None:
    assert (
        by_messages(fact("new", "Ada rows a wooden boat"), [("assistant", "Ada rows a wooden boat")]) is None
    )
