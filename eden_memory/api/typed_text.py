"""Ids as people and programs write them in a URL, a header or a command: typed, or plain text for a text id."""

import re
from typing import Any

from eden_memory.errors import NotAnId
from eden_memory.mongo.application_ids import raw, typed

TYPED = re.compile(r"[siuo]\.")


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


def typed_id_of(text: str, name: str) -> str:
    """The same in its typed text, always in one and the same form."""
    return typed(id_of(text, name), name)
