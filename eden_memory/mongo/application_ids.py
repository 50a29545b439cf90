"""Ids as applications give them, checked: nothing else is ever used as an id in a query."""

import re
from typing import Any

from eden_memory.errors import NotAnId
from eden_memory.mongo.bson_ids import decode_id, encode_id

LONGEST = 1_024
"""Characters of a typed id (schemas.ids.EntityId)."""
WHAT = "An id is an ObjectId, a text, a whole number of 64 bits or a UUID."
TYPED = re.compile(r"[siuol]\.")


def typed_or_none(value: Any, name: str) -> str | None:
    """As :func:`typed`; None stays None."""
    return None if value is None else typed(value, name)


def typed(value: Any, name: str) -> str:
    """Return the typed text of an id; NotAnId if it is none. `name` says which id it was meant to be."""
    try:
        encoded = encode_id(value)
    except (TypeError, UnicodeEncodeError):
        raise NotAnId(f"{type(value).__name__} given as the id of the {name}", WHAT) from None
    if len(encoded) > LONGEST:
        raise NotAnId(f"the id of the {name} is too long", f"Typed, it has at most {LONGEST} characters.")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise NotAnId(f"the id of the {name} is too large a number", WHAT)
    return encoded


def raw(encoded: str, name: str) -> Any:
    """The application's id behind a typed one; NotAnId if it is none."""
    try:
        value = decode_id(encoded)
    except Exception:  # noqa: BLE001 - bson raises its own errors for what is no ObjectId
        raise NotAnId(f"{encoded!r} given as the typed id of the {name}", WHAT) from None
    typed(value, name)
    return value


def id_of(text: str, name: str) -> Any:
    """The application's id: behind `s.TEXT`, `i.5`, `u.UUID` and `o.OBJECTID`, and else the text itself.

    NotAnId if it looks typed and is none, or is empty; `name` says what it was to be the id of. Never anything but a
    text, an integer, a UUID or an ObjectId, so no operator of a query comes through.
    """
    if not text:
        raise NotAnId(
            f"the id of the {name} is empty", "Give s.TEXT, i.NUMBER, u.UUID, o.OBJECTID, or plain text."
        )
    value = raw(text, name) if TYPED.match(text) else text
    typed(value, name)
    return value
