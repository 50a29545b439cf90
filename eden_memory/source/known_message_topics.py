"""Read what `chat.messages` holds of every message, once, before a merge or a reading again.

A million messages do not fit into the memory that a tailer may use, so they go to a temporary SQLite file.
"""

import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

import orjson
from aiokafka.errors import KafkaError

from eden_memory.error_text import describe
from eden_memory.kafka.connection import start
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.schemas.events.chat import AGENT_SIDE, rules_of
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
"""Make an aiokafka consumer of the whole topic for an isolation level: without a group, from the beginning."""


class KnownPlace(NamedTuple):
    """A message that the topic holds, and the partition it stands in."""

    key: bytes
    partition: int


class Known:
    """The messages that the topic holds; committed records and those left behind uncommitted are told apart."""

    def __init__(self) -> None:
        self._file = NamedTemporaryFile(prefix="eden-known-", suffix=".sqlite")  # noqa: SIM115 - closed in close()
        self._database = sqlite3.connect(self._file.name, isolation_level=None)
        self._database.executescript(
            """PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000;
            CREATE TABLE known (key BLOB, partition INT, source TEXT, seen BLOB, committed BLOB,
                                erased INT, edited TEXT,
                                met INT DEFAULT 0, PRIMARY KEY (key, partition)) WITHOUT ROWID;"""
        )

    def __len__(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM known").fetchone()[0])

    def close(self) -> None:
        """Remove the file."""
        self._database.close()
        self._file.close()

    async def read(self, consumers: Consumers) -> None:
        """Read the whole topic, once as consumers see it and once as it was committed; KafkaError."""
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

    def by_source(self) -> dict[str, int]:
        """Count the messages that the topic holds, by the source that their records name.

        A message that formation-trigger ends between both readings is ended in the second only; its tombstone
        names the stage.
        """
        rows = self._database.execute(
            "SELECT source, count(DISTINCT key) FROM known WHERE NOT (seen IS ? OR committed IS ?) GROUP BY source",
            (ENDED, ENDED),
        )
        return dict(rows.fetchall())

    def compare(
        self, records: Sequence[Outgoing], partitions: Sequence[int]
    ) -> list[tuple[Outgoing, list[int]] | None]:
        """Return, for each record, None if the topic holds it as it is; else the record, and the other partitions
        that still hold the message. Marks the messages as met.
        """
        self._database.execute("BEGIN")
        verdicts = [
            self._compare(record, partition) for record, partition in zip(records, partitions, strict=True)
        ]
        self._database.execute("COMMIT")
        return verdicts

    def _compare(self, record: Outgoing, partition: int) -> tuple[Outgoing, list[int]] | None:
        rows = self._database.execute(
            "SELECT partition, seen, committed FROM known WHERE key = ?", (record.key,)
        ).fetchall()
        self._database.execute("UPDATE known SET met = 1 WHERE key = ?", (record.key,))
        digest = digest_of(record.value)
        same = any(row == (partition, digest, digest) for row in rows)
        elsewhere = [row[0] for row in rows if row[0] != partition and not row[1] == row[2] == ENDED]
        return None if same and not elsewhere else (record, elsewhere)

    def holds(self, key: bytes) -> bool:
        """Tell whether the topic has any record of a message."""
        found = self._database.execute("SELECT 1 FROM known WHERE key = ? LIMIT 1", (key,)).fetchone()
        return found is not None

    def erased(self, key: bytes) -> bool:
        """Tell whether a message was forgotten, or left out because its session or author is switched off."""
        found = self._database.execute(
            "SELECT 1 FROM known WHERE key = ? AND erased LIMIT 1", (key,)
        ).fetchone()
        return found is not None

    def edited_at(self, key: bytes) -> str | None:
        """Return when the text of a message was changed last, as its record says."""
        query = "SELECT max(edited) FROM known WHERE key = ? AND NOT seen IS ?"
        return self._database.execute(query, (key, ENDED)).fetchone()[0]

    def meet(self, key: bytes) -> list[int]:
        """Return the partitions that hold a message; marks it as met."""
        rows = self._database.execute(
            "UPDATE known SET met = 1 WHERE key = ? RETURNING partition, seen, committed", (key,)
        ).fetchall()
        return [row[0] for row in rows if not row[1] == row[2] == ENDED]

    def unmet(self, size: int = 1_000) -> Iterator[list[KnownPlace]]:
        """Yield the messages that the topic holds and no document was met for."""
        rows = self._database.execute(
            "SELECT key, partition FROM known WHERE met = 0 AND NOT (seen IS ? AND committed IS ?)",
            (ENDED, ENDED),
        )
        while chunk := rows.fetchmany(size):
            yield [KnownPlace(bytes(key), int(partition)) for key, partition in chunk]


@asynccontextmanager
async def known_messages(consumers: Consumers) -> AsyncGenerator[Known]:
    """Read the topic, and remove the file behind the block; PublishFailed when the broker does not answer."""
    known = Known()
    try:
        try:
            await known.read(consumers)
        except KafkaError as error:
            raise PublishFailed(f"Kafka, reading what the topic holds: {describe(error)}") from error
        yield known
    finally:
        known.close()


async def holds_any_record(consumers: Consumers) -> bool:
    """Tell whether the topic holds any record (markers of a fence are none); PublishFailed without an answer."""
    consumer = consumers("read_uncommitted")
    try:
        await start(consumer)
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
            if await consumer.getmany(timeout_ms=500, max_records=1):
                return True
        return False
    except KafkaError as error:
        raise PublishFailed(f"Kafka, looking whether the topic holds anything: {describe(error)}") from error
    finally:
        await consumer.stop()


def digest_of(value: bytes | None) -> bytes:
    """Return a digest of a MessageRecorded's content, without when and how it came.

    What the content means may depend on the mapping's rules: whether an answer's author takes part.
    """
    if value is None:
        return ENDED
    fields = orjson.loads(value)
    if fields["user_id"] is not None and fields["role"] in AGENT_SIDE:
        fields["rules"] = rules_of(fields.get("mapping"))
    for name in NOT_CONTENT:
        fields.pop(name, None)
    return blake2b(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


async def _rows(consumer: Any) -> AsyncIterator[list[tuple[bytes, int, str, bytes, bool, str | None]]]:
    """Yield batches of (key, partition, source, digest, erased, edited at) of all message records up to now."""
    try:
        await start(consumer)
        ends = await consumer.end_offsets(consumer.assignment())
        while any([await consumer.position(partition) < end for partition, end in ends.items()]):
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
    """Tell whether a record is of the messages collection: an added text has no document there."""
    if record.key is None or record.key.startswith(WATERMARKS):
        return False
    types = [value for name, value in record.headers if name == "ce_type"]
    if not types or not types[0].startswith(b"eden.MessageRecorded."):
        return False
    return record.value is None or ADDED not in record.value
