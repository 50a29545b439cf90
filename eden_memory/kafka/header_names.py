"""Records with a header's name that is not UTF-8: read like all others, and marked so that they are refused.

A broker takes any bytes for a name. aiokafka (0.14) raises a UnicodeDecodeError for the batch that holds one, at
every fetch, and nothing behind it is ever read. Here such a batch is read anew with aiokafka's reader in Python: name
and value of such a header become two of their own, and schemas.envelope refuses the record that has them.
"""
# What is taken of aiokafka is private, and untyped where it is compiled: tests hold it to what is relied upon.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedBaseClass=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, SupportsIndex

import aiokafka
from aiokafka.consumer import fetcher
from aiokafka.record import default_records, memory_records

from eden_memory.schemas.envelope import NAME_NOT_UTF8, VALUE_OF_NOT_UTF8

Pair = tuple[str, bytes | None]
_plain: Any = default_records.__dict__["_DefaultRecordBatchPy"]
_slices: Any = memory_records.__dict__["_MemoryRecordsPy"]
_fetched: Any = memory_records.MemoryRecords
_unpacked: Any = fetcher.PartitionRecords


NEEDED = aiokafka.__version__.startswith("0.14.")
"""A test fails once aiokafka can read such records by itself."""


def read_all_names() -> None:
    """Make aiokafka's consumers in this process read such records from now on."""
    if not NEEDED:
        return
    fetcher.MemoryRecords = _Fetched
    fetcher.PartitionRecords = _Unpacked


class _Fetched(_fetched):
    """The records fetched of a partition, and their bytes."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self.raw = raw


class _Unpacked(_unpacked):
    """The records of a fetch; from the first batch on that aiokafka cannot read, the reader in Python takes over."""

    def _unpack_records(self) -> Iterator[Any]:
        try:
            yield from super()._unpack_records()
            return
        except UnicodeDecodeError:
            self._records = _Again(self._records.raw, self.next_fetch_offset)
        yield from super()._unpack_records()


class _Again:
    """The batches of a fetch that hold records from an offset on."""

    def __init__(self, raw: bytes, first: int) -> None:
        self._batches: list[_Batch] = []
        slices = _slices(raw)
        while slices.has_next():
            batch = _Batch(slices._next_slice)
            slices.next_batch()
            if batch.next_offset > first:
                self._batches.append(batch)
        self._batches.reverse()

    def has_next(self) -> bool:
        """Whether there is another record."""
        return bool(self._batches)

    def next_batch(self) -> "_Batch":
        """Return the next record."""
        return self._batches.pop()


class _Batch(_plain):
    """One batch, whatever the names of its headers are."""

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        self._buffer = _Bytes(self._buffer)

    def __next__(self) -> Any:
        record: Any = super().__next__()
        return replace(record, headers=[pair for header in record.headers for pair in _readable(header)])


class _Bytes(bytearray):
    """Bytes whose slices always decode to text; the original bytes can be recovered from it."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        found = super().__getitem__(at)
        return _Bytes(found) if isinstance(found, bytearray) else found

    def decode(self, encoding: str = "utf-8", errors: str = "surrogateescape") -> str:
        return super().decode(encoding, errors)


def _readable(header: Pair) -> tuple[Pair, ...]:
    """Return the header, or two headers with text names in its place."""
    name, value = header
    raw = name.encode(errors="surrogateescape")
    try:
        raw.decode()
    except UnicodeDecodeError:
        return (NAME_NOT_UTF8, raw), (VALUE_OF_NOT_UTF8, value)
    return (header,)
