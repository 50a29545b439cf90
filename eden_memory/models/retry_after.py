"""When an HTTP endpoint wants the next call: Retry-After in seconds or as a date (RFC 9110, 10.2.3)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

MOST = 3_600.0
"""Whoever says `inf`, or a year, is asked again after an hour."""


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds, MOST at most; of a date, from the response's own `Date`, so that no two clocks need to agree, else
    from `now`."""
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return bounded(float(headers[name]) / divisor)
        except (KeyError, ValueError):
            continue
    until = _date(headers.get("retry-after"))
    if until is None:
        return None
    since = _date(headers.get("date")) or now or datetime.now(UTC)
    return bounded((until - since).total_seconds())


def bounded(seconds: float) -> float:
    """From 0 to MOST."""
    return min(MOST, max(0.0, seconds))


def _date(text: str | None) -> datetime | None:
    """An HTTP date; one without a zone is UTC."""
    try:
        found = parsedate_to_datetime(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
