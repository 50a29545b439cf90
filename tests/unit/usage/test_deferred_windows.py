"""formation-trigger under a budget: windows wait unpublished, in order, and none is lost or cut differently."""

import random
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eden_memory.directory.participants import Missing
from eden_memory.processors.formation_trigger import FormationTrigger
from eden_memory.schemas.events import FormationRequested
from eden_memory.stages.stage import Delivery
from eden_memory.usage.budget_rules import Admission, Admitted, AskedWindow, Estimate, HeldWindow, Spending
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
LIMITS = Limits(messages=5)


class Budgets:
    """One budget, as stored: reservations survive whoever reserved."""

    def __init__(self, limit: int) -> None:
        self.budget = Spending("all", "day", limit * ONE, "2026-01-01")
        self.reserved: set[str] = set()
        self.seen: Decimal | None = None
        """The limit as it was read last, and as it was when a window was held back."""
        self.refused: Decimal | None = None

    def still_held(self, session_id: str, waits_for: str | None) -> bool:
        del session_id
        return waits_for == "budget all" and self.seen == self.refused

    async def any(self) -> bool:
        self.seen = self.budget.limit
        return True

    async def admit(self, windows: Sequence[AskedWindow]) -> Mapping[str, Admitted | HeldWindow]:
        admission = Admission({"all": self.budget}, set(self.reserved))
        for one in windows:
            admission.ask(one, Estimate(ONE))
        self.budget = admission.budgets["all"]
        if any(isinstance(one, HeldWindow) for one in admission.results.values()):
            self.refused = self.seen
        self.reserved |= {name for name, one in admission.results.items() if isinstance(one, Admitted)}
        assert self.budget.reserved == len(self.reserved) * ONE <= self.budget.limit
        return admission.results

    def raise_to(self, limit: int) -> None:
        self.budget = Spending("all", "day", limit * ONE, "2026-01-01", reserved=self.budget.reserved)


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
    assert all(one.estimated_usd == 1 for one in first)
    held = [one for one in store.stored_sessions.values() if one.waits_for == "budget all"]
    assert sum(not entry.requested for one in held for entry in one.outbox) == len(expected) - 3
    assert formations(await run(working, [watermark(101, 61)])) == [], "however long"
    budgets.raise_to(99)
    later = formations(await run(working, [watermark(102, 62)]))
    assert {one.formation_id: names(one) for one in (*first, *later)} == expected
    for session in {one.session_id for one in later}:
        order = [one.seq for one in (*first, *later) if one.session_id == session]
        assert order == sorted(order)
    assert all(one.waits_for is None for one in store.stored_sessions.values())


@given(st.integers(0, 1_000), st.integers(0, 12), st.lists(st.integers(0, 12), max_size=4))
@settings(max_examples=40, deadline=None)
async def test_a_crash_anywhere_between_reserving_and_publishing_reserves_and_forms_nothing_twice(
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
    assert len(budgets.reserved) == min(limit, len(expected))
    assert published.keys() <= budgets.reserved
    budgets.raise_to(999)
    store.writes_left = None
    for number in (101, 102):
        later = formations(await run(stage(store, budgets), [watermark(number, number)]))
        published |= {one.formation_id: names(one) for one in later}
    assert published == expected
    assert budgets.reserved == expected.keys()


async def test_what_a_budget_holds_of_a_session_that_is_switched_off_is_let_go() -> None:
    log, store, budgets, sessions = talk(2), MemoryStore(LIMITS), Budgets(0), Sessions()
    working = FormationTrigger(store, sessions, "v1", KnownMarks(), budgets=budgets)
    await run(working, log, [watermark(100, 60)])
    await run(working, [watermark(101, 61)])
    assert store.stored_sessions["s.1"].waits_for == "budget all"
    sessions.off_sessions.add("s.1")
    left = await run(working, [watermark(102, 62)])
    assert [one for one in left if isinstance(one.event, FormationRequested)] == []
    assert store.stored_sessions["s.1"].waits_for is None
    assert store.stored_sessions["s.2"].waits_for == "budget all"


@pytest.mark.parametrize("reason", [None, "no document s.1 in sessions"])
async def test_who_waits_for_a_document_is_not_asked_about_budgets(reason: str | None) -> None:
    log, store, budgets = talk(2), MemoryStore(LIMITS), Budgets(0)
    sessions = Sessions()
    if reason is not None:
        sessions.said["s.1"] = Missing(reason)
    await run(FormationTrigger(store, sessions, "v1", KnownMarks(), budgets=budgets), log)
    waits = {name: one.waits_for for name, one in store.stored_sessions.items() if one.outbox}
    assert waits
    assert waits["s.1"] == (reason or "budget all")
