"""When an endpoint wants the next call."""

from datetime import UTC, datetime

import pytest

from eden_memory.models.provider_calls import MOST, retry_after

NOON = "Sun, 22 Nov 2026 12:00:00 GMT"
LATER = "Sun, 22 Nov 2026 12:00:30 GMT"
NOW = datetime(2026, 11, 22, 11, 59, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7.5"}, 7.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": LATER, "date": NOON}, 30.0),
        ({"retry-after": NOON, "date": LATER}, 0.0),
        ({"retry-after": NOON}, 10.0),
        ({"retry-after": NOON, "date": "yesterday"}, 10.0),
        ({"retry-after": "inf"}, MOST),
        ({"retry-after-ms": "9" * 400}, MOST),
        ({"retry-after": "nan"}, 0.0),
        ({"retry-after": "Wed, 21 Oct 9999 07:28:00 GMT"}, MOST),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_seconds_and_dates_are_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds
