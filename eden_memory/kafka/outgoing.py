"""A record on its way to Kafka, before anything of Kafka is known."""

from typing import NamedTuple

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
