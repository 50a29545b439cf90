"""memory.formations, chat.messages → formation-trigger's state: as it would be had it handled these records.

The target's four collections have to be empty, or left by a run that was killed: what that wrote is removed and done
again. A run that was completed does nothing more and says what it did then. Recorded windows are in `windows` with
their request and are in no outbox; windows that had closed unpublished are in their session's outbox, and the trigger
asks for them at the next watermark.
Memory: about 100 MB whatever the number of messages (35 MB of its own for 200,000); they are kept in a temporary
file, 1.3 kB each with texts of 300 characters.
"""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from eden_memory.assembly.handlers import MongoClient
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import Missing, SessionFacts
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import TopicReader, reading
from eden_memory.kafka.topics import Topics
from eden_memory.local.servers import endpoints
from eden_memory.logs import LibraryLogger
from eden_memory.replay.restore.restore_file import RestoreFile
from eden_memory.replay.restore.restore_rules import (
    PlacedControl,
    WindowMember,
    after_record,
    after_tombstone,
    waits,
)
from eden_memory.replay.restore.restore_writer import DocumentBatch, Restored, RestoreWriter
from eden_memory.replay.restore.restored_store import MongoRestored
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events import (
    REGISTRY,
    Event,
    FormationAsked,
    FormationRequested,
    MessageRecorded,
    SchemaViolation,
    SessionEnded,
    Watermark,
)
from eden_memory.settings import Settings
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.publishing import partition_for
from eden_memory.windows.session_state import StoredMessage, corrects
from eden_memory.windows.trigger_batch import control_of
from eden_memory.windows.window_rule import window_limits

GONE = frozenset({"forgotten", "opted_out"})
"""Tombstones after which no text of a message is used any more; after a deletion none up to its version."""

WantsTexts = Callable[[FormationRequested], bool]
"""Tells whether a window is to have its texts."""
log = LibraryLogger()
SESSIONS = 500
"""Of which names are looked up together."""


@dataclass(slots=True)
class RestoreReader:
    """`forgets`: whether a deleted message's text is not to be used any more."""

    file: RestoreFile
    texts: WantsTexts
    forgets: bool
    passed: dict[int, datetime] = field(default_factory=dict[int, datetime])
    """By partition: everything up to then is recorded."""

    def window(self, asked: Event | None, envelope: Envelope, value: bytes) -> None:
        """Take in a record of `memory.formations`."""
        if isinstance(asked, FormationRequested):
            self.file.window(asked, value, envelope.traceparent, texts=self.texts(asked))

    def chat(self, event: Event | None, envelope: Envelope, key: str, place: tuple[int, int]) -> None:
        """A record of `chat.messages`."""
        partition, offset = place
        match event:
            case MessageRecorded():
                self._message(event, envelope.time, offset + 1)
            case FormationAsked(if_due=True):
                pass  # the trigger does not remember it; a window that it closed has its own record
            case SessionEnded() | FormationAsked():
                asked = PlacedControl(offset + 1, control_of(event, envelope.time))
                self.file.control(event.session_id, asked)
            case Watermark():
                self.passed[partition] = max(self.passed.get(partition, event.time), event.time)
            case None:
                self._tombstone(key, envelope, offset + 1)
            case _:
                pass

    def _message(self, event: MessageRecorded, time: datetime, place: int) -> None:
        member, known = self.file.member(event.message_id), self.file.known(event.message_id)
        after = after_record(known, member, event, time, place)
        if after is not None:
            self.file.put(after, place, waits=waits(after))
            if known is not None and member is None and event.origin != "reread":
                self._remember_author(known, after, place)
        if member is not None:
            self._tell(member, event, time, known)
            if event.version < member.version and event.session_id != member.session_id and event.participant:
                self.file.wrote(event.session_id, event.participant, place)  # before it moved to the window's

    def _tell(
        self, member: WindowMember, event: MessageRecorded, time: datetime, known: StoredMessage | None
    ) -> None:
        """Keep a message as its window saw it, or as near to it as there is.

        What was read again with a corrected field mapping counts in place of what the window saw.
        """
        before = self.file.told(event.message_id)
        corrected = event.version > member.version and (
            event.origin == "reread" or (before is not None and corrects(event, before))
        )
        exact = before is not None and before.version == member.version
        if event.version != member.version and exact and not corrected:
            return
        told = StoredMessage.of(event, time, known)
        told.misread = corrected or (before is not None and before.misread)
        shown = member.texts or member.explains
        self.file.text(event.message_id, told if shown else replace(told, text=None))

    def _remember_author(self, before: StoredMessage, after: StoredMessage, place: int) -> None:
        was, changed = before.participant, before.session_id != after.session_id
        changed = changed or was != after.participant
        if changed and before.session_id is not None and was is not None and not before.opted_out:
            self.file.wrote(before.session_id, was, place)

    def _tombstone(self, message_id: str, envelope: Envelope, place: int) -> None:
        known, member = self.file.known(message_id), self.file.member(message_id)
        after = after_tombstone(known, member, message_id, envelope)
        if after is not None:
            self.file.put(after, place, waits=waits(after))
        if member is not None and self._ends(envelope, member):
            self.file.text(message_id, None)

    def _ends(self, envelope: Envelope, member: WindowMember) -> bool:
        """Whether a tombstone takes the text of a message as its window saw it."""
        if envelope.reason == "deleted":
            return self.forgets and member.version <= (envelope.entity_version or "")
        return envelope.reason in GONE


@dataclass(slots=True)
class TriggerRestore:
    """One restoration of formation-trigger's state."""

    settings: Settings
    """Of the state's namespace."""
    mongo: MongoClient
    topics: Topics
    """Of what is read."""
    texts: WantsTexts
    anew: bool = False
    """Whether windows whose messages an earlier field mapping read wrong are asked for anew."""
    shown: Callable[[int, int], None] = lambda _read, _whole: None
    """Gets the number of records read and of offsets there are."""
    restored: Restored = field(default_factory=Restored)

    async def run(self) -> Restored:
        """Restore, or say what was restored before."""
        settings, described = self.settings, self.settings.sessions.collection is not None
        store = MongoRestored(self.mongo[settings.mongodb.database], settings.names)
        if (before := await store.begin()) is not None:
            return Restored.of(before)
        file = RestoreFile()
        try:
            reader = RestoreReader(file, self.texts, forgets=settings.messages.on_delete != "keep")
            await self._gather(reader)
            file.index()
            limits = window_limits(settings)
            writer = RestoreWriter(file, limits, described, reader.passed, self.restored, self.anew)
            await self._give(writer, store)
        finally:
            file.close()
        places = {partition: end for partition, end in self.restored.chat_ends.items() if end}
        await store.finish(places, self.restored.stored())
        return self.restored

    async def _gather(self, reader: RestoreReader) -> None:
        """The ends of `memory.formations` are taken first: what its windows hold is then in `chat.messages`."""
        kafka = client_kwargs(self.settings.kafka, endpoints(self.settings).kafka)
        formations, chat = self.topics.topic_of(FormationRequested), self.topics.topic_of(MessageRecorded)
        async with reading(kafka, [formations]) as windows, reading(kafka, [chat]) as messages:
            self.restored.formation_ends, self.restored.chat_ends = _ends(windows), _ends(messages)
            whole = sum(windows.ends.values()) + sum(messages.ends.values())
            read = 0
            for source in (windows, messages):
                async for batch in source.batches():
                    reader.file.begin()
                    for record in batch:
                        self._take(reader, record, window=source is windows)
                    reader.file.end()
                    read += len(batch)
                    self.shown(read, whole)

    def _take(self, reader: RestoreReader, record: Record, *, window: bool) -> None:
        place = record.partition, record.offset
        try:
            envelope = Envelope.of_headers(record.headers)
            event = record.value and REGISTRY.decode(envelope.name, envelope.version, record.value)
        except (EnvelopeError, SchemaViolation) as error:
            self.restored.unreadable += 1
            log.warning("record left out", topic=record.topic, place=place, reason=str(error)[:200])
            return
        if window:
            reader.window(event or None, envelope, record.value or b"")
        else:
            reader.chat(event or None, envelope, (record.key or b"").decode(), place)

    async def _give(self, writer: RestoreWriter, store: MongoRestored) -> None:
        used = await PartitionCounts(self.mongo[self.settings.mongodb.database], self.settings.names).used()
        count = used.get(self.topics.topic_of(MessageRecorded)) or max(1, len(self.restored.chat_ends))
        async for sessions, said in self._looked_up(writer.file):
            for name in sessions:
                partition = partition_for(name.encode(), count)
                for part in writer.session(name, partition, said.get(name)):
                    await _put(store, part)
        for part in writer.nowhere():
            await _put(store, part)
        await _put(store, writer.part)

    async def _looked_up(
        self, file: RestoreFile
    ) -> AsyncGenerator[tuple[Sequence[str], Mapping[str, SessionFacts | Missing]]]:
        """All sessions, some at a time, with what the application says of them."""
        settings = self.settings
        streams = self.mongo[settings.mongodb.database][settings.names[Stream.COLLECTION]]
        directory = MongoDirectory(self.mongo[settings.source_database], streams, settings)
        names = file.sessions()
        while some := list(islice(names, SESSIONS)):
            yield some, await directory.look_up(some)


async def _put(store: MongoRestored, part: DocumentBatch) -> None:
    await store.write(part)
    part.clear()


def _ends(source: TopicReader) -> dict[int, int]:
    return {tp.partition: end for tp, end in source.ends.items()}
