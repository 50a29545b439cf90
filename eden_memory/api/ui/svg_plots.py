"""Plots as coordinates; templates draw them as SVG, since pages run no script of their own. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from eden_memory.usage.budget_rules import Spending

WIDTH, HEIGHT = 640, 180
LEFT, BOTTOM, TOP = 56, 22, 12
GAP = 0.25
"""Share of a bar's room that stays empty."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, from its upper left corner."""

    x: float
    y: float
    width: float
    height: float
    label: str
    amount: Decimal
    shown: bool
    """Whether its label stands below it; where there are many, only some do."""


@dataclass(frozen=True, slots=True)
class BarPlot:
    """Bars over a common axis, and the height of the largest."""

    bars: tuple[Bar, ...]
    most: Decimal
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    top: int = TOP
    base: int = HEIGHT - BOTTOM


def bar_plot(amounts: Sequence[tuple[str, Decimal]]) -> BarPlot:
    """Return the plot of labelled amounts, none of them negative."""
    most = max((amount for _, amount in amounts), default=Decimal(0))
    room = (WIDTH - LEFT) / max(1, len(amounts))
    every = max(1, len(amounts) // 6)
    return BarPlot(
        tuple(
            _bar(place, room, label, amount, most, shown=place % every == 0)
            for place, (label, amount) in enumerate(amounts)
        ),
        most,
    )


def _bar(place: int, room: float, label: str, amount: Decimal, most: Decimal, *, shown: bool) -> Bar:
    base = HEIGHT - BOTTOM
    height = float(amount / most) * (base - TOP) if most else 0.0
    x = LEFT + place * room + room * GAP / 2
    return Bar(
        round(x, 1),
        round(base - height, 1),
        round(room * (1 - GAP), 1),
        round(height, 1),
        label,
        amount,
        shown,
    )


@dataclass(frozen=True, slots=True)
class BudgetPlot:
    """A budget as one bar: what is spent, then what is in flight; up to its whole width."""

    spent: float
    in_flight: float
    width: int = WIDTH
    height: int = 14


def budget_plot(spending: Spending) -> BudgetPlot:
    """Return the plot of a budget; what exceeds its limit is cut off."""
    limit = spending.limit or Decimal(1)
    spent = min(Decimal(1), spending.spent / limit)
    in_flight = min(1 - spent, spending.in_flight / limit)
    return BudgetPlot(round(float(spent) * WIDTH, 1), round(float(in_flight) * WIDTH, 1))
