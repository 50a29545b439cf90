"""Of two facts about the same the newer stands first, for questions about now; other order stays."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.models.question import Asking
from eden_memory.schemas.fields import pack_vector
from eden_memory.schemas.provenance import Embedding
from eden_memory.search.fact_candidates import FactCandidate, Scored
from eden_memory.search.question_times import PRESENT_AND_PAST, QuestionKind
from eden_memory.search.ranking_stages import newer_first, similarity_to, tense_needed
from eden_memory.search.text_index import stems_asked
from tests.unit.search.candidate_facts import fact, ids, scored

NEAR, FAR = (1.0, 0.9), (-1.0, 0.3)
QUESTION = "Where does Ana live?"


def overtaken(found: Sequence[Scored], tense: float = 1.0, question: str = QUESTION) -> list[str]:
    """Return ids in their order after the stage; the question is as near to every fact as its vector says."""
    near = similarity_to(pack_vector((1.0, 0.5)), [scored.fact for scored in found])
    with_meaning = [
        replace(scored, scores={**scored.scores, "semantic": similar})
        for scored, similar in zip(found, near, strict=True)
    ]
    needed = tense_needed(with_meaning, stems_asked(question))
    return ids(newer_first(with_meaning, {pair for pair, least in needed.items() if tense > least}))


def test_the_newer_of_two_about_the_same_moves_above_the_older() -> None:
    found = newer_first(
        scored(
            (fact("old", "Ana lives in Lisbon.", days=90), 0.9),
            (fact("other", "Ana has a dog.", days=10), 0.8),
            (fact("new", "Ana moved to Porto.", days=2), 0.7),
        ),
        {("new", "old")},
    )
    assert ids(found) == ["new", "old", "other"]
    assert [scored.score for scored in found] == [0.9, 0.9, 0.8]


def test_an_update_overtakes_and_what_only_resembles_it_does_not() -> None:
    old = fact("old", "Ana lives in Lisbon.", days=90, vector=(1.0, 0.1))
    other = fact("other", "Ana has a dog.", days=10, vector=(-0.2, 1.0))
    new = fact("new", "Ana moved to Porto.", days=2, vector=(1.0, 0.6))
    assert overtaken(scored((old, 0.9), (other, 0.8), (new, 0.7))) == ["new", "old", "other"]


@pytest.mark.parametrize(
    "second",
    [
        fact("b", "Ana moved to Porto.", days=200, vector=NEAR),
        fact("b", "Ana moved to Porto.", days=2, vector=FAR),
        fact("b", "Ana moved to Porto.", days=2, vector=NEAR, scope_key="user:s.a:s.b"),
    ],
    ids=["older", "about something else", "of another scope"],
)
def test_others_keep_their_place(second: FactCandidate) -> None:
    first = fact("a", "Ana lives in Lisbon.", days=90, vector=NEAR)
    assert overtaken(scored((first, 0.9), (second, 0.7))) == ["a", "b"]


def needed_of(older: str, newer: str, question: str, nearer: int = 0) -> float:
    """Return the tense that a newer text needs; `nearer` other facts are nearer to each of the two."""
    pool = [
        fact("old", older, days=90, vector=(1.0, 0.9)),
        fact("new", newer, days=2, vector=(0.9, 1.0)),
        *(fact(f"f{at}", "Faro", days=400, vector=(1.0, 0.95 + at / 1000)) for at in range(nearer)),
    ]
    found = [Scored(candidate, 1.0, {"semantic": 0.9}) for candidate in pool]
    return tense_needed(found, stems_asked(question))["new", "old"]


def test_more_shared_words_need_less_of_the_present() -> None:
    question = "What is the answer?"
    alike = needed_of("Trains run at night.", "Trains run at noon.", question)
    assert alike < needed_of("Trains run at night.", "Departure is noon.", question)


def test_words_of_the_question_that_only_the_older_has_need_more_of_the_present() -> None:
    older, newer = "The blue bike is in the shed.", "The red bike is in the attic."
    assert needed_of(older, newer, "Where is the bike?") < needed_of(older, newer, "Where is the blue bike?")


def test_others_that_are_nearer_need_more_of_the_present() -> None:
    texts = ("The blue bike is in the shed.", "The red bike is in the attic.", "Where is the bike?")
    assert needed_of(*texts) < needed_of(*texts, nearer=1) < needed_of(*texts, nearer=2)


def test_a_fact_whose_likeness_to_the_question_is_unknown_stays() -> None:
    pool = [fact("old", "Lisbon", days=90, vector=NEAR), fact("new", "Lisbon", days=2, vector=NEAR)]
    assert not tense_needed([Scored(candidate, 1.0) for candidate in pool], frozenset())


@pytest.mark.parametrize(("tense", "first"), [(0.8, "new"), (0.0, "new"), (-0.7, "old")])
def test_a_question_about_the_past_keeps_the_older_first(tense: float, first: str) -> None:
    older = fact("old", "Ana lives in Lisbon.", days=90, vector=NEAR)
    newer = fact("new", "Ana lives in Porto.", days=2, vector=NEAR)
    assert overtaken(scored((older, 0.9), (newer, 0.7)), tense)[0] == first


class Tenses:
    """An embedder whose vectors point to the present or the past by the words `did` and `was`."""

    model, dimensions = "test", 2

    def __init__(self) -> None:
        self.asked = 0

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        self.asked += 1
        past = [bool({"did", "was", "happened"} & set(text.split())) for text in texts]
        return [Embedding(model="test", vector=pack_vector((1.0, -0.5 if then else 0.5))) for then in past]


async def test_the_tense_of_a_question_is_told_by_its_vector_and_examples_are_embedded_once() -> None:
    embedder = Tenses()
    tense = QuestionKind(embedder, PRESENT_AND_PAST)
    now, then = pack_vector((1.0, 0.5)), pack_vector((1.0, -0.5))
    assert await tense.of([now]) == pytest.approx(1)
    assert await tense.of([then]) == await tense.of([now, then]) == pytest.approx(-1)
    assert await tense.of([pack_vector((1.0, 0.0))]) == pytest.approx(0, abs=0.01)
    assert embedder.asked == 1
    assert await tense.of([]) == 0


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 99), st.booleans()), max_size=25),
    st.sets(st.tuples(st.integers(0, 12), st.integers(0, 12))),
)
def test_all_stay_and_scores_fall(
    rows: list[tuple[float, float, bool]], overtaking: set[tuple[int, int]]
) -> None:
    found = sorted(
        (
            Scored(fact(f"f{at}", "Ana moved.", days=days, vector=NEAR if near else FAR), score)
            for at, (score, days, near) in enumerate(rows)
        ),
        key=lambda one: -one.score,
    )
    after = newer_first(found, {(f"f{at}", f"f{older}") for at, older in overtaking})
    assert sorted(ids(after)) == sorted(ids(found))
    assert [one.score for one in after] == sorted((one.score for one in after), reverse=True)
