"""Parts of the inspector's pages: plots, amounts, ids, and where a sign-in may lead."""

from decimal import Decimal

import pytest

from eden_memory.api.ui.inspector_route import own_page
from eden_memory.api.ui.pages import WIDTH, bar_plot, budget_plot, percent, plain_id, usd
from eden_memory.usage.budget_rules import Spending


def test_the_largest_bar_has_the_whole_height_and_none_leaves_the_plot() -> None:
    plot = bar_plot([(f"2026-01-{day:02}", Decimal(day % 5)) for day in range(1, 32)])
    assert max(bar.height for bar in plot.bars) == plot.base - plot.top
    assert all(plot.left <= bar.x and bar.x + bar.width <= plot.width for bar in plot.bars)
    assert all(bar.y + bar.height == pytest.approx(plot.base) for bar in plot.bars)
    assert 5 <= sum(bar.shown for bar in plot.bars) <= 8


@pytest.mark.parametrize("amounts", [[], [("2026-01-01", Decimal(0))]])
def test_a_plot_of_nothing_is_flat(amounts: list[tuple[str, Decimal]]) -> None:
    assert [bar.height for bar in bar_plot(amounts).bars] == [0.0] * len(amounts)


@pytest.mark.parametrize(("spent", "reserved"), [("1", "1"), ("3", "3"), ("9", "0"), ("0", "9"), ("2", "5")])
def test_a_budget_never_exceeds_its_bar(spent: str, reserved: str) -> None:
    for limit in ("4", "0"):
        spending = Spending("*/*/day", "day", Decimal(limit), "2026-01-01", Decimal(spent), Decimal(reserved))
        plot = budget_plot(spending)
        assert 0 <= plot.spent + plot.in_flight <= WIDTH
        assert min(plot.spent, plot.in_flight) >= 0


@pytest.mark.parametrize(
    "path",
    ["https://evil.example", "//evil.example", "/uix", "/v1", "", "/ui/\\evil", "/ui/\r\nSet-Cookie: a=b"],
)
def test_signing_in_leads_to_our_own_pages_only(path: str) -> None:
    assert own_page(path) == "/ui"
    assert own_page("/ui/fact?agent=a&id=x%2F1") == "/ui/fact?agent=a&id=x%2F1"


def test_amounts_and_ids_are_short_and_never_ambiguous() -> None:
    assert [usd(amount) for amount in (None, Decimal(0), Decimal("0.00123"), Decimal("1234.5"))] == [
        "unknown",
        "$0.00",
        "$0.0012",
        "$1,234.50",
    ]
    ids = ("s.ada", "s.ada%40example.com", "i.5", "s.i.5", "nobody", None)
    shown = ["ada", "ada@example.com", "i.5", "s.i.5", "nobody", ""]
    assert [plain_id(name) for name in ids] == shown
    assert [percent(1, 4), percent(1, 0)] == ["25%", "-"]
