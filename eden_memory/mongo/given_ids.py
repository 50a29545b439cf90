"""Ids as people type them: typed, or as plain text."""

from typing import Any
from uuid import UUID

from bson import ObjectId
from bson.errors import InvalidId

from eden_memory.mongo.bson_ids import decode_id, encode_id


def typed(text: str) -> str:
    """Return the id as typed (`s.TEXT`, `i.5`, `u.…`, `o.…`), else as text."""
    try:
        return encode_id(decode_id(text))
    except (ValueError, KeyError, InvalidId):
        return encode_id(text)


def readings(text: str) -> list[Any]:
    """Return the values that a text may mean: the text itself first, then the types that it can be read as."""
    found: list[Any] = [text]
    for read in (int, UUID, ObjectId):
        try:
            found.append(read(text))
        except (ValueError, InvalidId):
            continue
    return found
