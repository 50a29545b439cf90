"""Who has room in a budget, and what a window is expected to cost."""

from datetime import UTC, datetime
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from eden_memory.usage.budget_rules import (
    Admission,
    Admitted,
    AskedWindow,
    Estimate,
    HeldWindow,
    Spending,
    period_of,
    users_alone,
)
from eden_memory.usage.estimates import RecordedCost, estimate, start_value

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


def budget(name: str, limit: int, **fields: str) -> Spending:
    return Spending(name, "day", limit * CENT, "2026-01-01", **fields)  # pyright: ignore[reportArgumentType]


def window(number: int, session: str = "a", agent: str = "s.x", user: str | None = None) -> AskedWindow:
    return AskedWindow(f"{session}:{number}", session, agent, user, 1_000)


@given(WINDOWS, st.integers(0, 200), st.integers(0, 200))
def test_no_budget_is_ever_promised_more_than_its_limit(
    asked: list[tuple[str, str, str | None, int]], of_agent: int, of_user: int
) -> None:
    budgets = [budget("agent", of_agent, agent_id="s.x"), budget("user", of_user, user_id="i.1")]
    admission = Admission({one.id: one for one in budgets})
    for number, (session, agent, user, cents) in enumerate(asked):
        admission.ask(window(number, session, agent, user), Estimate(cents * CENT))
    assert all(one.spent + one.reserved <= one.limit for one in admission.budgets.values())
    for name in {session for session, *_ in asked}:
        held = [
            isinstance(one, HeldWindow)
            for key, one in admission.results.items()
            if key.startswith(f"{name}:")
        ]
        assert held == sorted(held), "a session's windows from the first one held on are held too"


def test_a_formation_that_has_its_reservation_is_admitted_without_another() -> None:
    admission = Admission({"b": budget("b", 1)}, {"a:1"})
    admission.ask(window(1), Estimate(5 * CENT))
    assert admission.results["a:1"] == Admitted(Estimate(5 * CENT))
    assert admission.budgets["b"].reserved == 0


def test_a_budget_concerns_its_agent_and_its_user_alone() -> None:
    both = budget("b", 1, agent_id="s.x", user_id="i.1")
    assert both.concerns("s.x", "i.1")
    assert not both.concerns("s.x", "i.2")
    assert not both.concerns("s.x", None)
    assert budget("all", 1).concerns("s.y", None)
    assert (users_alone(["i.1", "i.1"]), users_alone(["i.1", "i.2"]), users_alone([])) == ("i.1", None, None)


def test_a_window_of_unknown_price_goes_on_while_there_is_room() -> None:
    admission = Admission({"b": budget("b", 1), "c": budget("c", 0, agent_id="s.y")})
    admission.ask(window(1), Estimate(None))
    admission.ask(window(2, "b", "s.y"), Estimate(None))
    assert isinstance(admission.results["a:1"], Admitted)
    assert admission.results["b:2"] == HeldWindow("c")


def test_of_a_window_whose_price_is_known_in_part_that_part_is_reserved() -> None:
    part = start_value([CENT, 2 * CENT, None], None)
    assert (part.usd, part.reserved) == (None, 3 * CENT)
    recorded = estimate(RecordedCost(9, 9, 18 * CENT, 9 * CENT, priced=False), part, 1)
    assert (recorded.usd, recorded.after, recorded.reserved) == (None, CENT, 3 * CENT)
    admission = Admission({"b": budget("b", 7)})
    for number in range(3):
        admission.ask(window(number), part)
    held = [isinstance(one, HeldWindow) for one in admission.results.values()]
    assert (held, admission.budgets["b"].reserved) == ([False, False, True], 6 * CENT)


def test_what_was_recorded_takes_the_place_of_the_price_tables() -> None:
    start = Estimate(Decimal(9), Decimal(1))
    recorded = RecordedCost(10, 20_000, Decimal(2), Decimal(1), priced=True)
    assert estimate(recorded, start, 2_000) == Estimate(Decimal("0.3"), Decimal("0.1"))
    assert estimate(recorded, start, 8_000) == Estimate(Decimal("0.9"), Decimal("0.1")), (
        "long windows cost more"
    )
    assert estimate(RecordedCost(1, 9, CENT, CENT, priced=True), start, 9) == start, "few are not believed"
    assert estimate(RecordedCost(9, 9, CENT, CENT, priced=False), start, 9).usd is None
    assert start_value([CENT, CENT, None], CENT).usd is None
    assert start_value([CENT, CENT, CENT], CENT) == Estimate(4 * CENT, CENT)


def test_periods_are_utc_days_and_months() -> None:
    at = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
    assert (period_of("day", at), period_of("month", at)) == ("2026-01-31", "2026-01")
