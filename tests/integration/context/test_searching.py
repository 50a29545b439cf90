"""search_facts and recall over stored facts: only what is visible, and a turn never fails for it."""

from collections.abc import Sequence
from typing import Any

import pytest

from eden_memory.errors import EdenError, ProviderError
from eden_memory.models.question import Asking
from eden_memory.schemas.fields import pack_vector
from eden_memory.schemas.provenance import Embedding
from eden_memory.schemas.scopes import Scope
from eden_memory.search.fact_candidates import Ranked
from eden_memory.search.plain_list_store import PlainFactLists
from eden_memory.search.ranking import Ranking
from eden_memory.search.search_engine import SearchEngine
from tests.integration.context.harness import Kit
from tests.integration.mcp.stored import store_facts
from tests.names import NAMES

pytestmark = pytest.mark.servers
AGENT, ADA, BOB = Scope.of_agent("s.a"), Scope.of_user("s.a", "s.ada"), Scope.of_user("s.a", "s.bob")
WORDS = ("turin", "lyon", "budget", "dog")
MODEL = "words"


class Words:
    """A vector of which known words a text holds."""

    model, dimensions = MODEL, len(WORDS) + 1
    fails = False

    async def embed(self, texts: Sequence[str], asking: Asking | None = None) -> Sequence[Embedding]:
        if self.fails:
            raise ProviderError("away")
        return [Embedding(model=MODEL, vector=vector(text)) for text in texts]


def vector(text: str) -> bytes:
    numbers = [float(word in text.lower()) for word in WORDS]
    numbers.append(0.0 if any(numbers) else 1.0)
    length = sum(one * one for one in numbers) ** 0.5
    return pack_vector(one / length for one in numbers)


async def remember(kit: Kit, scope: Scope, *texts: str) -> None:
    await store_facts(kit, scope, texts, list(map(vector, texts)), MODEL)


def finder(kit: Kit, embedder: Words | None = None) -> SearchEngine:
    lists = PlainFactLists(kit.database, NAMES, MODEL)
    return SearchEngine(lists, embedder or Words(), Ranking(semantic_least=0.8, text_least=0.1))


@pytest.fixture
async def filled(kit: Kit) -> Kit:
    await kit.session("one", ["ada"])
    await kit.session("both", ["ada", "bob"])
    await remember(kit, AGENT, "The office is in Lyon.", "The budget is small.")
    await remember(kit, ADA, "Ada lives in Turin.", "Ada has a dog.")
    await remember(kit, BOB, "Bob was born in Turin.")
    return kit


async def test_only_facts_of_visible_scopes_are_found(filled: Kit) -> None:
    async with filled.service(engine=finder(filled)) as service:
        alone = await service.search_facts("Turin?", session="one", user="ada")
        assert [one.content for one in alone] == ["Ada lives in Turin."]
        assert await service.search_facts("Turin?", session="both", user="ada") == []
        assert await service.search_facts("Turin?", session="one", user="bob") == []
        outside = await service.search_facts("Turin?", user="bob")
        assert [one.content for one in outside] == ["Bob was born in Turin."]


async def test_several_queries_share_one_result_best_first(filled: Kit) -> None:
    async with filled.service(engine=finder(filled)) as service:
        found = await service.search_facts(["the dog", "Lyon", "office in Lyon"], session="one", user="ada")
        assert {one.content for one in found[:2]} == {"Ada has a dog.", "The office is in Lyon."}
        assert len(await service.search_facts(["dog", "Lyon"], session="one", user="ada", top_k=1)) == 2
        with pytest.raises(EdenError):
            await service.search_facts(["a", "b", "c", "d"], user="ada")


async def test_a_question_about_the_past_adds_what_a_search_finds(filled: Kit) -> None:
    async with filled.service(engine=finder(filled)) as service:
        asked = await service.get_memory_context("one", "ada", "What did I say about my dog?")
        assert "<RetrievedFacts>" in asked
        assert "[user] Ada has a dog." in asked
        assert "Bob" not in asked
        assert "RetrievedFacts" not in await service.get_memory_context("one", "ada", "Good morning!")
        assert "RetrievedFacts" not in await service.get_memory_context("one", "ada")


async def test_nothing_is_recalled_for_a_question_that_memory_knows_nothing_of(filled: Kit) -> None:
    engine = SearchEngine(PlainFactLists(filled.database, NAMES, MODEL), Words())
    async with filled.service(engine=engine) as service:
        found = await service.search_facts("What did the weather do?", session="one", user="ada")
        assert found
        asked = await service.get_memory_context("one", "ada", "What did I say about the weather?")
        assert "RetrievedFacts" not in asked


async def test_without_the_embedder_words_still_find(filled: Kit) -> None:
    embedder = Words()
    embedder.fails = True
    async with filled.service(engine=finder(filled, embedder)) as service:
        report = await service.explain_search("the dog", user="ada")
        assert [one.content for one in report.facts] == ["Ada has a dog."]
        assert report.warnings == ("semantic: ProviderError",)
        with pytest.raises(ProviderError):
            await service.search_facts("the dog", user="ada", search_type="semantic")


class NoLists:
    """A store of facts that is away."""

    async def semantic(self, *given: Any, **named: Any) -> Sequence[Sequence[Ranked]]:
        raise ProviderError("away")

    textual = semantic


async def test_a_search_that_fails_leaves_the_context_as_it_is(filled: Kit) -> None:
    async with filled.service(engine=SearchEngine(NoLists(), Words())) as service:
        plain = await service.get_memory_context("one", "ada")
        assert await service.get_memory_context("one", "ada", "What did I say about my dog?") == plain


async def test_switched_off_nothing_is_searched(filled: Kit) -> None:
    memory = filled.settings.memory.model_copy(update={"facts": "form"})
    settings: Any = filled.settings.model_copy(update={"memory": memory})
    async with filled.service(engine=finder(filled), settings=settings) as service:
        assert "Retrieved" not in await service.get_memory_context("one", "ada", "What did I say of my dog?")
        with pytest.raises(EdenError):
            await service.search_facts("dog", user="ada")


async def test_without_an_engine_the_settings_embedder_searches(filled: Kit) -> None:
    pytest.importorskip("onnxruntime")
    async with filled.service() as service:
        found = await service.search_facts("dog", user="ada")  # by its words: its vector is another model's
        assert [one.content for one in found] == ["Ada has a dog."]
    row = await filled.database["memory_access"].find_one({"_id": found[0].fact_id})
    assert row is not None
    assert row["access_count"] == 1
