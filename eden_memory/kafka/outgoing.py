"""A record on its way to Kafka, before anything of Kafka is known."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

from eden_memory.schemas.envelope import rfc3339

DEAD = ".dead"
"""Behind the name of a topic: that of its dead letters."""

DEAD_HEADERS = "__connect.errors."
"""Before the name of every header that says why a record is a dead letter."""
CUT = DEAD_HEADERS + "cut"
"""The header that says how many bytes the original of a dead letter had that is cut."""
ORIGINAL_KEY = DEAD_HEADERS + "key"
"""The header with the original's key: a dead letter has a key of its own, by which forgetting ends it."""
NULLS = DEAD_HEADERS + "nulls"
"""The header that says what of the original was null: a dead letter has a key and a value."""
ENDED = DEAD_HEADERS + "ended"
"""The header of a tombstone that ends a dead letter, with the reason."""
LEAST = 1_000
"""Bytes of an original that are not cut any further, but left out."""
EVERYWHERE = -1
"""As a partition: one copy to each partition of the topic."""
EVERYWHERE_ELSE = -2
"""As a partition: one copy to each partition but that of the ordering key."""


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


def why_dead(
    topic: str, error: str, reason: str, time: datetime, more: Mapping[str, str] | None = None
) -> list[tuple[str, bytes]]:
    """The headers of a dead letter of the tailer's: of what stood in no topic yet."""
    said = {
        "topic": topic,
        "partition": "-1",
        "offset": "-1",
        "stage": "tailer",
        "exception.class.name": error,
        "exception.message": reason,
        "attempts": "1",
        "time": rfc3339(time),
        **(more or {}),
    }
    return [(DEAD_HEADERS + name, value.encode()) for name, value in said.items()]


def refused(record: Outgoing, time: datetime) -> Outgoing:
    """The dead letter of a record that is too large for its topic."""
    reason = f"{record.topic} takes no record of {record.size} bytes"
    headers = [*record.headers, *why_dead(record.topic, "MessageSizeTooLargeError", reason, time)]
    return Outgoing(record.topic + DEAD, record.key, record.value, headers, record.key)


def cut_to(letter: Outgoing, size: int) -> Outgoing | None:
    """A dead letter with as much of the original as so many bytes have room for; None if they have room for none."""
    value = letter.value or b""
    headers = letter.headers
    if not any(name == CUT for name, _ in headers):
        headers = [*headers, (CUT, str(len(value)).encode())]
    bare = letter._replace(value=b"", headers=headers)
    room = size - bare.size
    return bare._replace(value=value[:room] if room >= LEAST else b"") if room >= 0 else None
