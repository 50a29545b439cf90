"""Ids of the application: as typed text in our records, back to BSON, and what a text that people give may mean."""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from bson import Binary, Decimal128, Int64, ObjectId, encode, json_util
from bson.binary import OLD_UUID_SUBTYPE, UuidRepresentation
from bson.codec_options import CodecOptions
from bson.errors import InvalidId

from eden_memory.errors import NotAnId
from eden_memory.schemas import ids

UUID_BYTES = 16
STANDARD: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
AS_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)


def encode_id(value: Any) -> str:
    """Typed text of an ObjectId, string, whole number or UUID, whatever its BSON type; NoId for anything else."""
    match value:
        case ObjectId():
            return ids.encode_object_id(str(value))
        case Decimal128() if _is_integer(number := value.to_decimal()):
            return ids.encode(int(number))
        case _ if isinstance(value, Binary) and (value.subtype, len(value)) == (OLD_UUID_SUBTYPE, UUID_BYTES):
            return ids.encode_legacy_uuid(value.hex())
        case _:
            return ids.encode(value)


def decode_id(encoded: str) -> Any:
    """The BSON value behind a typed id; a ValueError if it is none."""
    kind, text = ids.split(encoded)
    parsers: dict[str, Callable[[str], Any]] = {
        "s": str,
        "i": _integer,
        "u": UUID,
        "o": ObjectId,
        "l": _legacy_uuid,
    }
    return parsers[kind](text)


def to_json(document: Mapping[str, Any]) -> bytes:
    """Extended JSON of a document, whatever stands in it."""
    return json_util.dumps(document, json_options=AS_JSON).encode()


def as_bytes(values: Sequence[Any]) -> bytes:
    """Return values of a document, also of one that came as JSON, as bytes: the same for the same values."""
    try:
        return encode({"": values}, codec_options=STANDARD)
    except Exception:  # noqa: BLE001 - JSON has numbers and characters that BSON has not
        return repr(values).encode(errors="surrogatepass")


def from_json(text: bytes) -> dict[str, Any]:
    """The document that extended JSON says; a ValueError or TypeError if it says none."""
    return dict(json_util.loads(text, json_options=AS_JSON))


def _is_integer(number: Decimal) -> bool:
    return number.is_finite() and abs(number) < 2**63 and number == number.to_integral_value()


def _legacy_uuid(text: str) -> Binary:
    content = bytes.fromhex(text)
    if len(content) != UUID_BYTES:
        raise ValueError("a UUID has 16 bytes")
    return Binary(content, OLD_UUID_SUBTYPE)


def _integer(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError("MongoDB has integers of 64 bits at most")
    return number if -(2**31) <= number < 2**31 else Int64(number)


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


OLD_DRIVERS = (
    UuidRepresentation.JAVA_LEGACY, UuidRepresentation.CSHARP_LEGACY, UuidRepresentation.PYTHON_LEGACY
)  # fmt: skip


def decoded_or_none(text: str) -> Any:
    """Return the id behind a typed one; None if it is none."""
    try:
        return decode_id(text)
    except (ValueError, KeyError, InvalidId):
        return None


def typed_or_text(text: str) -> str:
    """Return the id as typed (`s.TEXT`, `i.5`, `u.…`, `o.…`), else as text."""
    value = decoded_or_none(text)
    return encode_id(text if value is None else value)


def readings(text: str) -> list[Any]:
    """Return the values that a text may mean: the text itself first, then the types that it can be read as."""
    found: list[Any] = [text]
    for read in (_integer_of, UUID, ObjectId):
        try:
            found.append(read(text))
        except (ValueError, InvalidId):
            continue
    uuids = [value for value in found if isinstance(value, UUID)]
    return found + [Binary.from_uuid(uuid, driver) for uuid in uuids for driver in OLD_DRIVERS]


def _integer_of(text: str) -> Any:
    return decode_id(f"i.{text}")
