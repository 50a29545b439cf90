"""What `chat.messages` already knows of every message: read once, before a merge, into a file beside memory.

A million messages would not fit into the memory that a tailer may use, so they go to a temporary SQLite file.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from hashlib import blake2b
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import orjson
from aiokafka.errors import KafkaError

from eden_memory.error_text import describe
from eden_memory.kafka.connection import start
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.source.chat_topics import PublishFailed

WATERMARKS = b"watermark:"
ENDED = b"-"
"""The digest of a tombstone."""
NOT_CONTENT = ("version", "origin", "mapping", "edited_at")
ERASED = frozenset({b"forgotten", b"opted_out"})
"""Reasons of tombstones after which nothing is kept of a message, though its document stays."""
ADDED = b'"origin":"added"'
"""Within a text its quotes would be escaped."""

Consumers = Callable[[str], Any]
"""isolation level → an aiokafka consumer of the whole topic, without a group, from its beginning."""


class Place(NamedTuple):
    """A message that the topic holds, and the partition it stands in."""

    key: bytes
    partition: int


class Known:
    """Messages of the topic: what a leader committed, and what one left behind uncommitted, told apart."""

    def __init__(self) -> None:
        self._file = NamedTemporaryFile(prefix="eden-known-", suffix=".sqlite")  # noqa: SIM115 - closed in close()
        self._database = sqlite3.connect(self._file.name, isolation_level=None)
        self._database.executescript(
            """PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000;
            CREATE TABLE known (key BLOB, partition INT, source TEXT, seen BLOB, committed BLOB,
                                erased INT, edited TEXT,
                                met INT DEFAULT 0, PRIMARY KEY (key, partition)) WITHOUT ROWID;"""
        )

    def close(self) -> None:
        """Remove the file."""
        self._database.close()
        self._file.close()

    async def read(self, consumers: Consumers) -> int:
        """Read the whole topic, once as consumers see it and once as it was committed; returns how many keys.

        PublishFailed when the broker does not answer.
        """
        try:
            return await self._read(consumers)
        except KafkaError as error:
            raise PublishFailed(f"Kafka, reading what the topic holds: {describe(error)}") from error

    async def _read(self, consumers: Consumers) -> int:
        for column, isolation in (("seen", "read_uncommitted"), ("committed", "read_committed")):
            async for rows in _rows(consumers(isolation)):
                self._database.execute("BEGIN")
                self._database.executemany(
                    f"INSERT INTO known (key, partition, source, {column}, erased, edited) "  # noqa: S608 - a constant
                    "VALUES (?, ?, ?, ?, ?, ?) "
                    f"ON CONFLICT DO UPDATE SET source = excluded.source, {column} = excluded.{column}, "
                    "erased = excluded.erased, edited = excluded.edited",
                    rows,
                )
                self._database.execute("COMMIT")
        return int(self._database.execute("SELECT count(*) FROM known").fetchone()[0])

    def by_source(self) -> dict[str, int]:
        """How many messages stand in the topic, by the source that their records name."""
        rows = self._database.execute(
            "SELECT source, count(DISTINCT key) FROM known WHERE NOT (seen IS ? AND committed IS ?) GROUP BY source",
            (ENDED, ENDED),
        )
        return dict(rows.fetchall())

    def compare(
        self, records: Sequence[Outgoing], partitions: Sequence[int]
    ) -> list[tuple[Outgoing, list[int]] | None]:
        """For each record of a document: None if the topic has it so; else the record, and the other partitions
        where the message still stands. Marks the messages as met.
        """
        self._database.execute("BEGIN")
        verdicts = [
            self._one(record, partition) for record, partition in zip(records, partitions, strict=True)
        ]
        self._database.execute("COMMIT")
        return verdicts

    def _one(self, record: Outgoing, partition: int) -> tuple[Outgoing, list[int]] | None:
        rows = self._database.execute(
            "SELECT partition, seen, committed FROM known WHERE key = ?", (record.key,)
        ).fetchall()
        self._database.execute("UPDATE known SET met = 1 WHERE key = ?", (record.key,))
        digest = digest_of(record.value)
        same = any(row == (partition, digest, digest) for row in rows)
        elsewhere = [row[0] for row in rows if row[0] != partition and not row[1] == row[2] == ENDED]
        return None if same and not elsewhere else (record, elsewhere)

    def holds(self, key: bytes) -> bool:
        """Whether the topic has any record of a message."""
        found = self._database.execute("SELECT 1 FROM known WHERE key = ? LIMIT 1", (key,)).fetchone()
        return found is not None

    def erased(self, key: bytes) -> bool:
        """Whether a message was forgotten, or left out because its session or author is switched off."""
        found = self._database.execute(
            "SELECT 1 FROM known WHERE key = ? AND erased LIMIT 1", (key,)
        ).fetchone()
        return found is not None

    def edited_at(self, key: bytes) -> str | None:
        """When the text of a message was changed last, as its record says."""
        query = "SELECT max(edited) FROM known WHERE key = ? AND NOT seen IS ?"
        return self._database.execute(query, (key, ENDED)).fetchone()[0]

    def meet(self, key: bytes) -> list[int]:
        """The partitions where a message stands; marks it as met."""
        rows = self._database.execute(
            "UPDATE known SET met = 1 WHERE key = ? RETURNING partition, seen, committed", (key,)
        ).fetchall()
        return [row[0] for row in rows if not row[1] == row[2] == ENDED]

    def unmet(self, size: int = 1_000) -> Iterator[list[Place]]:
        """Messages that the topic holds and no document was met for."""
        rows = self._database.execute(
            "SELECT key, partition FROM known WHERE met = 0 AND NOT (seen IS ? AND committed IS ?)",
            (ENDED, ENDED),
        )
        while chunk := rows.fetchmany(size):
            yield [Place(bytes(key), int(partition)) for key, partition in chunk]


def digest_of(value: bytes | None) -> bytes:
    """A digest of a MessageRecorded's content: what it says apart from when and how it came."""
    if value is None:
        return ENDED
    fields = orjson.loads(value)
    for name in NOT_CONTENT:
        fields.pop(name, None)
    return blake2b(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


async def _rows(consumer: Any) -> AsyncIterator[list[tuple[bytes, int, str, bytes, bool, str | None]]]:
    """Batches of (key, partition, source, digest, erased, edited at) of all message records up to the end now."""
    try:
        await start(consumer)
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(one) < end for one, end in ends.items()]):
            found = await consumer.getmany(timeout_ms=500, max_records=5_000)
            yield [
                (
                    record.key,
                    record.partition,
                    _header(record, "ce_source").decode(),
                    digest_of(record.value),
                    record.value is None and _header(record, "ce_reason") in ERASED,
                    record.value and orjson.loads(record.value).get("edited_at"),
                )
                for records in found.values()
                for record in records
                if _is_message(record)
            ]
    finally:
        await consumer.stop()


def _header(record: Any, wanted: str) -> bytes:
    return next((value for name, value in record.headers if name == wanted), b"")


def _is_message(record: Any) -> bool:
    """Whether it is of the messages collection: an added text has no document there."""
    if record.key is None or record.key.startswith(WATERMARKS):
        return False
    types = [value for name, value in record.headers if name == "ce_type"]
    if not types or not types[0].startswith(b"eden.MessageRecorded."):
        return False
    return record.value is None or ADDED not in record.value
