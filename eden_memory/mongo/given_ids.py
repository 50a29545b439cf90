"""Ids as people give them: typed, or as text."""

from typing import Any
from uuid import UUID

from bson import ObjectId
from bson.errors import InvalidId

from eden_memory.mongo.bson_ids import decode_id, encode_id


def typed(text: str) -> str:
    """Typed as given (`s.TEXT`, `i.5`, `u.…`, `o.…`), else taken for text."""
    try:
        return encode_id(decode_id(text))
    except (ValueError, KeyError, InvalidId):
        return encode_id(text)


def readings(text: str) -> list[Any]:
    """Values that a text may stand for: the text first, then the types that it can be read as."""
    found: list[Any] = [text]
    for read in (int, UUID, ObjectId):
        try:
            found.append(read(text))
        except (ValueError, InvalidId):
            continue
    return found
