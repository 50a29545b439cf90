"""What searches with a provider's embedder spend: counted, within budgets, without waiting for a write."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal

import pytest

from eden_memory.app import own_search
from eden_memory.models.provider_calls import Tokens
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.usage.budget_store import MongoBudgets
from eden_memory.usage.usage_store import MongoTotals, UsageQuery, UsageSum
from tests.integration.context.harness import Kit, kit_for, mapped
from tests.integration.doors.conftest import doors_of
from tests.integration.mcp.conftest import served
from tests.integration.mcp.stored import remember
from tests.integration.system.running_system import until
from tests.model_server.serving import Serving, serving
from tests.names import NAMES

pytestmark = pytest.mark.servers
ADA = Scope.of_user("s.a", "s.ada")
ALWAYS = UsageQuery("2000-01-01", "2999-12-31", "stage")
MICRO = Decimal("0.000001")


class Priced:
    """A micro-dollar a token."""

    def cost(self, provider: str, model: str, tokens: Tokens, at: datetime | None = None) -> Decimal:
        del provider, model, at
        return MICRO * tokens.input


@pytest.fixture
async def models() -> AsyncGenerator[Serving]:
    async with serving() as models:
        yield models


@pytest.fixture
async def kit(settings: Settings, models: Serving, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Kit]:
    monkeypatch.setattr(own_search, "Prices", Priced)
    own = {"models": settings.models.model_copy(update={"embeddings": "vector-model"})}
    asked = mapped(settings).model_copy(update={**own, "embedder": models.openai_url})
    async with kit_for(asked) as kit:
        await kit.session("one", ["ada"])
        await remember(kit, ADA, "Ada lives in Turin.", "Ada has a dog.")
        models.tally.calls.clear()
        yield kit


async def of_searches(kit: Kit) -> UsageSum | None:
    sums = await MongoTotals(kit.database, NAMES).sums(ALWAYS)
    return next((one for one in sums if one.of == "search"), None)


async def counted(kit: Kit, calls: int) -> UsageSum:
    async def so() -> bool:
        found = await of_searches(kit)
        return found is not None and found.counts["calls"] >= calls

    await until(so, f"{calls} calls of searches counted")
    found = await of_searches(kit)
    assert found is not None
    return found


async def test_each_new_query_counts_once_and_nothing_of_it_is_stored(kit: Kit, models: Serving) -> None:
    kept = await kit.database["memory_answers"].count_documents({})
    async with kit.service() as service:
        for query in ("Where is the dog?", "Turin", "Where is the dog?", "zebra", "Turin"):
            report = await service.explain_search(query, session="one", user="ada")
            assert (report.text_only, report.warnings) == (None, ())
        assert models.tally.calls["embeddings"] == 3
        found = await counted(kit, 3)
    assert found.counts["calls"] == 3
    assert found.cost_usd == MICRO * found.counts["input_tokens"] > 0
    assert await kit.database["memory_answers"].count_documents({}) == kept
    (row,) = await kit.database["memory_usage"].find({"stage": "search"}).to_list()
    assert (row["agent_id"], row["user_id"]) == ("s.a", "s.ada")
    assert await counted(kit, 3) == found, "what closing writes is not counted again"


async def test_a_recalling_context_counts_too(kit: Kit, models: Serving) -> None:
    async with kit.service() as service:
        for message in ("What did I say about my dog?", "And about my cat?"):
            await service.get_memory_context("one", "ada", message)
        assert models.tally.calls["embeddings"] == 3, (
            "each message, and once the examples of kinds of messages"
        )
    assert (await counted(kit, 3)).counts["calls"] == 3


async def test_a_provider_is_asked_without_the_secrets_of_queries(kit: Kit, models: Serving) -> None:
    """Queries that differ in their secrets alone are the same to it: it is asked once, and for examples once."""
    async with kit.service() as service:
        for digit in "123":
            key = f"sk-{digit * 40}"
            await service.search_facts(f"What did I say about my key {key}?", session="one", user="ada")
            await service.get_memory_context("one", "ada", f"What did I say about my key {key}?")
    assert models.tally.calls["embeddings"] == 2


@asynccontextmanager
async def no_writes(kit: Kit) -> AsyncGenerator[None]:
    admin = kit.client.admin
    await admin.command({"fsync": 1, "lock": True})
    try:
        yield
    finally:
        await admin.command({"fsyncUnlock": 1})


async def test_a_search_answers_while_mongodb_cannot_write_and_is_counted_afterwards(
    kit: Kit, models: Serving
) -> None:
    async with kit.service() as service:
        await service.search_facts("dog", session="one", user="ada")
        async with no_writes(kit):
            for query in ("my pet", "Turin", "where"):
                report = await service.explain_search(query, session="one", user="ada")
                assert report.text_only is None
                assert len(report.facts) == 2
            assert models.tally.calls["embeddings"] == 4
        assert (await counted(kit, 4)).counts["calls"] == 4


async def test_over_budget_facts_are_found_by_words_alone_and_the_answer_says_so(
    kit: Kit, models: Serving
) -> None:
    budgets = MongoBudgets(kit.database, NAMES)
    async with kit.service() as service:
        await service.search_facts("dog", session="one", user="ada")
        await budgets.set("s.a", None, "day", Decimal(0), "test")
        await budgets.set("s.other", None, "day", Decimal(0), "test")

        async def refused() -> bool:
            report = await service.explain_search(f"dog {models.tally.calls}", user="ada")
            return report.text_only == "over_budget"

        await until(refused, "the budget is heard of")
        asked = models.tally.calls["embeddings"]
        report = await service.explain_search("the dog", session="one", user="ada")
        assert [one.content for one in report.facts] == ["Ada has a dog."]
        assert (report.text_only, report.warnings) == ("over_budget", ("semantic: OverBudget",))
        known = await service.explain_search("dog", session="one", user="ada")
        assert known.text_only is None, "its vector is paid for"
        assert models.tally.calls["embeddings"] == asked
        await budgets.set("s.a", None, "day", Decimal(5), "test")

        async def asked_again() -> bool:
            return (await service.explain_search("a dog!", user="ada")).text_only is None

        await until(asked_again, "the new limit is heard of")


async def test_a_provider_that_hangs_costs_a_search_a_bounded_wait_and_its_late_answer_is_counted(
    kit: Kit, models: Serving
) -> None:
    models.change(held=True)
    async with kit.service() as service:
        async with asyncio.timeout(60):
            report = await service.explain_search("the dog", session="one", user="ada")
        assert [one.content for one in report.facts] == ["Ada has a dog."]
        assert report.text_only == "unavailable"
        models.change(held=False)
        found = await counted(kit, 1)
        assert (found.counts["calls"], found.counts["failed_calls"]) == (1, 0)
        report = await service.explain_search("the dog", session="one", user="ada")
        assert report.text_only is None
        assert models.tally.calls["embeddings"] == 1, "its vector is cached"


@pytest.mark.slow
async def test_http_and_mcp_say_that_words_alone_were_searched(kit: Kit) -> None:
    await MongoBudgets(kit.database, NAMES).set(None, None, "day", Decimal(0), "test")
    async with doors_of(kit) as doors, served(kit) as server, server.client(agent="a") as client:
        body = {"queries": ["the dog"]}
        answer = (await doors.http.post("/v1/agents/a/search", params={"user": "ada"}, json=body)).json()
        assert ([one["content"] for one in answer["facts"]], answer["text_only"], answer["stages"]) == (
            ["Ada has a dog."],
            "over_budget",
            None,
        )
        only = await doors.http.post(
            "/v1/agents/a/search", params={"user": "ada"}, json={**body, "search_type": "semantic"}
        )
        assert only.status_code == 409
        assert "budget" in only.json()["title"] + only.json()["detail"]
        result = await client.call_tool("search_facts", {**body, "session": "one", "user": "ada"})
        assert result.structured_content is not None
        assert result.structured_content["text_only"] == "over_budget"
