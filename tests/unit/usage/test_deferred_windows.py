"""formation-trigger under a budget: windows wait unpublished, in order, and none is lost or cut differently."""

import random
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eden_memory.directory.participants import Missing
from eden_memory.processors.formation_trigger import FormationTrigger
from eden_memory.schemas.events import FormationRequested
from eden_memory.stages.stage import Delivery
from eden_memory.usage.budget_rules import (
    AskedWindow,
    HeldWindow,
    Spending,
    WindowCost,
    admitted,
    with_in_flight,
)
from eden_memory.windows.window_rule import Limits
from tests.unit.windows.memory_store import Crash, MemoryStore
from tests.unit.windows.records import (
    KnownMarks,
    Sessions,
    asked,
    formations,
    message,
    names,
    run,
    trigger,
    watermark,
)

ONE = Decimal(1)
HELD_BY = "budget */*/day"
LIMITS = Limits(messages=5)


class Budgets:
    """One budget, a window in flight for ever; what is in flight survives whoever admitted it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight: dict[str, WindowCost] = {}
        self.asked = 0

    def _known(self) -> dict[str, Spending]:
        budget = Spending("*/*/day", "day", self.limit * ONE, "2026-01-01")
        return with_in_flight({budget.id: budget}, self.in_flight.values())

    def still_held(self, waits_for: str | None) -> bool:
        return waits_for == HELD_BY and self._known()["*/*/day"].room <= 0

    async def any(self) -> bool:
        return True

    async def admit(self, windows: Sequence[AskedWindow]) -> Mapping[str, WindowCost | HeldWindow]:
        self.asked += 1
        costs = {one.formation_id: WindowCost(one.agent_id, one.user_id, ONE) for one in windows}
        again = {name: cost for name, cost in self.in_flight.items() if name not in costs}
        budget = Spending("*/*/day", "day", self.limit * ONE, "2026-01-01")
        found = admitted(windows, costs, with_in_flight({budget.id: budget}, again.values()))
        self.in_flight |= {name: one for name, one in found.items() if isinstance(one, WindowCost)}
        return found

    def raise_to(self, limit: int) -> None:
        self.limit = limit


def stage(store: MemoryStore, budgets: Budgets) -> FormationTrigger:
    return FormationTrigger(store, Sessions(), "v1", KnownMarks(), budgets=budgets)


def talk(seed: int) -> list[Delivery]:
    dice = random.Random(seed)
    log = [message(f"s.m{n}", f"s.{dice.randrange(4)}", n, n / 100) for n in range(1, 61)]
    return [*log, asked("s.0", 61, 1)]


async def quiet(log: list[Delivery]) -> dict[str, list[str]]:
    done = await run(trigger(MemoryStore(LIMITS)), log, [watermark(100, 60)])
    return {one.formation_id: names(one) for one in formations(done)}


async def test_windows_beyond_the_limit_wait_and_go_on_in_order_when_it_is_raised() -> None:
    log, store, budgets = talk(1), MemoryStore(LIMITS), Budgets(3)
    expected = await quiet(log)
    working = stage(store, budgets)
    first = formations(await run(working, log, [watermark(100, 60)]))
    assert len(first) == 3
    stored = [one.in_flight for one in store.stored_windows.values() if one.in_flight is not None]
    assert [one.usd for one in stored] == [ONE] * 3
    held = [one for one in store.stored_sessions.values() if one.waits_for == HELD_BY]
    assert sum(not entry.requested for one in held for entry in one.outbox) == len(expected) - 3
    asked_so_far = budgets.asked
    assert formations(await run(working, [watermark(101, 61)])) == [], "however long"
    assert budgets.asked == asked_so_far, "while the budget has no room, nothing is looked up"
    budgets.raise_to(99)
    later = formations(await run(working, [watermark(102, 62)]))
    assert {one.formation_id: names(one) for one in (*first, *later)} == expected
    for session in {one.session_id for one in later}:
        order = [one.seq for one in (*first, *later) if one.session_id == session]
        assert order == sorted(order)
    assert all(one.waits_for is None for one in store.stored_sessions.values())


@given(st.integers(0, 1_000), st.integers(0, 12), st.lists(st.integers(0, 12), max_size=4))
async def test_a_crash_anywhere_between_admitting_and_publishing_forms_nothing_twice(
    seed: int, limit: int, crashes: list[int]
) -> None:
    log, store, budgets = talk(seed), MemoryStore(LIMITS, seed), Budgets(limit)
    expected = await quiet(log)
    published: dict[str, list[str]] = {}
    for writes in (*crashes, None):
        store.writes_left = writes
        working = stage(store, budgets)
        try:
            for batch in (log[:30], log[30:], [watermark(100, 60)]):
                published |= {one.formation_id: names(one) for one in formations(await run(working, batch))}
        except Crash:
            continue
    assert len(published) <= min(limit, len(expected))
    assert published.keys() <= budgets.in_flight.keys()
    budgets.raise_to(999)
    store.writes_left = None
    for number in (101, 102):
        later = formations(await run(stage(store, budgets), [watermark(number, number)]))
        published |= {one.formation_id: names(one) for one in later}
    assert published == expected
    assert budgets.in_flight.keys() == expected.keys()


async def test_what_a_budget_holds_of_a_session_that_is_switched_off_is_let_go() -> None:
    log, store, budgets, sessions = talk(2), MemoryStore(LIMITS), Budgets(0), Sessions()
    working = FormationTrigger(store, sessions, "v1", KnownMarks(), budgets=budgets)
    await run(working, log, [watermark(100, 60)])
    await run(working, [watermark(101, 61)])
    assert store.stored_sessions["s.1"].waits_for == HELD_BY
    sessions.off_sessions.add("s.1")
    left = await run(working, [watermark(102, 62)])
    assert [one for one in left if isinstance(one.event, FormationRequested)] == []
    assert store.stored_sessions["s.1"].waits_for is None
    assert store.stored_sessions["s.2"].waits_for == HELD_BY


@pytest.mark.parametrize("reason", [None, "no document s.1 in sessions"])
async def test_who_waits_for_a_document_is_not_asked_about_budgets(reason: str | None) -> None:
    log, store, budgets = talk(2), MemoryStore(LIMITS), Budgets(0)
    sessions = Sessions()
    if reason is not None:
        sessions.said["s.1"] = Missing(reason)
    await run(FormationTrigger(store, sessions, "v1", KnownMarks(), budgets=budgets), log)
    waits = {name: one.waits_for for name, one in store.stored_sessions.items() if one.outbox}
    assert waits
    assert waits["s.1"] == (reason or HELD_BY)
