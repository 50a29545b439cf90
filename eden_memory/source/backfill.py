"""Read messages older than the stream: at a first start, after a lost position, after a corrected mapping.

All three read the collection in (created_at, _id) order. The backfill of a first start publishes everything, and
resumes where it stopped. The merge after a lost position publishes only what differs from the topic, and ends
messages that lost their document. What the topic holds of a million messages does not fit into a tailer's memory, so
it goes to a temporary SQLite database, whose file has no name once it is opened: nothing is left of it.

The inbox is a phase of its own (invariant request-after-messages): once a request is published, no page is read any
more, and what the pages lack comes with the stream, at its own version.

A document of the inbox requests reading again, and stays until all of it is done. If the leader dies in between, the
next one compares anew and publishes what still differs.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import orjson
from aiokafka.errors import KafkaError

from eden_memory import metrics
from eden_memory.directory.listed_messages import BETWEEN
from eden_memory.errors import describe
from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Outgoing, Record
from eden_memory.kafka.topic_reading import reading
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.changes import PART, Document, DocumentPage, RereadRequest, SourceFailed
from eden_memory.schemas.events.chat import AGENT_SIDE, rules_of
from eden_memory.schemas.ids import encode, split
from eden_memory.source.leader import Leader, PublishFailed
from eden_memory.source.listed_source import Expanded
from eden_memory.source.message_mapping import TOPIC, Origin, Reason
from eden_memory.source.messages_store import MappingVersions
from eden_memory.source.position_store import RereadOutcome, TailerPosition
from eden_memory.source.source_mapping import TAILER, Mapped
from eden_memory.stages.publishing import partition_for

log = LibraryLogger("eden.tailer")


WATERMARKS = b"watermark:"
ENDED = b"-"
"""The digest of a tombstone."""
UNREADABLE = b"?"
"""The digest of a record that cannot be read."""
CONTENT = ("message_id", "session_id", "role", "user_id", "text", "characters", "truncated", "created_at")
"""Fields of a MessageRecorded that decide whether a message changed; what an older record lacks counts as null."""
ERASED = frozenset({b"forgotten", b"opted_out"})
"""Reasons of tombstones after which nothing is kept of a message, though its document stays."""
FORMATION_TRIGGER = "formation-trigger"
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
        names the stage. So does the record of a message that was written again: it does not count.
        """
        rows = self._database.execute(
            "SELECT source, count(DISTINCT key) FROM known WHERE NOT (seen IS ? OR committed IS ?) AND source <> ? "
            "GROUP BY source",
            (ENDED, ENDED, FORMATION_TRIGGER),
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

    def listed_in(self, document: str) -> list[tuple[str, bool]]:
        """Return the names of the messages that a document (its typed id) listed, and whether each was forgotten."""
        begins = encode(f"{document}{BETWEEN}").encode()
        rows = self._database.execute(
            "SELECT key, max(erased) FROM known WHERE key >= ? AND key < ? "
            "AND (erased OR NOT (seen IS ? AND committed IS ?)) GROUP BY key",
            (begins, begins + b"\xff", ENDED, ENDED),
        ).fetchall()
        return [(split(key.decode())[1].partition(BETWEEN)[2], bool(erased)) for key, erased in rows]

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


PROGRESS_SECONDS = 5.0


async def backfill(leader: Leader) -> None:
    """Publish every message of the collection, from where `position.page` says; ends in phase `inbox`."""
    position = leader.position
    progress = ReadProgress("backfill", await leader.source.messages.count(), position.read)
    async for page in pages_ahead(leader, position.page):
        await _publish_page(leader, page)
        position = replace(
            position, page=page.last, read=position.read + len(page.documents), version=page.version
        )
        await leader.advance(position)
        progress.report(position.read)
        if leader.stopping.is_set():
            return
    await _finish(leader, position, progress)


async def _publish_page(leader: Leader, page: DocumentPage) -> None:
    messages = await leader.messages_in(page)
    documents = messages.page.documents
    for start in range(0, len(documents), PART):
        part = page._replace(documents=documents[start : start + PART])
        if (since := leader.source.since) is not None:
            part = leader.mapping.created_since(part, since)
        await leader.publish(leader.mapping.map_page(part, "backfill"), page.time, "backfill", more=True)
    removed = Mapped()
    for document, version in messages.removed:
        leader.mapping.add_removed(removed, document, version, page.time)
    await leader.publish(removed, page.time, "backfill", more=True)
    await leader.publisher.ship()


async def merge(leader: Leader, known: Known) -> None:
    """Publish what is new or changed against `known`, end what is missing; ends in phase `inbox`.

    The position's version stays that of the merge's beginning. What is missing ended before it: a deletion
    since then comes with the stream, at a version of its own, above.
    """
    position = replace(leader.position, page=None, read=0)
    progress = ReadProgress("merge", await leader.source.messages.count(), 0)
    async for page in pages_ahead(leader, position.page):
        mapped = await differing(leader, known, await leader.messages_in(page, known.listed_in), "merge")
        await leader.publish(mapped, page.time, "merge")
        position = replace(position, read=position.read + len(page.documents))
        await leader.advance(position)
        progress.report(position.read)
        if leader.stopping.is_set():
            return
    await _end_missing(leader, known, position)
    await _finish(leader, replace(position, page=None), progress)


async def differing(leader: Leader, known: Known, messages: Expanded, origin: Origin) -> Mapped:
    """Map the messages of a page to records that differ from the topic, and tombstones where a message moved away.

    A forgotten message is not read again: its tombstone stays.
    """
    page = messages.page
    mapped = leader.mapping.map_page(page, origin)
    removed = (leader.mapping.key_of(document) for document, _ in messages.removed)
    mapped.deleted += filter(None, removed)
    mapped.records += [record for record in mapped.emptied if known.holds(record.key)]
    if origin == "reread":
        mapped.records[:] = [record for record in mapped.records if not known.erased(record.key)]
    count = await leader.publisher.partitions(TOPIC)
    partitions = [partition_for(record.ordering_key, count) for record in mapped.records]
    changed: list[Outgoing] = []
    for verdict in known.compare(mapped.records, partitions):
        if verdict is not None:
            record, elsewhere = verdict
            moved = [
                leader.mapping.tombstone(record.key, page.version, page.time, "moved", partition)
                for partition in elsewhere
            ]
            changed += [*moved, _dated(known, record) if origin == "reread" else record]
    refused = [leader.mapping.key_of(unmapped.document) for unmapped in mapped.unmapped]  # by dead letters
    mapped.records[:] = [
        *changed,
        *_ends(leader, known, page, mapped.deleted, "deleted"),
        *_ends(leader, known, page, filter(None, refused), "moved"),
    ]
    return mapped


def _dated(known: Known, record: Outgoing) -> Outgoing:
    """Add to the record of a message that is read again when its text was edited."""
    edited_at = known.edited_at(record.key)
    if edited_at is None or record.value is None:
        return record
    fields = {**orjson.loads(record.value), "edited_at": edited_at}
    return record._replace(value=orjson.dumps(fields))


def _ends(
    leader: Leader, known: Known, page: DocumentPage, keys: Iterable[bytes], reason: Reason
) -> list[Outgoing]:
    """Return tombstones for messages that are recorded no more, in every partition that holds one of them."""
    return [
        leader.mapping.tombstone(key, page.version, page.time, reason, partition)
        for key in keys
        for partition in known.meet(key)
    ]


async def _end_missing(leader: Leader, known: Known, position: TailerPosition) -> None:
    """Publish tombstones for messages that the topic holds and the collection, asked once more, does not."""
    now = await leader.source.changes.now()
    missing = 0
    for places in known.unmet():
        existing = await leader.existing([place.key.decode() for place in places])
        gone = [place for place in places if place.key.decode() not in existing]
        records = [
            leader.mapping.tombstone(place.key, position.version, now.time, "missing", place.partition)
            for place in gone
        ]
        await leader.publish(Mapped(records), now.time, "merge")
        missing += len(gone)
    metrics.TAILER_MISSING.inc(missing)
    if missing:
        log.error(
            "messages are missing from the collection; their records are ended, their memory stays",
            messages=missing,
            to_forget_it="eden forget --missing",
        )


async def _finish(leader: Leader, position: TailerPosition, progress: "ReadProgress") -> None:
    """Go over to the inbox; SourceFailed if the position cannot be saved, because then pages would be read again."""
    progress.report(position.read, finished=True)
    await leader.settle(replace(position, phase="inbox", page=None))
    if leader.saved is None or leader.saved.phase != "inbox":
        raise SourceFailed("the position behind the last page is not saved")


async def carry_inbox(leader: Leader) -> None:
    """Publish the inbox, behind every message, and go over to the stream, which finds requests to read again.

    The version of requests that are read together is taken after that: no message before a request has a higher one.
    """
    async with aclosing(leader.source.inbox.waiting()) as waiting:
        async for documents in waiting:
            now, mapped = await leader.source.changes.now(), Mapped()
            for document in documents:
                leader.mapping.add_request(mapped, document, now.version, now.time)
            await leader.publish(mapped, now.time, "inbox")
            await leader.advance(leader.position)
            if leader.stopping.is_set():
                return
    await leader.settle(replace(leader.position, phase="stream"))


async def pages_ahead(
    leader: Leader, after: Any, session: Any = None, documents: Sequence[Any] | None = None
) -> AsyncGenerator[DocumentPage, None]:
    """Yield pages of the collection (or of one session, or some documents), and fetch the next page meanwhile."""
    if leader.source.listed is not None and documents is not None:
        documents = leader.source.listed.documents_of(documents)
    async with aclosing(leader.source.messages.pages(after, session, documents)) as pages:
        coming = asyncio.ensure_future(anext(pages, None))
        try:
            while (page := await coming) is not None:
                coming = asyncio.ensure_future(anext(pages, None))
                await asyncio.sleep(0)
                await asyncio.sleep(0)  # as in following: until the next page has been asked for
                yield page
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


class ReadProgress:
    """Log every few seconds how many messages were read, how fast, and when all of them will be."""

    def __init__(self, what: str, total: int, read: int) -> None:
        self._what, self._total = what, total
        self._began, self._before = time.monotonic(), read
        self._reported = self._began
        metrics.TAILER_BACKFILL_TOTAL.set(total)
        log.info(f"{what} begins", messages=total, already_read=read)

    def report(self, read: int, *, finished: bool = False) -> None:
        """Report that so many messages are read so far."""
        metrics.TAILER_BACKFILL_READ.set(read)
        now = time.monotonic()
        if not finished and now - self._reported < PROGRESS_SECONDS:
            return
        self._reported = now
        rate = (read - self._before) / max(now - self._began, 0.001)
        left = max(self._total - read, 0)
        log.info(
            f"{self._what} finished" if finished else self._what,
            read=read,
            of=self._total,
            per_second=round(rate),
            eta_seconds=None if finished or not rate else round(left / rate),
        )


TOGETHER = 1_000


@dataclass(slots=True)
class _Counts:
    """How many messages a request has read, changed, refused, and accepted after an earlier refusal."""

    read: int = 0
    changed: int = 0
    refused: int = 0
    accepted: list[str] = field(default_factory=list[str])
    """Their dead letters."""


@dataclass(slots=True)
class MessageRereader:
    """Carry out requests to read messages again, one after the other; the stream waits, as it does for a merge."""

    leader: Leader
    topic: MessagesTopic
    versions: MappingVersions
    _waiting: dict[str, RereadRequest] = field(default_factory=dict[str, RereadRequest])
    _done: set[str] = field(default_factory=set[str])

    def request(self, rereads: Sequence[RereadRequest]) -> None:
        """Take requests; a request that is known already counts once."""
        for request in rereads:
            if request.request_id not in self._done:
                self._waiting.setdefault(request.request_id, request)

    async def run(self) -> None:
        """Carry out the requests; when told to stop, leave the rest to the next leader."""
        leader = self.leader
        while self._waiting and not leader.stopping.is_set():
            name, request = next(iter(self._waiting.items()))
            counts = await self._read(request)
            if counts is None:
                return
            outcome = RereadOutcome(
                name, counts.read, counts.changed, len(counts.accepted), counts.refused, request.everything
            )
            await leader.source.positions.note_reread(leader.epoch, outcome)
            self._done.add(name)
            del self._waiting[name]
            leader.erase_later([request.request])
            await leader.settle()
            log.info("messages were read again", **outcome.counts())

    async def _read(self, request: RereadRequest) -> _Counts | None:
        """Read the messages of a request; None when told to stop."""
        leader, counts = self.leader, _Counts()
        await leader.settle()  # so that the topic is read as it will stay
        async with known_messages(self.topic) as known:
            named = request.documents
            total = len(named) if named is not None else await leader.source.messages.count()
            progress, passed = ReadProgress("reading messages again", total, 0), 0
            held = (await leader.source.letters.count([TAILER]))[TAILER] > 0
            async for page in pages_ahead(leader, None, request.session, request.documents):
                passed += len(page.documents)
                selected = await leader.messages_in(page)
                if request.since is not None:
                    selected.keep(leader.mapping.created_since(selected.page, request.since).documents)
                await self._page(known, selected, counts, held=held)
                progress.report(passed)
                if leader.stopping.is_set():
                    return None
            progress.report(passed, finished=True)
        await leader.settle()
        for start in range(0, len(counts.accepted), TOGETHER):
            await leader.source.letters.settle(counts.accepted[start : start + TOGETHER], "published")
        return counts

    async def _page(self, known: Known, messages: Expanded, counts: _Counts, *, held: bool) -> None:
        """Publish what a page changes; `held`: whether any document has a letter that is open."""
        leader, page = self.leader, messages.page
        mapped = await differing(leader, known, messages, "reread")
        changed = [record for record in mapped.records if record.value is not None]
        counts.read += len(page.documents)
        counts.changed += len(changed)
        counts.refused += len(mapped.unmapped)
        if held:
            read = [*page.documents, *messages.documents]
            counts.accepted += await leader.source.letters.open_of(self._usable(read, mapped))
        await leader.publish(mapped, page.time, "reread")
        await self.versions.note(self._read_alike(page, mapped, changed))
        await leader.advance(leader.position)

    def _usable(self, documents: Sequence[Document], mapped: Mapped) -> set[str]:
        """Return the ids that letters of the documents have which this mapping can use."""
        of = partial(self.leader.mapping.letter_id, self.leader.mapping.collection)
        refused = {of(unmapped.document) for unmapped in mapped.unmapped}
        return {of(document) for document in documents} - refused

    def _read_alike(self, page: DocumentPage, mapped: Mapped, changed: Sequence[Outgoing]) -> list[str]:
        """Return the messages of a page that this mapping reads as they are recorded."""
        key_of = self.leader.mapping.key_of
        others = {record.key for record in changed}
        others |= {key for refused in mapped.unmapped if (key := key_of(refused.document)) is not None}
        keys = (key_of(document) for document in page.documents)
        return [key.decode() for key in keys if key is not None and key not in others]
