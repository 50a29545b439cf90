"""The application's ids (BSON) to and from the typed text of `eden_memory.schemas.ids`."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

from bson import Binary, Decimal128, Int64, ObjectId, encode, json_util
from bson.binary import OLD_UUID_SUBTYPE, UuidRepresentation
from bson.codec_options import CodecOptions

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
