"""Batches of records as no client of ours writes them: a header's name is not UTF-8."""

import gzip
import time
from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

Header = tuple[str, bytes | None]
PLACE, GOOD, BAD = "bad?name", b"bad?name", b"bad\xffname"
"""The name that is written, and what it becomes."""
_LENGTH, _CRC, _ATTRIBUTES, _RECORDS = slice(8, 12), slice(17, 21), slice(21, 23), 61


def batch(records: Sequence[tuple[bytes, bytes, Sequence[Header]]], *, zipped: bool = False) -> bytes:
    """Records of key, value and headers in one batch; each header named PLACE is named BAD.

    They are of now: the broker's retention, which looks every few seconds, deletes older ones before they are read.
    """
    now = int(time.time() * 1_000)
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=0,
        batch_size=1_000_000,
    )
    for offset, (key, value, headers) in enumerate(records):
        assert builder.append(offset, now, key, value, list(headers)) is not None
    return _sealed(bytes(builder.build()).replace(GOOD, BAD), zipped=zipped)


def _sealed(written: bytes, *, zipped: bool) -> bytes:
    """With the length and the checksum of what it holds now."""
    raw = bytearray(written)
    if zipped:
        raw[_RECORDS:] = gzip.compress(raw[_RECORDS:])
        raw[_ATTRIBUTES] = (1).to_bytes(2)
        raw[_LENGTH] = (len(raw) - 12).to_bytes(4)
    raw[_CRC] = calc_crc32c(bytes(raw[21:])).to_bytes(4)
    return bytes(raw)
