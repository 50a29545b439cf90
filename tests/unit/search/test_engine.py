"""The search engine over lists in memory: degrades, reports, and stays within the scopes that were asked for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eden_memory.errors import Invalid, ProviderError
from eden_memory.models.question import Asking
from eden_memory.redaction import Redactor
from eden_memory.schemas.fields import pack_vector
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import FactCandidate, Ranked
from eden_memory.search.ranking import Ranking
from eden_memory.search.search_count_store import AccessCounting
from eden_memory.search.search_engine import SearchEngine
from eden_memory.search.search_requests import SearchRequest
from tests.unit.search.candidate_facts import NOW, fact, ranked

AGENT = Scope.of_agent("s.a")
DOG, CAT = fact("dog", "Ana has a dog."), fact("cat", "Ana has a cat.", vector=(0.0, 1.0))
STRANGER = fact("stranger", "Bob has a dog.", scope_key="user:s.a:s.bob")


class Embeds:
    model, dimensions = "words", 2

    def __init__(self) -> None:
        self.calls: list[Sequence[str]] = []

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        self.calls.append(tuple(texts))
        return [Embedding(model="words", vector=pack_vector((1.0, 0.0))) for _ in texts]


class Lists:
    """What it is told to find, or to raise."""

    def __init__(self, semantic: Any, textual: Any) -> None:
        self._semantic, self._textual = semantic, textual

    async def semantic(self, *given: Any, **named: Any) -> Sequence[Sequence[Ranked]]:
        return self._found(self._semantic, len(given[1]))

    async def textual(self, *given: Any, **named: Any) -> Sequence[Sequence[Ranked]]:
        return self._found(self._textual, len(given[1]))

    def _found(self, found: Any, count: int) -> Sequence[Sequence[Ranked]]:
        if isinstance(found, Exception):
            raise found
        return [found] * count


class Judge:
    def __init__(self, says: dict[str, float] | Exception) -> None:
        self._says = says

    async def relevances(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        if isinstance(self._says, Exception):
            raise self._says
        return [self._says[text] for text in texts]


BOTH = Lists(ranked((DOG, 0.9), (CAT, 0.6)), ranked((DOG, 3.0)))


def asked(*queries: str, **more: Any) -> SearchRequest:
    return SearchRequest(queries, asked_at=NOW, **more)


async def test_three_queries_are_one_embedding_call_and_blank_or_equal_ones_are_left_out() -> None:
    embeds = Embeds()
    report = await SearchEngine(BOTH, embeds).find([AGENT], asked("the  dog", " ", "the dog"))
    assert embeds.calls == [("the dog",)]
    assert [one.content for one in report.facts] == ["Ana has a dog.", "Ana has a cat."]
    assert report.facts[0].score == pytest.approx(1.0)


async def test_the_best_of_each_query_is_among_as_many_facts_for_each() -> None:
    dogs = [fact(f"dog {number}", f"Ana has dog {number}.") for number in range(3)]

    class Apart(Lists):
        def _found(self, found: Any, count: int) -> Sequence[Sequence[Ranked]]:
            return [
                ranked(*((dog, 0.9 - number / 100) for number, dog in enumerate(dogs))),
                ranked((CAT, 0.5)),
            ]

    report = await SearchEngine(Apart((), ()), Embeds()).find([AGENT], asked("a dog", "a pet", top_k=1))
    assert [one.fact_id for one in report.facts] == ["dog 0", "cat"]


async def test_a_long_answer_has_long_lists() -> None:
    lengths = list[int]()

    class Asked(Lists):
        async def semantic(self, *given: Any, **named: Any) -> Sequence[Sequence[Ranked]]:
            lengths.append(given[2])
            return await super().semantic(*given, **named)

    engine = SearchEngine(Asked((), ()), Embeds())
    for top_k in (10, 33, 40, 200):
        await engine.find([AGENT], asked("a dog", top_k=top_k))
    await engine.find([AGENT], asked("a dog", top_k=200, list_size=7))
    assert lengths == [50, 50, 60, 300, 7]


async def test_of_one_query_the_reranked_best_is_found_alone() -> None:
    judge = Judge({"Ana has a dog.": 0.4, "Ana has a cat.": 0.9})
    report = await SearchEngine(BOTH, Embeds(), reranker=judge).find([AGENT], asked("a pet", top_k=1))
    assert [one.fact_id for one in report.facts] == ["cat"]


async def test_neither_the_embedder_nor_the_reranker_is_told_a_secret() -> None:
    embeds, told = Embeds(), list[str]()

    class Listener:
        async def relevances(self, query: str, texts: Sequence[str]) -> Sequence[float]:
            told.append(query)
            return [1.0 for _ in texts]

    engine = SearchEngine(BOTH, embeds, reranker=Listener(), redact=Redactor())
    await engine.find([AGENT], asked("Is my key sk-" + "a1b2c3d4" * 5 + " still right?"))
    said = "Is my key [redacted: provider key] still right?"
    assert (embeds.calls, told) == ([(said,)], [said])


async def test_a_report_has_time_candidates_and_scores_of_every_stage() -> None:
    report = await SearchEngine(BOTH, Embeds(), Ranking(diversity=0.7, recency_weight=0.2)).find(
        [AGENT], asked("What dog does Ana have?")
    )
    stages = {one.name: one for one in report.stages or ()}
    assert {"embedding", "semantic", "text", "fusion", "recency", "diversity"} < set(stages)
    assert {"siblings", "subjects", "shared"} < set(stages)
    assert stages["semantic"].scores == (("dog", 0.9), ("cat", 0.6))
    assert stages["fusion"].candidates == 2
    assert all(one.milliseconds >= 0 for one in stages.values())
    assert {"semantic", "text", "fused"} <= set(report.facts[0].scores)


@pytest.mark.parametrize(
    ("lists", "warning"),
    [
        (Lists(ProviderError("away"), ranked((DOG, 3.0))), "semantic: ProviderError"),
        (Lists(ranked((DOG, 0.9)), ValueError("the query's text")), "text: ValueError"),
    ],
)
async def test_one_list_that_fails_is_done_without_and_said(lists: Lists, warning: str) -> None:
    report = await SearchEngine(lists, Embeds()).find([AGENT], asked("dog"))
    assert [one.fact_id for one in report.facts] == ["dog"]
    assert report.warnings == (warning,)


async def test_a_search_with_nothing_left_to_search_with_fails() -> None:
    engine = SearchEngine(Lists(ProviderError("a"), ValueError("b")), Embeds())
    with pytest.raises(ProviderError):
        await engine.find([AGENT], asked("dog"))
    with pytest.raises(ValueError, match="b"):
        await engine.find([AGENT], asked("dog", search_type="text"))


async def test_a_text_search_asks_no_embedder() -> None:
    embeds = Embeds()
    found = await SearchEngine(BOTH, embeds).find([AGENT], asked("dog", search_type="text"))
    assert [one.fact_id for one in found.facts] == ["dog"]
    assert embeds.calls == []


async def test_a_reranker_orders_and_drops_and_one_that_fails_changes_nothing() -> None:
    judged = {"Ana has a dog.": 0.4, "Ana has a cat.": 0.9}
    found = await SearchEngine(BOTH, Embeds(), reranker=Judge(judged)).find([AGENT], asked("pets?"))
    assert [one.fact_id for one in found.facts] == ["cat", "dog"]
    judged["Ana has a dog."] = 0.1
    found = await SearchEngine(BOTH, Embeds(), reranker=Judge(judged)).find([AGENT], asked("pets?"))
    assert [one.fact_id for one in found.facts] == ["cat"]
    found = await SearchEngine(BOTH, Embeds(), reranker=Judge(ValueError("x"))).find([AGENT], asked("pets?"))
    assert [one.fact_id for one in found.facts] == ["dog", "cat"]
    assert found.warnings == ("rerank: ValueError",)


async def test_a_whole_message_gets_what_it_asks_for_and_what_is_about_as_near() -> None:
    bare = fact("bare", "Ana has a dog and no vector.", vector=None)

    async def found(message: str, *similar: tuple[FactCandidate, float]) -> list[str]:
        lists = Lists(ranked(*similar), ranked((bare, 1.0)) if "dog" in message else [])
        report = await SearchEngine(lists, Embeds()).find([AGENT], asked(message, related=True))
        return [one.fact_id for one in report.facts]

    assert await found("which dog?", (DOG, 0.95), (CAT, 0.6)) == ["dog", "bare"]
    assert await found("which pet?", (DOG, 0.8), (CAT, 0.75)) == ["dog", "cat"]
    assert await found("which pet?", (DOG, 0.55), (CAT, 0.55)) == []
    assert await found("thanks!", (DOG, 0.9), (CAT, 0.9)) == []


async def test_a_fact_of_another_scope_is_never_returned_whatever_a_store_says() -> None:
    lists = Lists(ranked((STRANGER, 1.0), (DOG, 0.9)), ranked((STRANGER, 9.0)))
    report = await SearchEngine(lists, Embeds()).find([AGENT], asked("dog"))
    assert [one.fact_id for one in report.facts] == ["dog"]
    assert "stranger" not in str(report)


@pytest.mark.parametrize(
    "wrong",
    [
        {"queries": ("a", "b", "c", "d")},
        {"queries": ("a",), "search_type": "regex"},
        {"queries": ("a",), "recency_weight": 2.0},
        {"queries": ("a",), "top_k": 100_000},
        {"queries": ("a",), "top_k": -1},
        {"queries": ("a",), "list_size": 0},
        {"queries": ("a",), "asked_at": NOW.replace(tzinfo=None)},
    ],
)
def test_a_request_that_cannot_be_one_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        SearchRequest(**wrong)


class Counts:
    def __init__(self) -> None:
        self.written: list[dict[str, int]] = []
        self.fails = False

    async def count(self, found: Any, at: Any) -> None:
        if self.fails:
            raise ProviderError("away")
        self.written.append(dict(found))


async def test_accesses_are_written_together_and_the_rest_at_the_end() -> None:
    counts, lost = Counts(), list[int]()
    counting = AccessCounting(counts, seconds=3600, most=2, lost=lost.append)
    engine = SearchEngine(BOTH, Embeds(), found=counting.found)
    await engine.find([AGENT], asked("dog"))
    await engine.find([AGENT], asked("dog", search_type="text"))
    assert counts.written == []
    counting.found(["beyond the bound"])
    await counting.close()
    assert counts.written == [{"dog": 2, "cat": 1}]
    assert lost == [1]


async def test_a_count_that_cannot_be_written_is_lost_and_said() -> None:
    counts, lost = Counts(), list[int]()
    counts.fails = True
    counting = AccessCounting(counts, seconds=3600, lost=lost.append)
    counting.found(["a", "b", "a"])
    await counting.close()
    assert lost == [3]


async def test_facts_and_reflections_are_ranked_together_if_both_are_searched() -> None:
    tea = replace(fact("tea", "Ana prefers tea."), kind="reflection")
    reflections, counted = Lists(ranked((tea, 0.95)), ranked((tea, 1.0))), list[str]()
    engine = SearchEngine(BOTH, Embeds(), reflections=reflections, found=counted.extend)
    both = await engine.find([AGENT], asked("dog", kinds=["facts", "reflections"]))
    assert sorted((one.fact_id, one.kind) for one in both.facts) == [
        ("cat", "fact"),
        ("dog", "fact"),
        ("tea", "reflection"),
    ]
    assert sorted(counted) == ["cat", "dog"], "only facts have an access count"
    for kinds, ids in ((["reflections"], {"tea"}), (["facts"], {"dog", "cat"})):
        found = (await engine.find([AGENT], asked("dog", kinds=kinds))).facts
        assert {one.fact_id for one in found} == ids


async def test_reflections_that_cannot_be_read_leave_the_facts() -> None:
    engine = SearchEngine(BOTH, Embeds(), reflections=Lists(ProviderError("a"), ValueError("b")))
    found = await engine.find([AGENT], asked("dog", kinds=["facts", "reflections"]))
    assert [one.fact_id for one in found.facts] == ["dog", "cat"]
    assert sorted(found.warnings) == ["reflections: ProviderError", "reflections: ValueError"]
    with pytest.raises((ProviderError, ValueError)):
        await engine.find([AGENT], asked("dog", kinds=["reflections"]))


@pytest.mark.parametrize("kinds", [[], "facts", ["blobs"], ["facts", 1]], ids=repr)
def test_kinds_that_cannot_be_searched_are_refused(kinds: Any) -> None:
    with pytest.raises(Invalid, match="kinds"):
        asked("dog", kinds=kinds)
