"""One record as it came from Kafka."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

Headers = tuple[tuple[str, bytes | None], ...]
"""Kafka lets a header have no value; ours have one."""

OVERHEAD_BYTES = 300
"""Memory of a waiting record besides its bytes, roughly."""


@dataclass(slots=True)
class Record:
    """An undecoded record; `headers` as Kafka has them, `timestamp` in milliseconds (the broker's)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int

    @property
    def size(self) -> int:
        """Approximate bytes that the record holds in memory."""
        return len(self.value or b"") + len(self.key or b"") + OVERHEAD_BYTES

    @property
    def fingerprint(self) -> str:
        """Names this record without reading it: its place, and a hash of its bytes (topics are made anew)."""
        digest = blake2b(digest_size=12)
        digest.update(repr((self.key, self.value, self.headers)).encode())
        return f"{self.topic}/{self.partition}@{self.offset}#{digest.hexdigest()}"

    @property
    def ordering_key(self) -> bytes:
        """The key whose records stay in order: header `ce_orderingkey`, else the record's key."""
        for name, value in self.headers:
            if name == "ce_orderingkey" and value is not None:
                return value
        return self.key or b""


def as_record(fetched: Any) -> Record:
    """Convert a record of aiokafka's."""
    return Record(
        fetched.topic,
        fetched.partition,
        fetched.offset,
        fetched.key,
        fetched.value,
        tuple(fetched.headers),
        fetched.timestamp,
    )
