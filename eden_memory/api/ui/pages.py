"""Render pages: templates that escape everything, and headers under which a browser runs nothing but our scripts."""

from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from eden_memory.mongo.application_ids import TYPED
from eden_memory.schemas.ids import split

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
            operator=doors.operator and caller is not None and is_operator(caller),
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


def is_operator(caller: Any) -> bool:
    """Return whether the caller administers the whole installation."""
    return caller.may("admin") and not caller.is_bound


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
