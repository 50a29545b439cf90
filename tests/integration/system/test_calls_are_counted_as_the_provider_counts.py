"""`eden cost` and the totals against the provider's own count of requests, at prices that nobody knows."""

import asyncio
import json

import pytest

from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import Settings
from eden_memory.usage.usage_store import MongoTotals, UsageQuery
from tests.integration.replay.reform_kit import quiet
from tests.integration.system.commands import eden
from tests.integration.system.running_system import System, fast, system, until
from tests.model_server.serving import Serving
from tests.names import NAMES

pytestmark = pytest.mark.servers
ALWAYS = UsageQuery("2000-01-01", "2999-12-31", "stage")
SESSIONS = 16


@pytest.mark.slow
async def test_requests_that_units_share_count_once_and_an_unknown_price_is_unknown(
    settings: Settings, shared_models: Serving
) -> None:
    shared_models.tally.calls.clear()
    async with system(fast(settings, shared_models), shared_models) as running:
        await asyncio.gather(*(talk(running, f"user{n}") for n in range(SESSIONS)))
        await quiet(running)
        calls = [one.event for one in await running.records("memory.usage")]
        shares = [one for one in calls if isinstance(one, ModelCalled) and one.requests == 0]
        assert shares, "units shared a request"
        seen = sum(shared_models.tally.calls.values())

        async def all_counted() -> bool:
            return (
                sum(one.counts["calls"] for one in await MongoTotals(running.database, NAMES).sums(ALWAYS))
                >= seen
            )

        await until(all_counted, "the totals to hold what the provider saw")
        told = json.loads(await eden(running.settings, "cost", "month", "--by", "stage", "--json"))
        calls_of = {one["stage"]: one["calls"] for one in told["groups"]}
        assert calls_of["fact-dedup"] == shared_models.tally.calls["embeddings"]
        assert (told["calls"], told["unpriced_calls"]) == (seen, seen)
        assert (told["cost_usd"], told["usd_per_fact"], told["usd_per_1000_messages"]) == (None, None, None)
        assert {one["cost_usd"] for one in told["groups"]} == {None}
        for by in ("agent", "user", "model"):
            shown = await eden(running.settings, "cost", "month", "--by", by)
            assert f"unknown USD for {seen} calls" in shown
            assert "no call has a known price" in shown
            assert "0.000000" not in shown
        fact = await running.memory("facts").find_one({"user_id": encode_id("user0")})
        one = json.loads(await eden(running.settings, "cost", "memory", fact["_id"], "--json"))
        assert one["cost_usd"] is None
        assert "unknown USD" in await eden(running.settings, "cost", "memory", fact["_id"])


async def talk(running: System, user: str) -> None:
    session = await running.session(user)
    await running.told(session, user, f"fact user: {user} lives in Lyon.", f"fact user: {user} has a boat.")
