"""Documents as no application should write them, and as MongoDB takes them."""

import base64
import struct
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from bson import (
    Binary,
    Code,
    DatetimeMS,
    DBRef,
    Decimal128,
    Int64,
    MaxKey,
    MinKey,
    ObjectId,
    Regex,
    Timestamp,
    encode,
)
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import BulkWriteError

from eden_memory.mongo.lenient_decoding import SHALLOW

FIELDS = ("session_id", "role", "content", "user_id", "created_at", "unmapped")
STANDARD: CodecOptions[dict[str, Any]] = CodecOptions(uuid_representation=4)


class Spelled(bytes):
    """A value in BSON's bytes, behind the byte of its type: what the driver would not write."""


def _text(value: bytes) -> bytes:
    return struct.pack("<i", len(value) + 1) + value + b"\x00"


def _nested(kind: type[list[Any]] | type[dict[str, Any]], depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value] if kind is list else {"a": value}
    return value


def deep_token() -> str:
    """A text that looks like a JSON Web Token whose payload is nested 2,000 deep."""
    header, payload = (
        base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in (b'{"alg":"none"}', b"[" * 2_000)
    )
    return f"my token is {header}.{payload}.c2lnbmVk"


BAD_UUID = Binary(b"short", 4)
VALUES: Mapping[str, Any] = {
    "no UUID at all": Binary(b"", 4),
    "a short UUID": BAD_UUID,
    "a long UUID": Binary(b"l" * 17, 4),
    "a UUID": UUID(int=7),
    "a short UUID of old": Binary(b"short", 3),
    "bytes": b"\x00\xff",
    "bytes of old": Binary(b"old", 2),
    "bytes of one's own": Binary(b"own", 128),
    "a vector of nothing": Binary(b"", 9),
    "a compressed column": Binary(b"\x00", 7),
    "a list of short UUIDs": [BAD_UUID, BAD_UUID],
    "a part beside a short UUID": [{"type": "text", "text": "said", "by": BAD_UUID}],
    "a short UUID within": {"a": {"b": BAD_UUID}},
    "the last date": DatetimeMS(2**63 - 1),
    "the first date": DatetimeMS(-(2**63)),
    "the year 10000": DatetimeMS(253_402_300_800_000),
    "a date": datetime(2026, 1, 2, tzinfo=UTC),
    "no number": float("nan"),
    "no end": float("inf"),
    "the least zero": -0.0,
    "the largest integer": Int64(2**63 - 1),
    "no decimal": Decimal128("NaN"),
    "a decimal": Decimal128("1E+6144"),
    "a fraction": 1.5,
    "a time of the oplog": Timestamp(2**32 - 1, 2**32 - 1),
    "the least key": MinKey(),
    "the largest key": MaxKey(),
    "a broken pattern": Regex("(", 0),
    "flags that none has": Spelled(b"\x0b(\x00zzq\x00"),
    "code": Code("x", {"by": BAD_UUID}),
    "a reference": DBRef("c", 1, "d"),
    "a reference to a number": {"$ref": 5, "$id": 5},
    "a reference to a short UUID": DBRef("c", BAD_UUID),
    "undefined": Spelled(b"\x06"),
    "a symbol": Spelled(b"\x0e" + _text(b"symbol")),
    "a pointer": Spelled(b"\x0c" + _text(b"c") + b"x" * 12),
    "null": None,
    "true": True,
    "no text": "",
    "no list": [],
    "no object": {},
    "an object id": ObjectId(),
    "deep lists": _nested(list, 150),
    "deep objects": _nested(dict, 150),
    "what is not UTF-8": Spelled(b"\x02" + _text(b"a\xff\xfe")),
    "lone surrogates": Spelled(b"\x02" + _text(b"a\xed\xa0\x80b")),
    "a name that is not UTF-8": Spelled(
        b"\x03" + struct.pack("<i", 13) + b"\x08\xff\x00\x01" + b"\x08b\x00\x01\x00"
    ),
    "a NUL": "a\x00b",
    "names of operators": {"$where": "1", "a.b": 1, "": 2},
    "a deep token": deep_token(),
    "deep JSON": "[" * 100_000,
    "marks of direction": "\u202e\u200f\ufeff\U000e0100",
    "a long text": "long " * 40_000,
    "many parts": [{"type": "text", "text": "part"}] * 2_000,
    "a text that is a list": ["one", 2, None, BAD_UUID, {"text": 5}],
}
WITHOUT_TEXT = frozenset(
    name
    for name, value in VALUES.items()
    if value is None
    or value in ("", [])
    or isinstance(value, dict)
    or name
    in ("undefined", "a list of short UUIDs", "deep lists", "marks of direction", "a name that is not UTF-8")
)
"""Of these, as a message's content, nothing is recorded: there is nothing to remember yet."""


def spelled(name: str, value: Any) -> bytes:
    """A field in BSON's bytes."""
    if isinstance(value, Spelled):
        return value[:1] + name.encode() + b"\x00" + value[1:]
    return encode({name: value}, codec_options=STANDARD)[4:-1]


def raw(fields: Mapping[str, Any]) -> RawBSONDocument:
    """A document, its fields as they are spelled."""
    elements = b"".join(spelled(name, value) for name, value in fields.items())
    return RawBSONDocument(struct.pack("<i", len(elements) + 5) + elements + b"\x00", SHALLOW)


def odd_fields(first: int) -> Iterator[tuple[int, str, str, RawBSONDocument]]:
    """Messages with one odd value each, in every field: id, field, what it is, document."""
    number = first
    for field in FIELDS:
        for name, value in VALUES.items():
            whole = {"_id": number, "session_id": f"s{number}", "role": "user", "content": f"text {number}"}
            yield number, field, name, raw({**whole, "user_id": "ann", "created_at": None, field: value})
            number += 1


def odd_ids() -> Iterator[RawBSONDocument]:
    """Messages with an odd id each; the server refuses some."""
    for name, value in VALUES.items():
        yield raw({"_id": value, "session_id": f"id {name}", "role": "user", "content": name})


def large() -> Iterator[RawBSONDocument]:
    """Messages of nearly 16 MB, each in another way."""
    most = 16 * 1024 * 1024 - 1_000
    whole = {"role": "user", "user_id": "ann", "session_id": "large"}
    yield raw({"_id": "large 1", **whole, "content": "x" * most})
    yield raw({"_id": "large 2", **whole, "content": [{"type": "text", "text": "y"}] * 350_000})
    yield raw({"_id": "large 3", **whole, "content": "small", "unmapped": b"z" * most})
    yield raw({"_id": "large 4", **whole, "content": {"z" * most: 1}})
    yield raw({"_id": "large 5", **whole, "content": "small", "user_id": "u" * most})
    yield raw({"_id": "l" * 1_000_000, **whole, "content": "small"})


async def written(collection: Any, documents: list[RawBSONDocument]) -> set[int]:
    """Write documents; return the indexes of those that the server took."""
    refused: set[int] = set()
    for start in range(0, len(documents), 20):
        try:
            await collection.insert_many(documents[start : start + 20], ordered=False)
        except BulkWriteError as error:
            refused |= {start + one["index"] for one in error.details["writeErrors"]}
    return set(range(len(documents))) - refused
