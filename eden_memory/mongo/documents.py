"""Documents of memory to and from BSON: float32 vectors, money, dates; read back tolerantly; inserted in groups."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeVar, cast

import bson
from bson import Decimal128
from bson.binary import VECTOR_SUBTYPE, Binary
from bson.codec_options import CodecOptions
from bson.errors import InvalidDocument
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.errors import BulkWriteError, DocumentTooLarge, WriteConcernError, WriteError

from eden_memory.errors import describe
from eden_memory.mongo.refusals import DUPLICATE_KEY
from eden_memory.schemas.documents import Document
from eden_memory.schemas.fields import pack_vector

Row = dict[str, Any]
D = TypeVar("D", bound=Document)

FLOAT32_HEADER = b"\x27\x00"
"""Type float32, no padding, then the numbers in little-endian: what `pack_vector` makes."""
WITH_MONEY = ("call", "history")
"""Fields in which an amount may stand."""
HOLDS_MONEY = (dict, list, tuple, Decimal)
HOLDS_STORED_MONEY = (dict, list, Decimal128)
_AWARE, _NAIVE = CodecOptions[Row](tz_aware=True), CodecOptions[Row]()


def row_of(document: Document) -> Row:
    """Return an amount as MongoDB stores it."""
    row = document.stored()
    vector = row.get("embedding")
    if isinstance(vector, bytes):
        row["embedding"] = vector_of(vector)
    for name in WITH_MONEY:
        if row.get(name):
            row[name] = with_stored_money(row[name])
    return row


def document_of(kind: type[D], row: Mapping[str, Any]) -> D:
    """As it was stored; fields that are not known are left out, a ValidationError if one is not what it should be."""
    return kind.model_validate(_decoded(dict(row)), strict=False, extra="ignore")


def vector_of(packed: bytes) -> Binary:
    """A packed float32 vector as BSON's vector type."""
    return Binary(FLOAT32_HEADER + packed, VECTOR_SUBTYPE)


def packed_of(value: object) -> bytes | None:
    """The packed float32 numbers of a stored vector: of BSON's vector type, or a plain array of numbers."""
    if isinstance(value, Binary) and value.subtype == VECTOR_SUBTYPE:
        return value[len(FLOAT32_HEADER) :]
    if isinstance(value, list):
        return pack_vector(cast("list[float]", value))
    return None


def decoded_rows(documents: bytes) -> list[Row]:
    """Decode consecutive BSON documents; times are aware."""
    return bson.decode_all(documents, _AWARE)  # pyright: ignore[reportUnknownMemberType]


def quickly_decoded(documents: bytes) -> Iterator[Row]:
    """Yield consecutive BSON documents; times are naive UTC, which takes half as long."""
    return bson.decode_iter(documents, _NAIVE)  # pyright: ignore[reportUnknownMemberType]


def encoded_row(row: Row) -> bytes:
    """Return a row as BSON."""
    return bson.encode(row)


def with_stored_money(value: Any) -> Any:
    """Return a value with its amounts as MongoDB stores them."""
    if isinstance(value, dict):
        fields = cast("Row", value).items()
        return {
            key: with_stored_money(field) if isinstance(field, HOLDS_MONEY) else field
            for key, field in fields
        }
    if isinstance(value, list | tuple):
        return [with_stored_money(item) for item in cast("Sequence[Any]", value)]
    return Decimal128(value) if isinstance(value, Decimal) else value


def _decoded(row: Row) -> Row:
    if "embedding" in row:
        row["embedding"] = packed_of(row["embedding"])
    for name in WITH_MONEY:
        if row.get(name):
            row[name] = with_plain_money(row[name])
    return row


def with_plain_money(value: Any) -> Any:
    """Return a stored value with its amounts as decimals."""
    if isinstance(value, dict):
        fields = cast("Row", value).items()
        return {
            key: with_plain_money(field) if isinstance(field, HOLDS_STORED_MONEY) else field
            for key, field in fields
        }
    if isinstance(value, list):
        return [with_plain_money(item) for item in cast("list[Any]", value)]
    return value.to_decimal() if isinstance(value, Decimal128) else value


def stored(amount: Decimal) -> Decimal128:
    """Return an exact amount for a document or `$inc`."""
    return Decimal128(amount)


def plain(value: Any) -> Decimal:
    """As stored; nothing is 0, without the exponent that a zero may carry."""
    if value is None:
        return Decimal(0)
    amount = value.to_decimal() if isinstance(value, Decimal128) else Decimal(str(value))
    return amount or Decimal(0)


MOST_AT_ONCE = 500
_Waiting = tuple[Row, "asyncio.Future[str | None]"]


class GroupedInserts:
    """Groups only the round trip: each document is inserted, or not, on its own."""

    def __init__(self, collection: AsyncCollection[Row]) -> None:
        self._collection = collection
        self._waiting: list[_Waiting] = []
        self._sending: asyncio.Task[None] | None = None

    async def insert(self, document: Row) -> str | None:
        """Insert a document; if a unique key is taken, return that key. Other failures are raised."""
        return await self._begin(document)

    async def insert_all(self, documents: Sequence[Row]) -> list[bool]:
        """Insert them; which of them were: the others are to be inserted again, to see what is wrong."""
        done = await asyncio.gather(*map(self._begin, documents), return_exceptions=True)
        return [taken is None for taken in done]

    def _begin(self, document: Row) -> "asyncio.Future[str | None]":
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((document, future))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_all())
        return future

    async def _send_all(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            try:
                await self._send(group)
            except (InvalidDocument, DocumentTooLarge) as error:
                await self._send_alone(group, error)
            except Exception as error:  # noqa: BLE001 - handed to those who wait
                _refuse(group, error)

    async def _send_alone(self, group: Sequence[_Waiting], error: Exception) -> None:
        """A document that cannot be written refuses the whole group, so it is retried alone."""
        if len(group) == 1:
            _refuse(group, error)
            return
        for waiting in group:
            try:
                await self._send([waiting])
            except Exception as alone:  # noqa: BLE001 - handed to the task that waits
                _refuse([waiting], alone)

    async def _send(self, group: Sequence[_Waiting]) -> None:
        wrong: dict[int, Row] = {}
        try:
            await self._collection.insert_many([document for document, _ in group], ordered=False)
        except BulkWriteError as error:
            details: Any = error.details
            if details["writeConcernErrors"]:
                raise WriteConcernError(describe(error)) from error
            wrong = {detail["index"]: detail for detail in details["writeErrors"]}
        for index, (_, future) in enumerate(group):
            if not future.done():
                _settle(future, wrong.get(index))


def _settle(future: "asyncio.Future[str | None]", wrong: Row | None) -> None:
    if wrong is None:
        future.set_result(None)
    elif wrong["code"] == DUPLICATE_KEY:
        future.set_result(", ".join(wrong.get("keyPattern", ["a unique key"])))
    else:
        future.set_exception(WriteError(str(wrong["errmsg"]), wrong["code"], wrong))


def _refuse(group: Sequence[_Waiting], error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)
