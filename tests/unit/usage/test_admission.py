"""Which windows budgets have room for, and what a window is expected to cost."""

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.usage.budget_rules import (
    AskedWindow,
    HeldWindow,
    Per,
    Spending,
    WindowCost,
    admitted,
    budget_id,
    concerned,
    period_of,
    users_alone,
    with_in_flight,
)
from eden_memory.usage.costs import Estimate, start_value

CENT = Decimal("0.01")
WINDOWS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["s.x", "s.y"]),
        st.none() | st.just("i.1"),
        st.integers(0, 40),
    ),
    max_size=30,
)


def budget(limit: int, agent: str | None = None, user: str | None = None, per: Per = "day") -> Spending:
    name = budget_id(agent, user, per)
    return Spending(name, per, limit * CENT, "2026-01-01", agent_id=agent, user_id=user)


def budgets(*given: Spending) -> dict[str, Spending]:
    return {one.id: one for one in given}


def window(number: int, session: str = "a", agent: str = "s.x", user: str | None = None) -> AskedWindow:
    return AskedWindow(f"{session}:{number}", session, agent, user)


def admit(
    known: dict[str, Spending], asked: list[tuple[AskedWindow, int]]
) -> dict[str, WindowCost | HeldWindow]:
    costs = {one.formation_id: WindowCost(one.agent_id, one.user_id, usd * CENT) for one, usd in asked}
    return admitted([one for one, _ in asked], costs, known)


@given(WINDOWS, st.integers(0, 200), st.integers(0, 200))
def test_a_limit_is_exceeded_by_the_last_window_at_most(
    asked: list[tuple[str, str, str | None, int]], of_agent: int, of_user: int
) -> None:
    known = budgets(budget(of_agent, "s.x"), budget(of_user, user="i.1"), budget(10_000, per="month"))
    windows = [
        (window(number, session, agent, user), cents)
        for number, (session, agent, user, cents) in enumerate(asked)
    ]
    found = admit(known, windows)
    let_in = [one for one in found.values() if isinstance(one, WindowCost)]
    largest = max((cents for *_, cents in asked), default=0) * CENT
    for one in with_in_flight(known, let_in).values():
        assert one.in_flight == 0 or one.in_flight < one.limit + largest
    for name in {session for session, *_ in asked}:
        held = [isinstance(one, HeldWindow) for key, one in found.items() if key.startswith(f"{name}:")]
        assert held == sorted(held), "a session's windows from the first one held on are held too"


def test_a_budget_concerns_its_agent_and_its_user_alone() -> None:
    known = budgets(budget(1, "s.x", "i.1"), budget(1), budget(1, user="i.2", per="month"))

    def names(agent: str | None, user: str | None) -> set[str]:
        return {one.id for one in concerned(known, agent, user)}

    assert names("s.x", "i.1") == {"s.x/i.1/day", "*/*/day"}
    assert names("s.x", "i.2") == {"*/i.2/month", "*/*/day"}
    assert names("s.x", None) == names(None, None) == names("s.y", "i.1") == {"*/*/day"}
    assert (users_alone(["i.1", "i.1"]), users_alone(["i.1", "i.2"]), users_alone([])) == ("i.1", None, None)


def test_a_window_of_unknown_price_goes_on_while_there_is_room() -> None:
    found = admit(budgets(budget(1, "s.x"), budget(0, "s.y")), [(window(1), 0), (window(2, "b", "s.y"), 0)])
    assert isinstance(found["a:1"], WindowCost)
    assert found["b:2"] == HeldWindow("s.y/*/day")


def test_the_expected_cost_of_windows_in_flight_takes_room() -> None:
    found = admit(budgets(budget(7)), [(window(n, session=str(n)), 3) for n in range(4)])
    assert [isinstance(one, HeldWindow) for one in found.values()] == [False, False, False, True]


def test_of_calls_whose_price_is_known_in_part_that_part_is_expected() -> None:
    part = start_value([CENT, 2 * CENT, None])
    assert (part.usd, part.known) == (None, 3 * CENT)
    assert start_value([CENT, CENT, CENT]) == Estimate(3 * CENT)


def test_periods_are_utc_days_and_months() -> None:
    at = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
    assert (period_of("day", at), period_of("month", at)) == ("2026-01-31", "2026-01")
