"""The application's ids (BSON) to and from the typed text of `eden_memory.schemas.ids`."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from bson import Int64, ObjectId

from eden_memory.schemas import ids


def encode_id(value: Any) -> str:
    """Typed text of an ObjectId, string, int or UUID; NoId for anything else."""
    if type(value) is ObjectId:
        return ids.encode_object_id(str(value))
    return ids.encode(value)


def decode_id(encoded: str) -> Any:
    """The BSON value behind a typed id; a ValueError if it is none."""
    kind, text = ids.split(encoded)
    parsers: dict[str, Callable[[str], Any]] = {"s": str, "i": _integer, "u": UUID, "o": ObjectId}
    return parsers[kind](text)


def _integer(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError("MongoDB has integers of 64 bits at most")
    return number if -(2**31) <= number < 2**31 else Int64(number)
