"""Records of Kafka: as one came, and as one goes before anything of Kafka is known."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]
"""Kafka lets a header have no value; ours have one."""

OVERHEAD_BYTES = 300
"""Memory of a waiting record besides its bytes, roughly."""


EVERYWHERE = -1
"""As a partition: one copy to each partition of the topic."""
EVERYWHERE_ELSE = -2
"""As a partition: one copy to each partition but that of the ordering key."""


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


class Outgoing(NamedTuple):
    """`topic` without prefix; `value` None: a tombstone; `partition` None: by the ordering key."""

    topic: str
    key: bytes
    value: bytes | None
    headers: list[tuple[str, bytes]]
    ordering_key: bytes
    partition: int | None = None

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key) + len(self.value or b"") + headers
