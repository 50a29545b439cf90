"""Of two facts about the same the newer stands first, for questions about now; other order stays."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.models.question import Asking
from eden_memory.schemas.fields import pack_vector
from eden_memory.schemas.provenance import Embedding
from eden_memory.search.fact_candidates import Scored
from eden_memory.search.newer import newer_first
from eden_memory.search.question_tense import QuestionTense
from tests.unit.search.candidate_facts import fact, ids, scored

NEAR, FAR = (1.0, 0.9), (-1.0, 0.3)


def test_the_newer_of_two_about_the_same_moves_above_the_older() -> None:
    found = newer_first(
        scored(
            (fact("old", "Ana lives in Lisbon.", days=90, vector=(1.0, 0.1)), 0.9),
            (fact("other", "Ana has a dog.", days=10, vector=(-0.2, 1.0)), 0.8),
            (fact("new", "Ana moved to Porto.", days=2, vector=(1.0, 0.6)), 0.7),
        ),
        1.0,
    )
    assert ids(found) == ["new", "old", "other"]
    assert [one.score for one in found] == [0.9, 0.9, 0.8]


@pytest.mark.parametrize(
    "second",
    [
        fact("b", "Ana moved to Porto.", days=200, vector=NEAR),
        fact("b", "Ana moved to Porto.", days=2, vector=FAR),
        fact("b", "Ana moved to Porto.", days=2, vector=NEAR, scope_key="user:s.a:s.b"),
    ],
    ids=["older", "about something else", "of another scope"],
)
def test_others_keep_their_place(second: object) -> None:
    first = fact("a", "Ana lives in Lisbon.", days=90, vector=NEAR)
    assert ids(newer_first(scored((first, 0.9), (second, 0.7)), 1.0)) == ["a", "b"]  # pyright: ignore[reportArgumentType]


def test_a_text_that_the_question_is_clearly_about_stays_above() -> None:
    older, newer = fact("old", "Lisbon", days=90, vector=NEAR), fact("new", "Porto", days=2, vector=NEAR)
    best = (fact("best", "Faro", days=200, vector=FAR), 1.0)
    assert ids(newer_first(scored(best, (older, 0.6), (newer, 0.58)), 0.5)) == ["best", "new", "old"]
    assert ids(newer_first(scored(best, (older, 0.6), (newer, 0.2)), 0.5)) == ["best", "old", "new"]


@pytest.mark.parametrize(("tense", "first"), [(0.8, "new"), (0.4, "new"), (-0.5, "old")])
def test_only_a_question_about_the_present_wants_the_newer(tense: float, first: str) -> None:
    older, newer = fact("old", "Lisbon", days=90, vector=NEAR), fact("new", "Porto", days=2, vector=NEAR)
    assert ids(newer_first(scored((older, 0.9), (newer, 0.7)), tense))[0] == first


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
    tense = QuestionTense(embedder)
    now, then = pack_vector((1.0, 0.5)), pack_vector((1.0, -0.5))
    assert await tense.of([now]) == pytest.approx(1)
    assert await tense.of([then]) == await tense.of([now, then]) == pytest.approx(-1)
    assert await tense.of([pack_vector((1.0, 0.0))]) == pytest.approx(0, abs=0.01)
    assert embedder.asked == 1
    assert await tense.of([]) == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 99), st.booleans()), max_size=25))
def test_all_stay_and_scores_fall(rows: list[tuple[float, float, bool]]) -> None:
    found = sorted(
        (
            Scored(fact(f"f{at}", "Ana moved.", days=days, vector=NEAR if near else FAR), score)
            for at, (score, days, near) in enumerate(rows)
        ),
        key=lambda one: -one.score,
    )
    after = newer_first(found, 1.0)
    assert sorted(ids(after)) == sorted(ids(found))
    assert [one.score for one in after] == sorted((one.score for one in after), reverse=True)
