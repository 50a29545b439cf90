"""memory.formations, chat.messages → formation-trigger's state: as it would be had it handled these records.

The target's four collections have to be empty, or left by a run that was killed: what that wrote is removed and done
again. A run that was completed does nothing more and says what it did then. Recorded windows are in `windows` with
their request and are in no outbox; windows that had closed unpublished are in their session's outbox, and the trigger
asks for them at the next watermark.
Memory: about 100 MB whatever the number of messages (35 MB of its own for 200,000); they are kept in a temporary
file, 1.3 kB each with texts of 300 characters.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from eden_memory.directory.participants import Missing, SessionFacts
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import TopicReader, reading
from eden_memory.kafka.topics import Topics
from eden_memory.replay.restore.restore_file import RestoreFile
from eden_memory.replay.restore.restore_reader import RestoreReader, WantsTexts
from eden_memory.replay.restore.restore_writer import DocumentBatch, Restored, RestoreWriter
from eden_memory.replay.restore.restored_store import MongoRestored
from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events import REGISTRY, FormationRequested, MessageRecorded, SchemaViolation
from eden_memory.stages.publishing import partition_for
from eden_memory.windows.window_rule import Limits

log = structlog.get_logger()

SESSIONS = 500
"""Of which names are looked up together."""
LookUp = Callable[[Sequence[str]], Awaitable[Mapping[str, SessionFacts | Missing]]]
"""Sessions → by session, what the application's documents say of it now."""


@dataclass(slots=True)
class TriggerRestore:
    """One restoration of formation-trigger's state."""

    client: dict[str, Any]
    topics: Topics
    store: MongoRestored
    limits: Limits
    described: bool
    """Whether documents of the application say who is in a session."""
    texts: WantsTexts
    look_up: LookUp
    forgets: bool
    """Whether a deleted message's text is not to be used any more."""
    anew: bool = False
    """Whether windows whose messages an earlier field mapping read wrong are asked for anew."""
    shown: Callable[[int, int], None] = lambda _read, _whole: None
    """Gets the number of records read and of offsets there are."""
    restored: Restored = field(default_factory=Restored)

    async def run(self) -> Restored:
        """Restore, or say what was restored before."""
        if (before := await self.store.begin()) is not None:
            return Restored.of(before)
        file = RestoreFile()
        try:
            reader = RestoreReader(file, self.texts, self.forgets)
            await self._gather(reader)
            file.index()
            await self._give(
                RestoreWriter(file, self.limits, self.described, reader.passed, self.restored, self.anew)
            )
        finally:
            file.close()
        places = {partition: end for partition, end in self.restored.chat_ends.items() if end}
        await self.store.finish(places, self.restored.stored())
        return self.restored

    async def _gather(self, reader: RestoreReader) -> None:
        """The ends of `memory.formations` are taken first: what its windows hold is then in `chat.messages`."""
        formations, chat = self.topics.topic_of(FormationRequested), self.topics.topic_of(MessageRecorded)
        async with reading(self.client, [formations]) as windows, reading(self.client, [chat]) as messages:
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

    async def _give(self, writer: RestoreWriter) -> None:
        count = max(1, len(self.restored.chat_ends))
        async for sessions, said in self._looked_up(writer.file):
            for name in sessions:
                partition = partition_for(name.encode(), count)
                for part in writer.session(name, partition, said.get(name)):
                    await self._put(part)
        for part in writer.nowhere():
            await self._put(part)
        await self._put(writer.part)

    async def _looked_up(
        self, file: RestoreFile
    ) -> AsyncGenerator[tuple[list[str], Mapping[str, SessionFacts | Missing]]]:
        """All sessions, some at a time, with what the application says of them."""
        some: list[str] = []
        for name in file.sessions():
            some.append(name)
            if len(some) == SESSIONS:
                yield some, await self.look_up(some)
                some = []
        yield some, await self.look_up(some)

    async def _put(self, part: DocumentBatch) -> None:
        await self.store.write(part)
        part.clear()


def _ends(source: TopicReader) -> dict[int, int]:
    return {tp.partition: end for tp, end in source.ends.items()}
