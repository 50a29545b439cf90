"""Read what `chat.messages` holds of every message, once, before a merge or a reading again.

A million messages do not fit into the memory that a tailer may use, so they go to a temporary database. SQLite
removes its file's name as soon as it opens it, so nothing is left however the process ends.
"""

import sqlite3
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from hashlib import blake2b
from typing import Literal, NamedTuple

import orjson
from aiokafka.errors import KafkaError

from eden_memory.errors import describe
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.outgoing import Outgoing
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import reading
from eden_memory.schemas.events.chat import AGENT_SIDE, rules_of
from eden_memory.source.chat_topics import PublishFailed

WATERMARKS = b"watermark:"
ENDED = b"-"
"""The digest of a tombstone."""
UNREADABLE = b"?"
"""The digest of a record that cannot be read."""
CONTENT = ("message_id", "session_id", "role", "user_id", "text", "characters", "truncated", "created_at")
"""Fields of a MessageRecorded that decide whether a message changed; what an older record lacks counts as null."""
ERASED = frozenset({b"forgotten", b"opted_out"})
"""Reasons of tombstones after which nothing is kept of a message, though its document stays."""
ADDED = b'"origin":"added"'
"""Within a text its quotes would be escaped."""

Row = tuple[bytes, int, str, bytes, bool, str | None]
"""Key, partition, source, digest, erased, edited at."""
Column = Literal["seen", "committed"]
COLUMNS: dict[Column, str] = {"seen": "read_uncommitted", "committed": "read_committed"}


class MessagesTopic(NamedTuple):
    """`chat.messages`: the connection arguments of aiokafka, and its whole name."""

    kafka: KafkaArguments
    name: str


class KnownPlace(NamedTuple):
    """A message that the topic holds, and the partition it stands in."""

    key: bytes
    partition: int


class Known:
    """The messages that the topic holds; committed records and those left behind uncommitted are told apart."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(
            """PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -16000;
            CREATE TABLE known (key BLOB, partition INT, source TEXT, seen BLOB, committed BLOB,
                                erased INT, edited TEXT,
                                met INT DEFAULT 0, PRIMARY KEY (key, partition)) WITHOUT ROWID;"""
        )

    def __len__(self) -> int:
        return int(self._database.execute("SELECT count(*) FROM known").fetchone()[0])

    def close(self) -> None:
        """Remove the database."""
        self._database.close()

    async def read(self, topic: MessagesTopic) -> None:
        """Read the whole topic, once as consumers see it and once as it was committed; KafkaError."""
        for column, isolation in COLUMNS.items():
            async with reading({**topic.kafka, "isolation_level": isolation}, [topic.name]) as reader:
                async for batch in reader.batches():
                    self.add(column, batch)

    def add(self, column: Column, records: Iterable[Record]) -> None:
        """Take in what was read at the isolation level of a column."""
        self._database.execute("BEGIN")
        self._database.executemany(
            f"INSERT INTO known (key, partition, source, {column}, erased, edited) "  # noqa: S608 - a constant
            "VALUES (?, ?, ?, ?, ?, ?) "
            f"ON CONFLICT DO UPDATE SET source = excluded.source, {column} = excluded.{column}, "
            "erased = excluded.erased, edited = excluded.edited",
            map(_row, filter(_is_message, records)),
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
async def known_messages(topic: MessagesTopic) -> AsyncGenerator[Known]:
    """Read the topic, and forget it behind the block; PublishFailed when the broker does not answer."""
    known = Known()
    try:
        try:
            await known.read(topic)
        except KafkaError as error:
            raise PublishFailed(f"Kafka, reading what the topic holds: {describe(error)}") from error
        yield known
    finally:
        known.close()


async def holds_any_record(topic: MessagesTopic) -> bool:
    """Tell whether the topic holds any record (markers of a fence are none); PublishFailed without an answer."""
    try:
        async with reading(topic.kafka, [topic.name]) as reader, aclosing(reader.batches()) as batches:
            return await anext(batches, None) is not None
    except KafkaError as error:
        raise PublishFailed(f"Kafka, looking whether the topic holds anything: {describe(error)}") from error


def digest_of(value: bytes | None) -> bytes:
    """Return a digest of a MessageRecorded's content, without when and how it came.

    What the content means may depend on the mapping's rules: whether an answer's author takes part.
    """
    if value is None:
        return ENDED
    fields = orjson.loads(value)
    content = {name: fields.get(name) for name in CONTENT}
    if fields["user_id"] is not None and fields["role"] in AGENT_SIDE:
        content["rules"] = rules_of(fields.get("mapping"))
    return blake2b(orjson.dumps(content, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def _row(record: Record) -> Row:
    """Return what is known of a record; one that cannot be read differs from every document."""
    reason, source = _header(record, "ce_reason"), _header(record, "ce_source").decode(errors="replace")
    erased = record.value is None and reason in ERASED
    try:
        edited = orjson.loads(record.value).get("edited_at") if record.value else None
        return record.key or b"", record.partition, source, digest_of(record.value), erased, edited
    except Exception:  # noqa: BLE001 - whatever it is, this record raised it
        return record.key or b"", record.partition, source, UNREADABLE, erased, None


def _header(record: Record, wanted: str) -> bytes:
    return next((value or b"" for name, value in record.headers if name == wanted), b"")


def _is_message(record: Record) -> bool:
    """Tell whether a record is of the messages collection: an added text has no document there."""
    if record.key is None or record.key.startswith(WATERMARKS) or not record.key.isascii():
        return False
    if not _header(record, "ce_type").startswith(b"eden.MessageRecorded."):
        return False
    return record.value is None or ADDED not in record.value
