"""What a reform has cost stands beside what live formation has, in the command, budgets, sums and metrics alike."""

import json
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from eden_memory import metrics
from eden_memory.cli import cost
from eden_memory.replay.namespaces.namespace_store import MongoNamespaces
from eden_memory.schemas.documents import Namespace
from eden_memory.schemas.events import ModelCalled
from eden_memory.settings import Settings
from eden_memory.usage.budget_store import MongoBudgets
from eden_memory.usage.usage_store import MongoUsage, spent
from tests.calls import called
from tests.integration.stages_on_servers import OnServers, on_servers
from tests.names import NAMES

pytestmark = pytest.mark.servers
NOW = datetime.now(UTC)
LIVE_USD, TRIAL_USD = Decimal("0.25"), Decimal("3.5")
PREFIX = "memory_ns_trial_"


@pytest.fixture
async def kit(settings: Settings) -> AsyncGenerator[OnServers]:
    async with on_servers(OnServers, settings) as kit:
        await MongoBudgets(kit.database, NAMES).set("s.a", None, "day", Decimal(1), "test")
        usage = MongoUsage(kit.database, NAMES)
        await usage.prepare()
        await usage.count([call("one", "live", LIVE_USD), call("two", "trial", TRIAL_USD)])
        trial = Namespace(
            id="trial",
            kind="reform",
            prefix=PREFIX,
            group="trial",
            source="memory_",
            pipeline="trial",
            state="filling",
            created_at=NOW,
        )
        await MongoNamespaces(kit.database, "memory_").made(trial)
        for prefix, facts in (("memory_", 2), (PREFIX, 7)):
            rows = [{"scope_key": f"k{n}", "hash": str(n), "formed_at": NOW} for n in range(facts)]
            await kit.database[f"{prefix}facts"].insert_many(rows, bypass_document_validation=True)
        yield kit


def call(name: str, namespace: str, usd: Decimal) -> ModelCalled:
    at = NOW - timedelta(milliseconds=1)
    return called(name, namespace=namespace, input_tokens=5, cost_usd=usd, started_at=at)


async def test_a_reforms_calls_are_its_own_and_not_lives(
    kit: OnServers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [await shown(kit, namespace, monkeypatch, capsys) for namespace in (None, "trial", "original")]
    assert [Decimal(one["cost_usd"]) for one in told] == [LIVE_USD, TRIAL_USD, LIVE_USD]
    assert [(one["calls"], one["facts_formed"]) for one in told] == [(1, 2), (1, 7), (1, 2)]
    sums = await spent(kit.database, NAMES, datetime.now(UTC), 20)
    assert {usd for (period, *_), usd in sums.items() if period == "month"} == {float(LIVE_USD)}
    (budget,) = (await MongoBudgets(kit.database, NAMES).all()).values()
    assert budget.spent == LIVE_USD


async def shown(
    kit: OnServers,
    namespace: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> dict[str, Any]:
    """`eden cost month --json`, without a process of its own."""
    month = NOW.strftime("%Y-%m")
    first, last = cost._month(month)  # pyright: ignore[reportPrivateUsage]
    asked = cost._asked(first, last, None, None, None)  # pyright: ignore[reportPrivateUsage]
    read = await cost._read(kit.settings, asked, namespace)  # pyright: ignore[reportPrivateUsage]

    def answered(work: Any) -> Any:
        work.close()
        return read

    monkeypatch.setattr(cost.asyncio, "run", answered)
    cost.month(of=month, namespace=namespace, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_metrics_of_stored_totals_are_of_live_memory() -> None:
    labels = {"stage": "a-stage-of-this-test", "model": "m"}
    calls = [
        call(one, one, Decimal(1)).model_copy(update={"stage": labels["stage"]}) for one in ("live", "x")
    ]
    metrics.count_usage(calls, repeated=0)
    assert metrics.USAGE_CALLS.labels(**labels)._value.get() == 1  # pyright: ignore
    assert metrics.USAGE_COST.labels(**labels)._value.get() == 1.0  # pyright: ignore
