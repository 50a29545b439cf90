"""Decode documents of which some cannot be read: one bad field leaves the others, one bad document is counted and
named.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any, TypeVar, cast

import bson
from bson import Decimal128
from bson.binary import UUID_SUBTYPE, Binary, UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion, TypeDecoder, TypeRegistry
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.collection import AsyncCollection

from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import UNREADABLE
from eden_memory.mongo.changes import Document, Unreadable
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.names import span_id
from eden_memory.schemas.ids import NoId

UUID_BYTES = 16
PLAIN: CodecOptions[dict[str, Any]] = CodecOptions(
    tz_aware=False,
    uuid_representation=UuidRepresentation.STANDARD,
    unicode_decode_error_handler="replace",
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)


log = LibraryLogger()
T = TypeVar("T")
Row = Mapping[str, Any]
R = TypeVar("R", bound=Row)
EACH: CodecOptions[RawBSONDocument] = PLAIN.with_options(document_class=RawBSONDocument)
"""For collections of the application: a document's fields are decoded when they are read."""
OF_NOBODY = frozenset({"message", "fact", "reflection", "blob"})
"""Kinds of documents whose ids name no person; the ids of others are hashed in the log."""
MOST_NAMED = 1_000
_named = set[tuple[str, str]]()
"""Documents that the log has already named, so that it names each once."""


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


def readable(kind: str, rows: Iterable[R], read: Callable[[R], T]) -> Iterator[T]:
    """Yield what `read` makes of each row, once it is decoded; `kind` says what the documents are."""
    for row in rows:
        try:
            found = read(decoded(row) if isinstance(row, RawBSONDocument) else row)  # pyright: ignore
        except Exception as error:  # noqa: BLE001 - whatever it is, this document raised it
            leave_out(kind, row, error)
        else:
            yield found


def leave_out(kind: str, row: Row, error: Exception) -> None:
    """Count a document that cannot be read, and name it in the log."""
    UNREADABLE.labels(kind).inc()
    try:
        name = encode_id(row["_id"])
    except Exception:  # noqa: BLE001 - not even that can be read
        name = "unknown"
    if (kind, name) not in _named and len(_named) < MOST_NAMED:
        _named.add((kind, name))
        shown = name if kind in OF_NOBODY else span_id(name)
        log.warning("a document cannot be read and is left out", kind=kind, id=shown, reason=describe(error))


def decoded(row: RawBSONDocument) -> dict[str, Any]:
    """Return a document with all of its fields that can be decoded; times are naive."""
    return bson.decode(row.raw, LENIENT)  # pyright: ignore[reportUnknownMemberType]


async def found_document(kind: str, collection: AsyncCollection[Any], query: Row) -> dict[str, Any] | None:
    """Return the application's document that a query finds, if there is one and it can be read."""
    return next(iter(await found_documents(kind, collection, query, limit=1)), None)


async def found_documents(
    kind: str, collection: AsyncCollection[Any], query: Row, fields: Any = None, **options: Any
) -> list[dict[str, Any]]:
    """Return the documents of the application that a query finds."""
    each = collection.with_options(codec_options=EACH)
    return list(readable(kind, await each.find(query, fields, **options).to_list(), dict[str, Any]))


async def documents_by_id(
    collection: AsyncCollection[Any], typed_ids: Iterable[str], fields: Any = None
) -> dict[str, Row]:
    """Return documents of the application by typed id; those that cannot be decoded are Unreadable."""
    return {name: rows[-1] for name, rows in (await grouped_by_id(collection, typed_ids, fields)).items()}


async def grouped_by_id(
    collection: AsyncCollection[Any], typed_ids: Iterable[str], fields: Any = None, path: str = "_id"
) -> dict[str, list[Row]]:
    """Return documents of the application by the typed id at a path, those of one id in the order of their `_id`.

    MongoDB finds 5.0 for 5: a document has the id that it was asked for by.
    """
    names = {decode_id(typed_id): typed_id for typed_id in typed_ids}
    if not names:
        return {}
    plain, found = collection.with_options(codec_options=PLAIN), dict[str, list[Row]]()
    read, order = getter(path), None if path == "_id" else [("_id", 1)]
    async for batch in plain.find_raw_batches({path: {"$in": list(names)}}, fields, sort=order):
        for row in decode_documents(cast(bytes, batch)):
            identity = read(row)
            value = identity.to_decimal() if isinstance(identity, Decimal128) else identity
            with suppress(NoId, TypeError):  # a collation found another spelling
                found.setdefault(names.get(value) or encode_id(identity), []).append(row)
    return found
