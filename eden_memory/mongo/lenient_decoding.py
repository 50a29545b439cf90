"""Decode documents of the application: one field that cannot be decoded does not make others unreadable."""

from hashlib import sha256
from typing import Any

import bson
from bson.binary import UUID_SUBTYPE, Binary, UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion, TypeDecoder, TypeRegistry
from bson.raw_bson import RawBSONDocument

from eden_memory.errors import describe
from eden_memory.mongo.changes import Document, Unreadable

UUID_BYTES = 16
PLAIN: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=False,
    uuid_representation=UuidRepresentation.STANDARD,
    unicode_decode_error_handler="replace",
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)


class _ProperUuid(TypeDecoder):
    """Decodes UUIDs of 16 bytes; the driver refuses a document with one of any other length."""

    bson_type = Binary  # pyright: ignore

    def transform_bson(self, value: Binary) -> Any:
        """Return the UUID, or other binary data as it is."""
        return value.as_uuid() if value.subtype == UUID_SUBTYPE and len(value) == UUID_BYTES else value


LENIENT = PLAIN.with_options(
    uuid_representation=UuidRepresentation.UNSPECIFIED, type_registry=TypeRegistry([_ProperUuid()])
)
"""Decodes as PLAIN, but leaves a UUID that has not 16 bytes as binary data; half as fast."""
SHALLOW: CodecOptions[RawBSONDocument] = LENIENT.with_options(document_class=RawBSONDocument)
"""Decodes the outer fields alone, so that a field which cannot be decoded does not hide the others."""


def decode_documents(documents: bytes) -> list[Document]:
    """Decode consecutive documents; each on its own if one of them cannot be decoded."""
    try:
        return list(bson.decode_all(documents, PLAIN))  # pyright: ignore[reportUnknownMemberType]
    except Exception:  # noqa: BLE001 - whatever it is, one document raised it
        each: Any = bson.decode_all(documents, SHALLOW)  # pyright: ignore[reportUnknownMemberType]
        return [decode_document(document.raw) for document in each]


def decode_document(raw: bytes | memoryview) -> Document:
    """Decode as much of a document as possible: all of it, or its `_id` alone."""
    try:
        return bson.decode(raw, LENIENT)  # pyright: ignore[reportUnknownMemberType]
    except Exception as error:  # noqa: BLE001 - it is the document's
        identity, reason = _identity(raw), f"it cannot be decoded: {describe(error)}"
        return Unreadable(identity, reason, None if identity is not None else sha256(raw).hexdigest())


def decode_outer_fields(raw: bytes | memoryview) -> dict[str, Any]:
    """Decode a document, and as much as possible of each document in its fields."""
    return {
        name: decode_document(value.raw) if isinstance(value, RawBSONDocument) else value
        for name, value in RawBSONDocument(raw, SHALLOW).items()
    }


def _identity(raw: bytes | memoryview) -> Any:
    try:
        return decode_outer_fields(raw).get("_id")
    except Exception:  # noqa: BLE001 - as above
        return None
