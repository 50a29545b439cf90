"""The application's ids (BSON) to and from the typed text of `eden_memory.schemas.ids`."""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from bson import Int64, ObjectId, json_util
from bson.binary import UuidRepresentation

from eden_memory.schemas import ids

AS_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)


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


def to_json(document: Mapping[str, Any]) -> bytes:
    """Extended JSON of a document, whatever stands in it."""
    return json_util.dumps(document, json_options=AS_JSON).encode()


def from_json(text: bytes) -> dict[str, Any]:
    """The document that extended JSON says; a ValueError or TypeError if it says none."""
    return dict(json_util.loads(text, json_options=AS_JSON))


def _integer(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError("MongoDB has integers of 64 bits at most")
    return number if -(2**31) <= number < 2**31 else Int64(number)
