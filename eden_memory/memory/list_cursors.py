"""Cursors of lists: opaque, valid for one list with its filters, checked before use."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, cast

from eden_memory.errors import Invalid

LONGEST = 8_192
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Place = tuple[datetime, *tuple[int | str, ...]]
"""The values that the last item of a page was sorted by."""


def digest_of(*filters: Any) -> str:
    """Return a hash of the filters that a cursor is bound to."""
    return sha256(json.dumps(filters, default=str).encode()).hexdigest()[:16]


def cursor_of(digest: str, place: Sequence[Any]) -> str:
    """Return the cursor at which the next page begins."""
    at, *rest = place
    plain = [digest, (at - EPOCH) // timedelta(milliseconds=1), *rest]
    return urlsafe_b64encode(json.dumps(plain, separators=(",", ":")).encode()).decode().rstrip("=")


def place_of(digest: str, cursor: str, types: Sequence[type]) -> list[Any]:
    """Return the time and values of a cursor, of these types; Invalid unless it is a cursor of this list."""
    try:
        found: Any = json.loads(urlsafe_b64decode(cursor[:LONGEST] + "=" * (-len(cursor) % 4)))
        bound, milliseconds, *rest = cast("list[Any]", found)
        fits = (
            isinstance(found, list)
            and type(milliseconds) is int
            and [type(key) for key in rest] == list(types)
        )
        at = EPOCH + timedelta(milliseconds=milliseconds) if fits and bound == digest else None
        storable = all(map(_is_storable, rest))
    except (ValueError, TypeError, OverflowError, RecursionError):
        at, rest, storable = None, [], False
    if at is None or not storable:
        raise Invalid("this is no cursor of this list", "Give the last page's cursor with the same filters.")
    return [at, *rest]


def _is_storable(value: Any) -> bool:
    """Return whether MongoDB can compare with it; a UnicodeEncodeError (ValueError) for what is no text."""
    return len(value.encode()) <= LONGEST if isinstance(value, str) else -(2**63) <= value < 2**63
