"""BM25 over several scopes' own indexes, and what becomes of words in any writing."""

import random
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.search.text_index import (
    Rarity,
    TextIndex,
    asked_words,
    folded,
    together,
    words_asked,
    words_of,
)


def index_of(*texts: str) -> TextIndex:
    index = TextIndex()
    for number, text in enumerate(texts):
        index.put(f"f{number}", text)
    write(index)
    return index


def write(index: TextIndex) -> None:
    writes = index.take()
    index.write(writes)
    index.written(writes)


def search(index: TextIndex, query: str, most: int = 10) -> list[tuple[str, float]]:
    words = asked_words(query)
    return index.search(words, index.rarity(words), most)


def bm25(count: int, having: int, times: int, length: int, mean: float) -> float:
    """As Lucene has it, with k1 + 1 in the numerator: k1 1.2, b 0.75."""
    rarity = log(1 + (count - having + 0.5) / (having + 0.5))
    return rarity * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length / mean))


def test_scores_are_bm25() -> None:
    index = index_of("tea tea oboe", "tea", "chess club tuesday evening")
    scores = dict(search(index, "tea"))
    assert scores["f0"] == pytest.approx(bm25(3, 2, 2, 3, 8 / 3), rel=0.01)
    assert scores["f1"] == pytest.approx(bm25(3, 2, 1, 1, 8 / 3), rel=0.01)


def test_how_rare_a_word_is_is_counted_over_all_scopes() -> None:
    """A word that is common in one scope is not made precious by a scope that has it once."""
    large, small = index_of(*(f"tea {n}" for n in range(20)), "oboe"), index_of("tea here", "chess here")
    words = asked_words("tea oboe")
    rarity = together([large.rarity(words), small.rarity(words)])
    assert (rarity.facts, rarity.having) == (23, {"tea": 21, "obo": 1})
    (tea,) = small.search(words, rarity, 5)
    oboe = large.search(words, rarity, 5)[0]
    assert oboe[0] == "f20"
    assert tea[1] == pytest.approx(bm25(23, 21, 1, 2, 2), rel=0.01)
    assert oboe[1] > 10 * tea[1]


def test_a_typo_counts_less_than_the_word() -> None:
    index = index_of("Ana plays the violin", "Ben has a violence problem", "nothing")
    ((found, score),) = search(index, "voilin")
    ((_, exact),) = search(index, "violin")
    assert found == "f0"
    assert score < exact
    assert search(index, "vln") == []


def test_a_compound_is_found_by_its_parts_and_a_part_by_its_compounds() -> None:
    index = index_of("Seine Krankenversicherung kostet 120 Euro", "Die Versicherung ist in Gotha", "nichts")
    assert [found for found, _ in search(index, "Versicherung")] == ["f1", "f0"]
    assert [found for found, _ in search(index, "Hausratversicherung")] == ["f1"]
    assert [found for found, _ in search(index, "Kranken")] == ["f0"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("cafe", "Café"),
        ("Straße", "STRASSE"),
        ("Soeren Sørensen", "sorensen"),
        ("كتاب", "الكِتَابُ"),
        ("שלום", "שָׁלוֹם"),
        ("می\u200cروم", "میروم"),
        ("\u200fأحمد\u200e", "احمد"),
        ("ｶﾌｪ", "カフェ"),
    ],
)
def test_marks_and_ways_of_writing_make_no_difference(asked: str, told: str) -> None:
    assert search(index_of(told, "x"), asked)[0][0] == "f0"


def test_what_is_removed_is_not_found_from_then_on_and_makes_no_room() -> None:
    index = index_of(*(f"tea {n}" for n in range(10)))
    for number in range(6):
        index.remove(f"f{number}")
    assert {name for name, _ in search(index, "tea", 4)} == {"f6", "f7", "f8", "f9"}
    writes = index.take()
    assert len(search(index, "tea", 4)) == 4
    index.write(writes)
    index.written(writes)
    assert index.rarity(asked_words("tea")).facts == 4
    assert not index.waiting


def test_what_is_replaced_is_found_until_its_new_words_are_and_never_once_removed() -> None:
    index = index_of("tea", "tea too")
    index.put("f0", "oboe")
    assert {name for name, _ in search(index, "tea")} == {"f0", "f1"}
    writes = index.take()
    index.put("f0", "chess")
    index.write(writes)
    index.written(writes)
    assert [name for name, _ in search(index, "oboe")] == ["f0"]
    index.remove("f0")
    assert search(index, "oboe chess") == []
    write(index)
    assert [name for name, _ in search(index, "tea oboe chess")] == ["f1"]


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_the_order_of_changes_does_not_matter(seed: int) -> None:
    dice, texts, index = random.Random(seed), dict[str, str](), TextIndex()
    for _ in range(40):
        name, text = f"f{dice.randrange(12)}", " ".join(dice.choices(("tea", "oboe", "chess", "lyon"), k=3))
        if dice.random() < 0.3:
            texts.pop(name, None)
            index.remove(name)
        else:
            texts[name] = text
            index.put(name, text)
        if dice.random() < 0.3:
            write(index)
    write(index)
    found = {name for name, _ in search(index, "tea", 50)}
    assert found == {name for name, text in texts.items() if "tea" in text}


@given(st.text(max_size=200))
def test_any_text_is_found_by_itself(text: str) -> None:
    assert set(words_asked(text)) <= set(words_of(text))
    assert folded(folded(text)) == folded(text)


def test_words_that_say_nothing_count_only_where_nothing_else_is_asked() -> None:
    assert [one.word for one in asked_words("where does the user live")] == ["user", "live"]
    assert [one.word for one in asked_words("who is it")] == ["who", "is", "it"]
    assert asked_words("🎉 --- !!") == []
    assert Rarity(0, {}).weight("x") > 0
