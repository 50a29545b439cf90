"""Times as callers give them, in UTC."""

from datetime import UTC, datetime

from eden_memory.errors import Invalid


def in_utc(moment: datetime) -> datetime:
    """Return the time in UTC; one without a zone is in UTC already.

    Invalid for the first or last hours of the calendar in another zone: UTC has no such time, nor has MongoDB.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise Invalid("a time lies outside of the calendar", "In UTC its year is 1 to 9999.") from None
