"""The evaluation's own arithmetic, and its targets where model and data are at hand."""

from dataclasses import replace
from importlib.util import find_spec

import pytest

from eden_memory.evals.systems import mean_quality as mean
from eden_memory.models.local_embedder import MODEL, MULTILINGUAL
from eden_memory.search.ranking import Ranking
from tests.evals import plain_questions
from tests.evals.conversations import Kind, there
from tests.evals.held import KnownVectors
from tests.evals.languages import UNSPACED, found_in
from tests.evals.measures import quality
from tests.evals.newer_first import share_newer_first
from tests.evals.recalled import recalled
from tests.evals.runs import Judged, Loaded, engine, judged, loaded, rrf_60
from tests.evals.update_forms import forms, memories
from tests.evals.update_pairs import JUDGED, TUNING, of_people, pairs

local_model = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="needs the extra local-models")
with_conversations = pytest.mark.skipif(not there(), reason="the conversations are not part of the project")


def test_recall_counts_turns_and_gain_counts_places() -> None:
    bears = {"a": frozenset("1"), "b": frozenset("2"), "c": frozenset("23"), "d": frozenset[str]()}
    perfect = quality(["c", "b", "a", "d"], bears, frozenset("23"))
    assert (perfect.recall, perfect.ndcg) == pytest.approx((1.0, 1.0))
    half = quality(["d", "b"], bears, frozenset("23"))
    assert half.recall == 0.5
    assert 0 < half.ndcg < 0.5
    assert quality([], bears, frozenset("2")) == (0, 0)


def test_there_are_two_hundred_pairs_and_each_has_two_values_and_its_times() -> None:
    made = pairs((*TUNING, *JUDGED))
    assert len({(one.older, one.newer) for one in made}) == len(made) >= 200
    assert all(one.older_at < one.newer_at and one.older != one.newer for one in made)


@local_model
async def test_the_newer_of_update_pairs_is_first_in_nine_of_ten() -> None:
    vectors = KnownVectors()
    shares = [await share_newer_first(of_people(of), vectors, Ranking()) for of in (TUNING, JUDGED)]
    assert sum(shares) / len(shares) >= 0.9


@local_model
async def test_the_newer_is_first_in_forms_and_languages_that_the_rule_was_not_set_by() -> None:
    made = forms("held")
    assert len(made) >= 10
    assert await share_newer_first(memories(made), KnownVectors(), Ranking()) >= 0.9


@pytest.fixture(scope="module")
async def facts() -> list[Loaded]:
    """The facts of all conversations, loaded once."""
    return await loaded("facts", KnownVectors())


@pytest.fixture(scope="module")
async def by_default(facts: list[Loaded]) -> list[Judged]:
    """Every question about facts, asked once with the default ranking."""
    return await judged(facts, engine(Ranking()))


@local_model
@with_conversations
@pytest.mark.slow
async def test_putting_the_newer_first_costs_ranking_little(
    facts: list[Loaded], by_default: list[Judged]
) -> None:
    rule_off = await judged(facts, engine(replace(Ranking(), newer=False)))
    for category in (None, "multi-hop"):
        off, on = (
            mean([found.quality for found in run if category in (None, found.category)])
            for run in (rule_off, by_default)
        )
        assert on.ndcg >= off.ndcg - 0.01
        assert on.recall >= off.recall - 0.002


@local_model
@pytest.mark.parametrize(
    "language", [UNSPACED[0], *(pytest.param(one, marks=pytest.mark.slow) for one in UNSPACED[1:])]
)
async def test_facts_in_scripts_without_spaces_are_found_as_well_as_in_english(language: str) -> None:
    vectors = KnownVectors()
    english = await found_in("English", vectors, Ranking())
    assert (await found_in(language, vectors, Ranking())).among_ten >= english.among_ten - 0.05


@local_model
@with_conversations
@pytest.mark.slow
async def test_the_default_finds_more_facts_than_reciprocal_ranks(
    facts: list[Loaded], by_default: list[Judged]
) -> None:
    base = mean([one.quality for one in await judged(facts, rrf_60)])
    found = mean([one.quality for one in by_default])
    assert found.recall >= base.recall + 0.04


@local_model
@with_conversations
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["turns", "facts"])
async def test_recall_keeps_what_answers_and_adds_less_of_what_does_not(
    kind: Kind, facts: list[Loaded]
) -> None:
    found = await recalled(facts if kind == "facts" else await loaded(kind, KnownVectors()))
    assert found.answered >= 0.96
    assert found.others <= 1.6


@local_model
@pytest.mark.parametrize(
    ("model", "answered", "disturbed"),
    [(MODEL, 0.8, 0.4), pytest.param(MULTILINGUAL, 0.9, 0.1, marks=pytest.mark.slow)],
)
async def test_plain_questions_of_last_year_are_answered_and_small_talk_is_left_alone(
    model: str, answered: float, disturbed: float
) -> None:
    found = await plain_questions.recalled(KnownVectors(model))
    assert found.answered >= answered
    assert found.disturbed <= disturbed
