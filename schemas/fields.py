"""The field types that events and stored documents share: moments, money, vectors, keys, word counts."""

import binascii
from array import array
from base64 import b64encode
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from sys import byteorder
from typing import Annotated

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    WithJsonSchema,
)

from eden_memory.schemas.described import DescribedModel
from eden_memory.schemas.envelope import rfc3339


class Part(DescribedModel):
    """A value inside an event or document: closed when written, immutable, no coercion between types."""

    model_config = ConfigDict(
        defer_build=True,  # a command builds only the types that it meets
        frozen=True,
        extra="forbid",
        strict=True,
        json_schema_serialization_defaults_required=True,
    )


def _to_the_millisecond(moment: datetime) -> datetime:
    over = moment.microsecond % 1000
    if over:
        moment = moment.replace(microsecond=moment.microsecond - over)
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


Moment = Annotated[
    AwareDatetime,
    AfterValidator(_to_the_millisecond),
    PlainSerializer(rfc3339, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2026-01-02T03:04:05.678Z"]}),
]
"""A time in UTC, cut to the millisecond; RFC 3339 in JSON."""


def _money(value: object) -> object:
    try:
        return Decimal(value) if isinstance(value, str) else value
    except InvalidOperation:
        raise ValueError("not a decimal number") from None


def _plain(amount: Decimal) -> str:
    return format(amount, "f")


Usd = Annotated[
    Decimal,
    BeforeValidator(_money),
    Field(ge=0, max_digits=24, decimal_places=12),
    PlainSerializer(_plain, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+(\.[0-9]{1,12})?$", "examples": ["0.000425"]}),
]
"""US dollars; a decimal string in JSON, so that sums hold to the cent in every language."""


def pack_vector(numbers: Iterable[float]) -> bytes:
    """Numbers as float32, little-endian: 4 bytes each, what BSON's float32 vectors hold too."""
    packed = array("f", numbers)
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_vector(packed: bytes) -> "array[float]":
    """The numbers of a packed vector."""
    numbers = array("f", packed)
    if byteorder == "big":
        numbers.byteswap()
    return numbers


def _packed(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return binascii.a2b_base64(value, strict_mode=True)
    except binascii.Error:
        raise ValueError("not base64") from None


def _whole_floats(packed: bytes) -> bytes:
    if not packed or len(packed) % 4:
        raise ValueError("a vector is a positive number of float32 values")
    return packed


def _base64(packed: bytes) -> str:
    return b64encode(packed).decode()


Vector = Annotated[
    bytes,
    BeforeValidator(_packed),
    AfterValidator(_whole_floats),
    PlainSerializer(_base64, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": r"^[A-Za-z0-9+/]+={0,2}$"}),
]
"""A packed float32 vector (:func:`pack_vector`); base64 in JSON."""

Bytes = Annotated[bytes, WithJsonSchema({"type": "string", "contentEncoding": "base64"})]

KeyText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.~%:/-]+$", max_length=4_096)]
"""An id that this program made: text without `@` and `#`, which join it with a version or a number."""

EventId = Annotated[str, StringConstraints(pattern=r"^[!-~]+$", max_length=8_192)]
"""The `ce_id` of an event: deterministic, printable ASCII."""

Count = Annotated[int, Field(ge=0)]
"""How many."""

Ordinal = Annotated[int, Field(ge=1)]
"""A number that counts from 1: versions, attempts, places in a row."""
