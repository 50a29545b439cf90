"""Answers that are not quite what was asked for: what is readable is used, item by item, and the rest is counted."""

import json
import random
import string
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.models.judging import LONGEST_REPAIRED, complete_items, parsed, readable
from eden_memory.schemas.answers import ConsolidatedText, ExtractedFacts, FactDecisions, JudgedReflections

TEA = {"text": "Ana drinks tea.", "scope": "agent", "messages": [1], "about": "world", "sensitive": False}
CAT = {"text": "The cat is Mia.", "scope": "agent", "messages": [2], "about": "world", "sensitive": False}
AS_WRITTEN = json.dumps({"facts": [TEA, CAT]})


def facts(text: str) -> tuple[list[tuple[str, list[int]]], int]:
    """The texts and numbers of what is readable, and how many items are not."""
    found = readable(text, ExtractedFacts)
    assert not isinstance(found, str), found
    return [(fact.text, fact.messages) for fact in found[0].facts], found[1]


BOTH = [("Ana drinks tea.", [1]), ("The cat is Mia.", [2])]


@pytest.mark.parametrize(
    ("text", "said", "unreadable"),
    [
        (AS_WRITTEN.replace("drinks tea", r"keeps C:\Users\ana"), [(r"Ana keeps C:\Users\ana.", [1]), BOTH[1]], 0),
        (AS_WRITTEN.replace("drinks tea", "drinks\ntea\tor milk"), [("Ana drinks\ntea\tor milk.", [1]), BOTH[1]], 0),
        (AS_WRITTEN.replace("tea.", r"tea \ud83d."), [("Ana drinks tea .", [1]), BOTH[1]], 0),
        (AS_WRITTEN.replace("tea.", r"tea \ud83c\udf75 \q"), [("Ana drinks tea 🍵 \\q", [1]), BOTH[1]], 0),
        (AS_WRITTEN.replace("tea.", 'the "tea" of'), [('Ana drinks the "tea" of', [1]), BOTH[1]], 0),
        (AS_WRITTEN.replace("tea.", r'the "tea" \ud83c\udf75'), [('Ana drinks the "tea" 🍵', [1]), BOTH[1]], 0),
        (AS_WRITTEN.replace('", "scope', r' \ud83c\udf75" "scope', 1), [("Ana drinks tea. 🍵", [1]), BOTH[1]], 0),
        (repr({"facts": [TEA, CAT]}).replace("tea.", r"tea \ud83c\udf75"), [("Ana drinks tea 🍵", [1]), BOTH[1]], 0),
        (repr({"facts": [TEA, CAT]}).replace("tea.", "tea \ud83c"), BOTH[1:], 1),
        (json.dumps([TEA, CAT]), BOTH, 0),
        (f"Here they are:\n{json.dumps([TEA, CAT])}", BOTH, 0),
        (f"{json.dumps(TEA)}\n{json.dumps(CAT)}", BOTH, 0),
        (json.dumps(TEA), BOTH[:1], 0),
        (json.dumps({"facts": [TEA, {**CAT, "why": "asked"}], "note": "two"}), BOTH, 0),
        (json.dumps({"facts": [{**TEA, "messages": 1}, {**CAT, "messages": ["[2]"]}]}), BOTH, 0),
        (json.dumps({"facts": [TEA, {"text": 5}, "chatter", {**CAT, "scope": None}]}), BOTH[:1], 3),
        (repr({"facts": [TEA, CAT]}), BOTH, 0),
        (AS_WRITTEN[:-2], BOTH, 0),
        (AS_WRITTEN.replace('"sensitive": false}, ', '"sensitive": false} '), BOTH, 0),
        (f'{{"facts": [{json.dumps(TEA)}, {{"text": "Lea lives in Gr', BOTH[:1], 0),
        (f'{{"facts": [{json.dumps(TEA)}, {{"text": "Lea lives in [Porto] or Gr', BOTH[:1], 1),
        ("[]", [], 0),
        ('{"facts": [], "why": "small talk"}', [], 0),
    ],
)  # fmt: skip
def test_what_is_readable_of_an_answer_is_read(text: str, said: list[Any], unreadable: int) -> None:
    assert isinstance(parsed(text, ExtractedFacts), str), "the trials of models forgive nothing of it"
    assert facts(text) == (said, unreadable)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I found no facts [in these 3 messages].",
        "<html><head><style>body {facts: []}</style></head><body>502 Bad Gateway</body></html>",
        '{"facts": 3}',
        '{"facts": null}',
        '{"memories": []}',
        '{"facts": [{"text": "a"}, 7]}',
        "[" * 5_000,
        '{"facts": [' * 5_000,
        "\\" * 5_000,
    ],
)
def test_what_holds_no_item_stays_invalid(text: str) -> None:
    assert readable(text, ExtractedFacts) == parsed(text, ExtractedFacts)


def test_only_items_of_a_repaired_text_are_personal_and_sensitive() -> None:
    whole = readable(json.dumps([TEA, {"text": 5}]), ExtractedFacts)
    repaired = readable(AS_WRITTEN.replace("tea", r"C:\tea\q"), ExtractedFacts)
    assert isinstance(whole, tuple)
    assert isinstance(repaired, tuple)
    assert [(fact.about, fact.sensitive) for fact in whole[0].facts] == [("world", False)]
    assert {(fact.about, fact.sensitive) for fact in repaired[0].facts} == {("person", True)}
    judged = json.dumps(
        {"propagated": [{"reflection": 1, "text": "a\nb", "about": "world", "sensitive": False}]}
    )
    found = readable(judged.replace("\\n", "\n"), JudgedReflections)
    assert isinstance(found, tuple)
    assert [(item.about, item.sensitive) for item in found[0].propagated] == [("person", True)]


def test_of_decisions_one_without_its_nulls_is_read_and_one_without_a_decision_is_not() -> None:
    said = {
        "decisions": [
            {"fact": "N1", "decision": "NONE", "existing": "K1"},
            {"fact": "N2", "decision": "KEEP"},
        ]
    }
    found = readable(json.dumps(said), FactDecisions)
    assert isinstance(found, tuple)
    assert ([item.fact for item in found[0].decisions], found[1]) == (["N1"], 1)


def test_of_decisions_in_a_repaired_text_an_emoji_is_read() -> None:
    said = {
        "fact": "N1",
        "decision": "UPDATE",
        "existing": "K1",
        "text": "Ana drinks tea 🍵.",
        "reason": None,
    }
    text = json.dumps({"decisions": [said]}).replace("drinks", '"drinks"')
    found = readable(text, FactDecisions)
    assert isinstance(found, tuple)
    assert [item.text for item in found[0].decisions] == ['Ana "drinks" tea 🍵.']


def test_of_an_answer_that_is_cut_off_and_must_be_repaired_an_emoji_is_read() -> None:
    cut = AS_WRITTEN.replace("tea.", r'the "tea" \ud83c\udf75')[:-20]
    found = complete_items(cut, ExtractedFacts)
    assert isinstance(found, tuple)
    assert [fact.text for fact in found[0].facts] == ['Ana drinks the "tea" 🍵']


def test_a_blob_is_mended_but_never_completed() -> None:
    found = readable('Sure: {"text": "One.\nTwo in C:\\Users.", "words": 4}', ConsolidatedText)
    assert found == (ConsolidatedText(text="One.\nTwo in C:\\Users."), 0)
    for cut in ('{"text": "One {1} and', '{"text": "One.", "words": [4], "why": "b'):
        assert isinstance(readable(cut, ConsolidatedText), str)


def test_no_text_fails_or_takes_long() -> None:
    draw, pieces = (
        random.Random(5),
        [*'{}[]",:\\ \n', '"facts"', '"text"', "\\u", "\\ud83d", "'", *string.digits],
    )
    begun = perf_counter()
    for _ in range(400):
        readable("".join(draw.choices(pieces, k=60)), ExtractedFacts)
    readable('{"facts": [' + 'a" ' * LONGEST_REPAIRED + "]", ExtractedFacts)
    assert perf_counter() - begun < 10


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("9" * 5_000),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*TEA, "facts"]), inner),
    max_leaves=12,
)


@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys((*TEA, "occurred_at"), odd)), odd, st.integers(0, 300)
)
def test_no_value_fails_in_any_field_and_no_cut_does(item: dict[str, Any], beside: Any, cut: int) -> None:
    for said in ({"facts": [TEA, item, beside]}, [item, TEA], {"facts": beside}):
        text = json.dumps(said)
        readable(text, ExtractedFacts)
        complete_items(text[:cut], ExtractedFacts)
        readable(text[:cut], ExtractedFacts)
    assert TEA["text"] in [fact[0] for fact in facts(json.dumps({"facts": [TEA, item, beside]}))[0]]
