"""Budgets on a real MongoDB: what is reserved at once by many never goes beyond the limit."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory import metrics
from eden_memory.assembly.mongo_setup import set_up
from eden_memory.mongo.documents import stored
from eden_memory.schemas.documents import Budget, Reservation
from eden_memory.schemas.events import ModelCalled
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.usage.budget_rules import Admitted, AskedWindow, Estimate, HeldWindow, Spending
from eden_memory.usage.budget_store import MongoBudgets, MongoFormations
from eden_memory.usage.estimates import NOTHING
from eden_memory.usage.reservation_release import BudgetKeeping
from eden_memory.usage.usage_store import MongoUsage
from eden_memory.usage.window_budget_store import MongoRecorded, MongoWindowBudgets
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


async def reserve(budgets: MongoBudgets, asked: Sequence[AskedWindow], cents: int = 1) -> dict[str, bool]:
    estimates = {one.formation_id: Estimate(cents * CENT) for one in asked}
    found = await budgets.reserve(asked, estimates)
    return {name: isinstance(one, Admitted) for name, one in found.items()}


async def only(budgets: MongoBudgets) -> Spending:
    (found,) = await budgets.all()
    return found


def call(name: str, at: datetime, usd: Decimal, user: str | None = None) -> ModelCalled:
    ids = {"agent_id": "s.x", "user_id": user, "formation_id": "f1"}
    return called(name, **ids, input_tokens=5, cost_usd=usd, started_at=at)


async def test_workers_that_reserve_at_once_share_the_room_and_none_of_it_twice(
    database: Database, clock: Clock
) -> None:
    workers = [MongoBudgets(database, NAMES, clock) for _ in range(6)]
    await workers[0].set("s.x", None, "day", 25 * CENT, "test")
    await workers[0].set(None, "i.1", "month", 5 * CENT, "test")
    asked = [[window(10 * n + m, "i.1" if m % 2 else None) for m in range(10)] for n in range(6)]
    found = await asyncio.gather(*(reserve(one, some) for one, some in zip(workers, asked, strict=True)))
    again = await asyncio.gather(*(reserve(one, some) for one, some in zip(workers, asked, strict=True)))
    admitted = {name for one in found for name, got in one.items() if got}
    assert {name for one in again for name, got in one.items() if got} == admitted, (
        "reserved again counts once"
    )
    of_user = [name for name in admitted if int(name[1:]) % 2]
    assert (len(admitted), len(of_user)) == (25, 5)
    by_id = {one.id: one for one in await workers[0].all()}
    assert by_id["s.x/*/day"].reserved == 25 * CENT
    assert by_id["*/i.1/month"].reserved == 5 * CENT
    stored = await database["memory_budgets"].find().to_list()
    kept = await database["memory_reservations"].find().to_list()
    for model, documents in ((Budget, stored), (Reservation, kept)):
        for row in documents:
            plain = {k: v.to_decimal() if hasattr(v, "to_decimal") else v for k, v in row.items()}
            model.model_validate(plain, strict=False)


async def test_what_is_spent_and_what_is_reserved_count_together_until_all_is_counted(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    usage = MongoUsage(database, NAMES, clock=clock)
    await usage.count([call("before", clock.now, 3 * CENT)])
    assert (await budgets.set(None, None, "day", 10 * CENT, "test")).spent == 3 * CENT
    assert await reserve(budgets, [window(1), window(2)], 3) == {"f1": True, "f2": True}
    assert await reserve(budgets, [window(3)], 3) == {"f3": False}
    await usage.count([call("one", clock.now, 2 * CENT), call("before", clock.now, 3 * CENT)])
    assert ((await only(budgets)).spent, (await only(budgets)).reserved) == (5 * CENT, 6 * CENT)
    await budgets.complete(["f1"])
    await budgets.complete(["f1"])
    assert (await only(budgets)).room == 2 * CENT, "released once"
    assert await reserve(budgets, [window(3)], 3) == {"f3": False}
    await budgets.release(["f1", "f2", "f2"])
    assert await reserve(budgets, [window(3)], 3) == {"f3": True}


async def test_a_new_period_begins_with_nothing_spent_and_keeps_what_is_reserved(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    usage = MongoUsage(database, NAMES, clock=clock)
    await budgets.set("s.x", None, "month", 4 * CENT, "test")
    await usage.count([call("march", clock.now, 3 * CENT)])
    assert await reserve(budgets, [window(1), window(2)]) == {"f1": True, "f2": False}
    clock.now += timedelta(minutes=20)
    assert (await only(budgets)).spent == 0
    await usage.count([call("late", clock.now - timedelta(minutes=20), CENT), call("april", clock.now, CENT)])
    assert ((await only(budgets)).period, (await only(budgets)).spent) == ("2126-04", CENT), "before a window"
    assert await reserve(budgets, [window(2), window(3), window(4)]) == {"f2": True, "f3": True, "f4": False}
    april = await only(budgets)
    assert (april.period, april.spent, april.reserved) == ("2126-04", CENT, 3 * CENT)


async def test_counting_and_a_period_that_begins_at_the_same_time_miss_no_call(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    usage = MongoUsage(database, NAMES, clock=clock)
    await budgets.set(None, None, "day", Decimal(5), "test")
    clock.now += timedelta(minutes=20)
    told = [call(f"c{n}", clock.now, CENT) for n in range(40)]
    counting = [usage.count(told[n : n + 4]) for n in range(0, 40, 4)]
    await asyncio.gather(*counting, *(reserve(budgets, [window(n)]) for n in range(6)))
    assert ((await only(budgets)).spent, (await only(budgets)).reserved) == (40 * CENT, 6 * CENT)


async def test_formation_goes_on_when_a_limit_is_raised_or_removed(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    before = held_back()
    recorded = MongoRecorded(database, NAMES)
    gate = MongoWindowBudgets(budgets, recorded, lambda tier, characters: Estimate(2 * CENT), fresh_seconds=0)
    assert not await gate.any()
    await budgets.set("s.x", None, "day", 3 * CENT, "test")
    assert await gate.any()
    first = await gate.admit([window(1), window(2)])
    assert (isinstance(first["f1"], Admitted), first["f2"]) == (True, HeldWindow("s.x/*/day"))
    assert (await gate.admit([window(2)]))["f2"] == HeldWindow("s.x/*/day")
    assert held_back() - before == 1, "held back first, told once"
    assert await gate.any()
    await gate.admit([window(2)])
    assert await gate.any()
    assert gate.still_held("s.2", "budget s.x/*/day")
    await budgets.set("s.x", None, "day", 4 * CENT, "test")
    assert await gate.any()
    assert not gate.still_held("s.2", "budget s.x/*/day")
    assert isinstance((await gate.admit([window(2)]))["f2"], Admitted)
    assert await budgets.remove("s.x/*/day")
    assert not await gate.any()
    assert not gate.still_held("s.2", "budget s.x/*/day")


def by_length(tier: int, characters: int) -> Estimate:
    """A cent for each thousand characters."""
    del tier
    return Estimate(characters // 1_000 * CENT)


async def test_a_window_that_fits_is_asked_for_though_a_larger_one_was_refused_meanwhile(
    database: Database, budgets: MongoBudgets, clock: Clock
) -> None:
    gate = MongoWindowBudgets(budgets, MongoRecorded(database, NAMES), by_length, fresh_seconds=0)
    reason = HeldWindow("*/*/day").reason
    await budgets.set(None, None, "day", 10 * CENT, "test")
    await reserve(budgets, [window(9)], 9)
    small, large = replace(window(1), characters=2_000), replace(window(2), characters=20_000)
    assert await gate.any()
    assert (await gate.admit([small]))["f1"] == HeldWindow("*/*/day")
    await budgets.release(["f9"])
    assert await gate.any()
    assert (await gate.admit([large]))["f2"] == HeldWindow("*/*/day")
    assert await gate.any()
    assert gate.still_held("s.2", reason)
    assert not gate.still_held("s.1", reason)


class RaisedMeanwhile(MongoBudgets):
    """The limit is raised, and another partition's batch sees it, before a refusal has come back."""

    gate: MongoWindowBudgets

    async def reserve(
        self, windows: Sequence[AskedWindow], estimates: Mapping[str, Estimate]
    ) -> Mapping[str, Admitted | HeldWindow]:
        found = await super().reserve(windows, estimates)
        await self.set(None, None, "day", 99 * CENT, "test")
        assert await self.gate.any()
        return found


async def test_a_limit_that_is_raised_while_a_window_is_refused_is_not_overlooked(
    database: Database, clock: Clock
) -> None:
    budgets = RaisedMeanwhile(database, NAMES, clock)
    gate = budgets.gate = MongoWindowBudgets(
        budgets, MongoRecorded(database, NAMES), by_length, fresh_seconds=0
    )
    await budgets.set(None, None, "day", Decimal(0), "test")
    assert await gate.any()
    held = (await gate.admit([window(1)]))["f1"]
    assert isinstance(held, HeldWindow)
    assert await gate.any()
    assert not gate.still_held("s.1", held.reason)


async def test_reservations_of_one_moment_are_all_looked_at(budgets: MongoBudgets) -> None:
    await budgets.set(None, None, "day", Decimal(1), "test")
    await reserve(budgets, [window(n) for n in range(5)])
    seen: list[str] = []
    after: Any = None
    while rows := await budgets.open(after, 2):
        seen += [row["_id"] for row in rows]
        after = rows[-1]
    assert seen == [f"f{n}" for n in range(5)]


async def test_a_reservation_that_is_asked_for_again_is_not_let_go_as_lost(
    budgets: MongoBudgets, clock: Clock
) -> None:
    await budgets.set(None, None, "day", Decimal(1), "test")
    await reserve(budgets, [window(1), window(2)])
    clock.now += timedelta(minutes=1)
    before = clock.now
    assert await reserve(budgets, [window(1)]) == {"f1": True}, "a worker that was killed comes back"
    await budgets.release(["f1", "f2"], since=(before, clock.now))
    assert [row["_id"] for row in await budgets.open(None, 9)] == ["f1"]
    assert (await only(budgets)).reserved == CENT


async def test_what_formations_cost_lately_is_read_from_the_counted_calls(
    database: Database, clock: Clock
) -> None:
    recorded = MongoRecorded(database, NAMES)
    assert await recorded.of("s.x", clock.now) == NOTHING
    usage = MongoUsage(database, NAMES, clock=clock)
    old = call("old", clock.now - timedelta(days=8), 50 * CENT)
    others = [
        call("a", clock.now, 2 * CENT),
        call("b", clock.now, CENT).model_copy(update={"formation_id": "f2"}),
    ]
    blob = call("c", clock.now, 4 * CENT).model_copy(update={"stage": "consolidation", "formation_id": None})
    await usage.count([old, *others, blob])
    found = await recorded.of("s.x", clock.now)
    assert (found.windows, found.usd, found.consolidation_usd, found.priced) == (2, 3 * CENT, 4 * CENT, True)
    await usage.count([call("d", clock.now, CENT).model_copy(update={"cost_usd": None})])
    assert not (await recorded.of("s.x", clock.now)).priced


async def formed_within(budgets: MongoBudgets, usage: MongoUsage, count: int) -> int:
    """So many of these windows are admitted, each formed and paid, at a cent, before the next is asked for."""
    formed = 0
    for number in range(count):
        admitted = await reserve(budgets, [window(number)])
        if admitted[f"f{number}"]:
            await usage.count([call(f"c{number}", datetime.now(UTC), CENT)])
            await budgets.release([f"f{number}"])
            formed += 1
    return formed


async def test_a_clock_that_ran_ahead_once_switches_no_budget_off(database: Database) -> None:
    budgets, usage = MongoBudgets(database, NAMES), MongoUsage(database, NAMES)
    await budgets.set("s.x", None, "day", 10 * CENT, "test")
    await budgets.set(None, None, "month", 20 * CENT, "test")
    for days in (1, 40, 4_000):
        ahead = datetime.now(UTC) + timedelta(days=days)
        await usage.count([call(f"ahead-{days}", ahead, CENT)])
    assert await formed_within(budgets, usage, 50) == 7
    state = await database["memory_usage_state"].find_one({"_id": "usage"})
    assert state is not None
    assert state["counted_to"] <= datetime.now(UTC) + timedelta(hours=1)


@pytest.mark.parametrize("by", ["windows", "a search", "counting"])
async def test_a_budget_that_stands_in_a_period_to_come_is_brought_back(database: Database, by: str) -> None:
    budgets, usage = MongoBudgets(database, NAMES), MongoUsage(database, NAMES)
    await budgets.set("s.x", None, "day", 10 * CENT, "test")
    await usage.count([call("before", datetime.now(UTC), 3 * CENT)])
    ahead = {"$set": {"period": "2999-01-01", "spent_usd": stored(Decimal(0))}}
    await database["memory_budgets"].update_one({}, ahead)
    if by == "a search":
        assert (await only(budgets)).spent == 3 * CENT
    elif by == "counting":
        await usage.count([call("after", datetime.now(UTC), CENT)])
        assert (await only(budgets)).spent == 4 * CENT
    assert await formed_within(budgets, usage, 50) == (6 if by == "counting" else 7)


@pytest.mark.parametrize("wrong", [timedelta(days=-400), timedelta(days=400)])
async def test_a_reservation_of_a_wrong_time_is_released_all_the_same(
    database: Database, clock: Clock, wrong: timedelta
) -> None:
    budgets = MongoBudgets(database, NAMES, clock)
    await budgets.set(None, None, "day", Decimal(1), "test")
    right, clock.now = clock.now, clock.now + wrong
    await reserve(budgets, [window(1), window(2)])
    await budgets.complete(["f1"])
    clock.now = right
    keeping = BudgetKeeping(budgets, MongoFormations(database, NAMES), MongoLedger(database, NAMES))
    await keeping.round(clock.now)
    assert await budgets.open(None, 9) == []
    assert (await only(budgets)).reserved == 0
