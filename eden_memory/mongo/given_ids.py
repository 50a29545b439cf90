"""Ids as people type them: typed, or as plain text."""

from typing import Any
from uuid import UUID

from bson import Binary, ObjectId
from bson.binary import UuidRepresentation
from bson.errors import InvalidId

from eden_memory.mongo.bson_ids import decode_id, encode_id

OLD_DRIVERS = (
    UuidRepresentation.JAVA_LEGACY, UuidRepresentation.CSHARP_LEGACY, UuidRepresentation.PYTHON_LEGACY
)  # fmt: skip


def typed(text: str) -> str:
    """Return the id as typed (`s.TEXT`, `i.5`, `u.…`, `o.…`), else as text."""
    try:
        return encode_id(decode_id(text))
    except (ValueError, KeyError, InvalidId):
        return encode_id(text)


def readings(text: str) -> list[Any]:
    """Return the values that a text may mean: the text itself first, then the types that it can be read as."""
    found: list[Any] = [text]
    for read in (_integer, UUID, ObjectId):
        try:
            found.append(read(text))
        except (ValueError, InvalidId):
            continue
    uuids = [value for value in found if isinstance(value, UUID)]
    return found + [Binary.from_uuid(uuid, driver) for uuid in uuids for driver in OLD_DRIVERS]


def _integer(text: str) -> Any:
    return decode_id(f"i.{text}")
