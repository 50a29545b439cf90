"""Budgets on a real MongoDB: what was counted in a period, and the windows in flight."""

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory import metrics
from eden_memory.assembly.mongo_setup import set_up
from eden_memory.mongo.documents import stored
from eden_memory.schemas.documents import Budget
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.usage.budget_rules import AskedWindow, HeldWindow, Spending, WindowCost
from eden_memory.usage.budget_store import (
    AverageCosts,
    BudgetKeeping,
    MongoBudgets,
    MongoWindowBudgets,
    RecentBudgets,
)
from eden_memory.usage.costs import Estimate
from eden_memory.usage.usage_store import MongoUsage
from tests.calls import called
from tests.names import NAMES

pytestmark = pytest.mark.servers
CENT = Decimal("0.01")
Database = AsyncDatabase[dict[str, Any]]


class Clock:
    """MongoDB's, set by hand."""

    def __init__(self) -> None:
        self.now = datetime(2126, 3, 31, 23, 50, tzinfo=UTC)  # the server removes what is older than its own

    async def __call__(self) -> datetime:
        return self.now


def held_back() -> float:
    """Windows that budgets have held back in this process."""
    return metrics.BUDGET_HELD_BACK._value.get()  # pyright: ignore


@pytest.fixture
async def database(database: Database) -> Database:
    await set_up(database, NAMES)
    return database


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budgets(database: Database, clock: Clock) -> MongoBudgets:
    return MongoBudgets(database, NAMES, clock)


def window(number: int, user: str | None = None) -> AskedWindow:
    return AskedWindow(f"f{number}", f"s.{number}", "s.x", user, 1_000)


def gate_of(
    database: Database, budgets: MongoBudgets, cents: int = 1, fresh: float = 0
) -> MongoWindowBudgets:
    """Its windows cost so many cents each."""
    averages = AverageCosts(database, NAMES, budgets.now)
    recent = RecentBudgets(budgets, fresh_seconds=fresh)
    return MongoWindowBudgets(recent, averages, lambda tier, characters: Estimate(cents * CENT))


async def asked_for(database: Database, gate: MongoWindowBudgets, *numbers: int) -> list[int]:
    """As formation-trigger asks for windows: those that are admitted are stored with what they may cost."""
    if not await gate.any():
        return list(numbers)
    found = await gate.admit([window(n) for n in numbers])
    admitted = {name: one for name, one in found.items() if isinstance(one, WindowCost)}
    for name, cost in admitted.items():
        flying = {"agent_id": cost.agent_id, "user_id": cost.user_id, "usd": stored(cost.usd)}
        await database["memory_windows"].insert_one(
            {"_id": name, "in_flight": flying}, bypass_document_validation=True
        )
    return [int(name[1:]) for name in admitted]


async def only(budgets: MongoBudgets) -> Spending:
    (found,) = (await budgets.all()).values()
    return found


def call(
    name: str, at: datetime, usd: Decimal, user: str | None = None, formation: str = "f1"
) -> ModelCalled:
    ids = {"agent_id": "s.x", "user_id": user, "formation_id": formation}
    return called(name, **ids, input_tokens=5, cost_usd=usd, started_at=at)


async def test_windows_in_flight_count_until_their_calls_are_counted(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    usage, gate = MongoUsage(database, NAMES, clock=clock), gate_of(database, budgets, 3)
    await usage.count([call("before", clock.now, 3 * CENT)])
    assert (await budgets.set(None, None, "day", 10 * CENT, "test")).spent == 3 * CENT
    assert await asked_for(database, gate, 1, 2) == [1, 2]
    assert (await only(budgets)).in_flight == 6 * CENT
    await usage.count([call("one", clock.now, CENT), call("before", clock.now, 3 * CENT)])
    assert await asked_for(database, gate, 3) == [], "spent and in flight together reach the limit"
    await budgets.landed(["f1"])
    await budgets.landed(["f1"])
    assert (await only(budgets)).room == 3 * CENT
    assert await asked_for(database, gate_of(database, budgets, 3), 3) == [3], "another process sees it"


async def test_a_process_counts_what_it_has_just_admitted(database: Database, budgets: MongoBudgets) -> None:
    """Partitions ask one after the other, and before the windows of the first are stored."""
    gate = gate_of(database, budgets, 1, fresh=60)
    await budgets.set("s.x", None, "day", 5 * CENT, "test")
    await budgets.set(None, "i.1", "month", 2 * CENT, "test")
    assert await gate.any()
    first = await gate.admit([window(n, "i.1") for n in range(3)])
    assert [isinstance(one, WindowCost) for one in first.values()] == [True, True, False]
    second = await gate.admit([window(n) for n in range(10, 16)])
    assert sum(isinstance(one, WindowCost) for one in second.values()) == 3
    again = await gate.admit([window(0, "i.1")])
    assert isinstance(again["f0"], HeldWindow), "its own promise fills the budget"
    async for row in database["memory_budgets"].find():
        plain = {k: v.to_decimal() if hasattr(v, "to_decimal") else v for k, v in row.items()}
        plain["spent_usd"] = {k: v.to_decimal() for k, v in plain["spent_usd"].items()}
        Budget.model_validate(plain, strict=False)


async def test_a_new_period_begins_with_nothing_spent_and_keeps_what_is_in_flight(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    usage, gate = MongoUsage(database, NAMES, clock=clock), gate_of(database, budgets)
    await budgets.set("s.x", None, "month", 4 * CENT, "test")
    await usage.count([call("march", clock.now, 3 * CENT)])
    assert await asked_for(database, gate, 1, 2) == [1]
    clock.now += timedelta(minutes=20)
    assert (await only(budgets)).spent == 0
    await usage.count([call("late", clock.now - timedelta(minutes=20), CENT), call("april", clock.now, CENT)])
    assert await asked_for(database, gate, 2, 3, 4) == [2, 3]
    april = await only(budgets)
    assert (april.period, april.spent, april.in_flight) == ("2126-04", CENT, 3 * CENT)


async def test_calls_that_are_counted_over_midnight_leave_the_new_period_as_it_is(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    await budgets.set(None, None, "day", 9 * CENT, "test")
    slow = MongoUsage(database, NAMES, clock=Clock())
    """Has read the time before midnight, and is tried again after it."""
    before, after = clock.now, clock.now + timedelta(minutes=20)
    await MongoUsage(database, NAMES, clock=clock).count([call("march", before, CENT)])
    clock.now = after
    await MongoUsage(database, NAMES, clock=clock).count([call("april", after, 2 * CENT)])
    await slow.count([call("kept-since-before-midnight", before, 4 * CENT)])
    assert ((await only(budgets)).period, (await only(budgets)).spent) == ("2126-04-01", 2 * CENT)


async def test_counting_and_a_budget_that_is_set_at_the_same_time_miss_no_call(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    usage = MongoUsage(database, NAMES, clock=clock)
    told = [call(f"c{n}", clock.now, CENT) for n in range(40)]
    counting = [usage.count(told[n : n + 4]) for n in range(0, 40, 4)]
    await asyncio.gather(
        *counting, *(budgets.set(None, None, "day", Decimal(n), "test") for n in range(1, 4))
    )
    assert (await only(budgets)).spent == 40 * CENT


async def test_formation_goes_on_when_a_limit_is_raised_or_removed(
    database: Database, budgets: MongoBudgets
) -> None:
    before, gate = held_back(), gate_of(database, budgets, 3)
    assert not await gate.any()
    await budgets.set("s.x", None, "day", 3 * CENT, "test")
    assert await asked_for(database, gate, 1, 2) == [1]
    assert await asked_for(database, gate, 2) == []
    assert held_back() - before == 1, "held back first, told once"
    assert await gate.any()
    assert gate.still_held("budget s.x/*/day")
    assert not gate.still_held("no document s.2 in sessions")
    await budgets.set("s.x", None, "day", 4 * CENT, "test")
    assert await gate.any()
    assert not gate.still_held("budget s.x/*/day")
    assert await asked_for(database, gate, 2) == [2]
    await budgets.remove("s.x/*/day")
    assert not await gate.any()
    assert not gate.still_held("budget s.x/*/day")


async def test_windows_cost_what_the_agents_windows_cost_lately_on_average(
    database: Database, clock: Clock
) -> None:
    averages, usage = AverageCosts(database, NAMES, clock), MongoUsage(database, NAMES, clock=clock)
    old = call("old", clock.now - timedelta(days=8), 50 * CENT)
    calls = [call(f"c{n}", clock.now, n * CENT, formation=f"f{n}") for n in range(1, 5)]
    await usage.count([old, *calls])
    assert await averages.of("s.x") is None, "few are not believed"
    blob = call("blob", clock.now, 5 * CENT).model_copy(
        update={"stage": "consolidation", "formation_id": None}
    )
    await usage.count([call("c5", clock.now, 5 * CENT, formation="f5"), blob])
    assert await averages.of("s.x") == Estimate(4 * CENT)
    await usage.count([call("unpriced", clock.now, CENT).model_copy(update={"cost_usd": None})])
    assert await averages.of("s.x") == Estimate(4 * CENT, priced=False)


async def formed_within(database: Database, budgets: MongoBudgets, usage: MongoUsage, count: int) -> int:
    """So many of these windows are admitted, each formed and paid, at a cent, before the next is asked for."""
    formed = 0
    for number in range(count):
        if await asked_for(database, gate_of(database, budgets), number):
            await usage.count([call(f"c{number}", datetime.now(UTC), CENT)])
            await budgets.landed([f"f{number}"])
            formed += 1
    return formed


async def test_a_clock_that_ran_ahead_once_switches_no_budget_off(database: Database) -> None:
    budgets, usage = MongoBudgets(database, NAMES), MongoUsage(database, NAMES)
    await budgets.set("s.x", None, "day", 10 * CENT, "test")
    await budgets.set(None, None, "month", 20 * CENT, "test")
    for days in (1, 40, 4_000):
        ahead = datetime.now(UTC) + timedelta(days=days)
        await usage.count([call(f"ahead-{days}", ahead, CENT)])
    assert await formed_within(database, budgets, usage, 30) == 7
    state = await database["memory_usage_state"].find_one({"_id": "usage"})
    assert state is not None
    assert state["counted_to"] <= datetime.now(UTC) + timedelta(hours=1)


async def test_what_was_counted_while_mongodbs_clock_was_wrong_hides_nothing_of_the_current_period(
    database: Database,
) -> None:
    budgets, wrong = MongoBudgets(database, NAMES), Clock()
    usage = MongoUsage(database, NAMES)
    await budgets.set("s.x", None, "day", 10 * CENT, "test")
    await usage.count([call("before", datetime.now(UTC), 3 * CENT)])
    await MongoUsage(database, NAMES, clock=wrong).count([call("wrong", wrong.now, 99 * CENT)])
    assert (await MongoBudgets(database, NAMES, wrong).all())["s.x/*/day"].spent == 99 * CENT
    assert (await only(budgets)).spent == 3 * CENT
    assert await formed_within(database, budgets, usage, 30) == 7


async def test_a_window_lands_when_all_that_led_to_its_memory_is_counted(
    database: Database, budgets: MongoBudgets
) -> None:
    usage, ledger = MongoUsage(database, NAMES), MongoLedger(database, NAMES)
    keeping = BudgetKeeping(budgets, usage, ledger)
    assert not await keeping.round(), "nothing to look at"
    await budgets.set(None, None, "day", Decimal(1), "test")
    await asked_for(database, gate_of(database, budgets), 1, 2)
    assert await keeping.round()
    assert await budgets.in_flight() == {f"f{n}": WindowCost("s.x", None, CENT) for n in (1, 2)}
    with patch("eden_memory.usage.budget_store.outcomes_of", return_value={"f1": [], "f2": None}):
        await keeping.round()
    assert list(await budgets.in_flight()) == ["f2"]
