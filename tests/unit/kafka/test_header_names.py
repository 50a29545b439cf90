"""A header's name that is not UTF-8: the record and those around it are read, whatever aiokafka makes of it."""

from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record.memory_records import MemoryRecords

from eden_memory.kafka.header_names import read_all_names
from eden_memory.schemas.envelope import NAME_NOT_UTF8, VALUE_OF_NOT_UTF8, Envelope, EnvelopeError
from tests.poisoned import BAD, PLACE, Header, batch

RECORDS: list[tuple[bytes, bytes, list[Header]]] = [
    (b"a", b"1", [("ü", b"x")]),
    (b"b", b"2", [("before", b"y"), (PLACE, b"\xfe"), ("empty", None)]),
    (b"c", b"3", [(PLACE, None)]),
    (b"d", b"4", []),
]
READ = [
    (("ü", b"x"),),
    (("before", b"y"), (NAME_NOT_UTF8, BAD), (VALUE_OF_NOT_UTF8, b"\xfe"), ("empty", None)),
    ((NAME_NOT_UTF8, BAD), (VALUE_OF_NOT_UTF8, None)),
    (),
]

ENVELOPE = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"e1"),
    ("ce_type", b"eden.Asked.v1"),
    ("ce_source", b"test"),
    ("ce_time", b"2026-01-01T00:00:00Z"),
]


@pytest.fixture
def plain() -> Iterator[None]:
    """aiokafka's own classes, and those again afterwards that were there."""
    there = fetcher.MemoryRecords, fetcher.PartitionRecords
    module: Any = fetcher
    own = next(one for one in reversed(there[1].__mro__) if one.__name__ == "PartitionRecords")
    module.MemoryRecords, module.PartitionRecords = MemoryRecords, own
    yield
    module.MemoryRecords, module.PartitionRecords = there


def read(raw: bytes, first: int = 0) -> list[Any]:
    """What a consumer gets of a fetch that it asked for from an offset on."""
    module: Any = fetcher
    place = TopicPartition("t", 0)
    return list(module.PartitionRecords(place, module.MemoryRecords(raw), None, first, None, None, True, 0))


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("zipped", [False, True])
def test_every_record_of_the_batch_is_read_and_none_twice(*, zipped: bool) -> None:
    raw = batch(RECORDS, zipped=zipped)
    with pytest.raises(UnicodeDecodeError):
        read(raw)
    read_all_names()
    found = read(raw)
    assert [(one.offset, one.key, one.value, one.headers) for one in found] == [
        (place, key, value, headers)
        for place, ((key, value, _), headers) in enumerate(zip(RECORDS, READ, strict=True))
    ]
    assert [one.offset for one in read(raw, first=2)] == [2, 3]
    assert [one.offset for one in read(batch(RECORDS[:1]) + raw, first=0)] == [0, 1, 2, 3]


@pytest.mark.parametrize("headers", READ[1:3])
def test_such_a_record_is_refused_with_the_name(headers: tuple[Header, ...]) -> None:
    envelope = Envelope.of_headers(ENVELOPE)
    assert envelope.id == "e1"
    with pytest.raises(EnvelopeError, match=r"the name of a header is not UTF-8: b'bad\\xffname'"):
        Envelope.of_headers([*ENVELOPE, *headers])
