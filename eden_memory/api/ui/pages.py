"""Render pages: templates that escape everything, and headers under which a browser runs nothing but our scripts.

Plots are coordinates that templates draw as SVG, since pages run no script of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from eden_memory.memory.growth_store import Growth
from eden_memory.mongo.ids import TYPED
from eden_memory.schemas.ids import split
from eden_memory.usage.budget_rules import Spending

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-store", "Referrer-Policy": "same-origin"}
"""Without a referrer of our own a browser would send the origin `null` with forms, which are refused then."""


WIDTH, HEIGHT = 640, 180
LEFT, BOTTOM, TOP = 56, 22, 12
SMALL = 320, 120
"""Width and height of a plot that stands beside others."""
GAP = 0.25
"""Share of a bar's room that stays empty."""
FOLDED_CHARACTERS, SHOWN_CHARACTERS = 500, 320
"""A text of more than the first is folded to the second."""


def render(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; whatever stands in its values is shown as text."""
    caller = getattr(request.state, "caller", None)
    doors = request.app.state.doors
    text = (
        _environment()
        .get_template(template)
        .render(
            caller=caller,
            here=request.url.path,
            itself=_itself(request),
            operator=doors.operator and caller is not None and caller.is_operator,
            signed_in=caller is not None and caller.name != "local",
            version=_version(),
            **values,
        )
    )
    return HTMLResponse(text, status, headers=HEADERS)


def _itself(request: Request) -> str:
    """Return the address of the page, without the request that has just been made on it."""
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "asked"]
    return request.url.path + (f"?{urlencode(query)}" if query else "")


def error_page(request: Request, status: int, what: str, hint: str = "") -> HTMLResponse:
    """Return an error as a page."""
    return render(request, "error.html", status, code=status, what=what, hint=hint)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("eden_memory.api.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = environment.filters
    filters |= {
        "ago": ago,
        "brief": brief,
        "clock": clock,
        "day": day,
        "moment": moment,
        "number": number,
        "plain_id": plain_id,
        "usd": usd,
        "percent": percent,
    }
    return environment


@cache
def _version() -> str:
    return version("eden-memory")


def moment(at: datetime | None) -> str:
    """Format a time; UTC."""
    return "never" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


UNITS = (("year", 31_536_000), ("month", 2_592_000), ("day", 86_400), ("hour", 3_600), ("minute", 60))


def ago(at: datetime) -> str:
    """Format how long ago a time was, or how far ahead it is, in its largest unit."""
    seconds = (datetime.now(UTC) - at).total_seconds()
    for unit, size in UNITS:
        if (number := int(abs(seconds) // size)) > 0:
            amount = f"{number} {unit}{'' if number == 1 else 's'}"
            return f"{amount} ago" if seconds > 0 else f"in {amount}"
    return "just now"


def brief(text: str) -> str:
    """Return the beginning of a long text, cut between words; "" for one that is shown whole."""
    if len(text) <= FOLDED_CHARACTERS:
        return ""
    cut = text[:SHOWN_CHARACTERS]
    return f"{cut.rsplit(None, 1)[0] if any(map(str.isspace, cut)) else cut} …"


def day(at: datetime) -> str:
    """Format the day of a time; UTC."""
    return f"{at.astimezone(UTC):%Y-%m-%d}"


def clock(at: datetime) -> str:
    """Format a time without its day; UTC."""
    return f"{at.astimezone(UTC):%H:%M} UTC"


def number(value: int) -> str:
    """Format a number with thousands apart."""
    return f"{value:,}"


def usd(amount: Decimal | None) -> str:
    """Format an amount of US dollars."""
    if amount is None:
        return "unknown"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:,.4f}"


def percent(part: Decimal | float, whole: Decimal | float) -> str:
    """Format a share."""
    return f"{float(part) / float(whole):.0%}" if whole else "-"


def plain_id(typed: str | None) -> str:
    """Return a text id as the application writes it; others keep their type, so that 5 and "5" look different.

    A text that looks typed itself stays as it is: typed in again, it would name another.
    """
    if typed is None or not typed.startswith("s."):
        return typed or ""
    text = split(typed)[1]
    return typed if TYPED.match(text) else text


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


def bar_plot(amounts: Sequence[tuple[str, Decimal]], size: tuple[int, int] = (WIDTH, HEIGHT)) -> BarPlot:
    """Return the plot of labelled amounts, none of them negative."""
    width, height = size
    base = height - BOTTOM
    most = max((amount for _, amount in amounts), default=Decimal(0))
    room = (width - LEFT) / max(1, len(amounts))
    every = max(1, len(amounts) * 100 // width)
    bars = tuple(
        Bar(
            x=round(LEFT + place * room + room * GAP / 2, 1),
            y=round(base - (tall := float(amount / most) * (base - TOP) if most else 0.0), 1),
            width=round(room * (1 - GAP), 1),
            height=round(tall, 1),
            label=label,
            amount=amount,
            shown=place % every == 0,
        )
        for place, (label, amount) in enumerate(amounts)
    )
    return BarPlot(bars, most, width, height, base=base)


@dataclass(frozen=True, slots=True)
class GrowthPlots:
    """A plot of each kind of memory."""

    plots: tuple[tuple[str, BarPlot], ...]
    partial: bool


def growth_plots(growth: Growth) -> GrowthPlots:
    """Return the plots of what was formed a day."""
    kinds = (
        ("Facts", growth.facts),
        ("Reflections", growth.reflections),
        ("Consolidated texts", growth.texts),
    )
    plots = (
        (what, bar_plot([(day, Decimal(count)) for day, count in counts], SMALL)) for what, counts in kinds
    )
    return GrowthPlots(tuple(plots), growth.partial)


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
