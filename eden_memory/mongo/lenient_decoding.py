"""Decode documents of the application: what cannot be decoded in one of them costs no other its reading."""

from typing import Any

import bson
from bson.binary import UUID_SUBTYPE, Binary, UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion, TypeDecoder, TypeRegistry
from bson.raw_bson import RawBSONDocument

from eden_memory.error_text import describe
from eden_memory.mongo.changes import Document

UUID_BYTES = 16
PLAIN: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=False,
    uuid_representation=UuidRepresentation.STANDARD,
    unicode_decode_error_handler="replace",
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)


class _ProperUuid(TypeDecoder):
    """Decodes a UUID of 16 bytes; the driver refuses a document for one of any other length."""

    bson_type = Binary

    def transform_bson(self, value: Binary) -> Any:
        """Return the UUID, or other binary data as it is."""
        return value.as_uuid() if value.subtype == UUID_SUBTYPE and len(value) == UUID_BYTES else value


LENIENT = PLAIN.with_options(
    uuid_representation=UuidRepresentation.UNSPECIFIED, type_registry=TypeRegistry([_ProperUuid()])
)
"""Decodes as PLAIN, but leaves a UUID that has not 16 bytes as binary data; half as fast."""
SHALLOW: CodecOptions[RawBSONDocument] = LENIENT.with_options(document_class=RawBSONDocument)
"""Decodes the outer fields alone, so that a field which cannot be decoded does not hide the others."""


class Unreadable(dict[str, Any]):
    """A document that cannot be decoded: its `_id`, None where that cannot be read either, and why."""

    def __init__(self, identity: Any, reason: str) -> None:
        super().__init__(_id=identity)
        self.reason = reason


def decode_documents(documents: bytes) -> list[Document]:
    """Decode documents that stand one after the other; each on its own if one of them cannot be decoded."""
    try:
        return list(bson.decode_all(documents, PLAIN))
    except Exception:  # noqa: BLE001 - whatever it is, one document raised it
        return [decode_document(raw.raw) for raw in bson.decode_all(documents, SHALLOW)]


def decode_document(raw: bytes) -> Document:
    """Decode a document as far as it can be: whole, or its `_id` alone."""
    try:
        return bson.decode(raw, LENIENT)
    except Exception as error:  # noqa: BLE001 - it is the document's
        return Unreadable(_identity(raw), f"it cannot be decoded: {describe(error)}")


def decode_outer_fields(raw: bytes) -> dict[str, Any]:
    """Decode a document, and each document that one of its fields holds as far as that can be."""
    return {
        name: decode_document(value.raw) if isinstance(value, RawBSONDocument) else value
        for name, value in RawBSONDocument(raw, SHALLOW).items()
    }


def _identity(raw: bytes) -> Any:
    try:
        return decode_outer_fields(raw).get("_id")
    except Exception:  # noqa: BLE001 - as above
        return None
