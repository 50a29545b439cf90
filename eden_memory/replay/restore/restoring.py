"""memory.formations, chat.messages → formation-trigger's state: as it would be had it handled these records.

    topics = load_topics(settings.kafka, source)              # the placement whose windows are taken
    restoring = Restoring(
        client=client_kwargs(settings.kafka, endpoints(settings).kafka),
        topics=topics,
        store=MongoRestored(database, target),                # Names: whose state is written
        limits=window_limits(settings),                       # eden_memory.assembly.handlers
        described=settings.sessions.collection is not None,
        texts=every_window,                                   # or no_window: without, as after 7 days
        selection=Selection(agent_id="s.a"),                  # default: all
        look_up=directory.look_up,                            # with texts: what participants are called now
    )
    restored = await restoring.run()
    ends = places_in(topics.topic_of(MessageRecorded), restored.chat_ends)
    await commit(admin_config(...), group, ends)              # a group without offsets goes on from there

The target's four collections have to be empty, or left by a run that was killed: what that wrote is removed and done
again. A run that was completed does nothing more and says what it did then. Recorded windows stand in `windows` with
their request and are in no outbox; windows that had closed unpublished are in their session's outbox, and the trigger
asks for them at the next watermark. Sessions that are not selected have no document at all.
Memory: about 100 MB whatever the number of messages (35 MB of its own for 200,000); they are gathered in a temporary
file, 1.3 kB each with texts of 300 characters.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from eden_memory.directory.participants import Missing, SessionFacts
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import TopicReader, reading
from eden_memory.kafka.topics import Topics
from eden_memory.replay.restore.restore_file import Gathered
from eden_memory.replay.restore.restore_reader import Taking, Texts
from eden_memory.replay.restore.restore_rules import Selection
from eden_memory.replay.restore.restore_writer import Giving
from eden_memory.replay.restore.restored import Part, Restored
from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events import REGISTRY, FormationRequested, MessageRecorded, SchemaViolation
from eden_memory.stages.publishing import partition_for
from eden_memory.windows.window_rule import Limits

log = structlog.get_logger()

SESSIONS = 500
"""Of which names are looked up together."""
EVERYTHING = Selection()

LookUp = Callable[[Sequence[str]], Awaitable[Mapping[str, SessionFacts | Missing]]]
"""Sessions → by session, what the application's documents say of it now."""


def every_window(asked: FormationRequested, partition: int, offset: int) -> bool:
    """All windows have their texts."""
    del asked, partition, offset
    return True


def no_window(asked: FormationRequested, partition: int, offset: int) -> bool:
    """No window has its texts, as after seven days."""
    del asked, partition, offset
    return False


async def nothing(sessions: Sequence[str]) -> Mapping[str, SessionFacts | Missing]:
    """The application is not asked."""
    del sessions
    return {}


class RestoredStore(Protocol):
    """Where the state is written."""

    async def begin(self) -> Mapping[str, Any] | None:
        """Make room; what an earlier, completed run said. EdenError where there is state of another origin."""
        ...

    async def write(self, part: Part) -> None:
        """Add documents that are not there."""
        ...

    async def finish(self, places: Mapping[int, int], told: Mapping[str, Any]) -> None:
        """Each partition's last place; then note that all is there."""
        ...


@dataclass(slots=True)
class Restoring:
    """One restoration (the module's docstring shows how it is made)."""

    client: dict[str, Any]
    topics: Topics
    store: RestoredStore
    limits: Limits
    described: bool
    """Whether documents of the application say who is in a session."""
    forgets: bool = True
    """Whether a deleted message's text is not to be used any more."""
    texts: Texts = no_window
    selection: Selection = EVERYTHING
    look_up: LookUp = nothing
    anew: bool = False
    """Whether windows whose messages an earlier field mapping read wrong are asked for anew."""
    shown: Callable[[int, int], None] = lambda _read, _whole: None
    """Told how many records have been read, and up to how many offsets there are."""
    restored: Restored = field(default_factory=Restored)

    async def run(self) -> Restored:
        """Restore, or say what was restored before."""
        if (before := await self.store.begin()) is not None:
            return Restored.of(before)
        gathered = Gathered()
        try:
            taking = Taking(gathered, self.selection, self.texts, self.forgets)
            await self._gather(taking)
            gathered.index()
            await self._give(
                Giving(gathered, self.limits, self.described, taking.passed, self.restored, self.anew)
            )
        finally:
            gathered.close()
        places = {partition: end for partition, end in self.restored.chat_ends.items() if end}
        await self.store.finish(places, self.restored.stored())
        return self.restored

    async def _gather(self, taking: Taking) -> None:
        """The ends of `memory.formations` are taken first: what its windows hold is then in `chat.messages`."""
        formations, chat = self.topics.topic_of(FormationRequested), self.topics.topic_of(MessageRecorded)
        async with reading(self.client, [formations]) as windows, reading(self.client, [chat]) as messages:
            self.restored.formation_ends, self.restored.chat_ends = _ends(windows), _ends(messages)
            whole = sum(windows.ends.values()) + sum(messages.ends.values())
            read = 0
            for source in (windows, messages):
                async for batch in source.batches():
                    taking.gathered.begin()
                    for record in batch:
                        self._take(taking, record, window=source is windows)
                    taking.gathered.end()
                    read += len(batch)
                    self.shown(read, whole)

    def _take(self, taking: Taking, record: Record, *, window: bool) -> None:
        place = record.partition, record.offset
        try:
            envelope = Envelope.of_headers(record.headers)
            event = record.value and REGISTRY.decode(envelope.name, envelope.version, record.value)
        except (EnvelopeError, SchemaViolation) as error:
            self.restored.unreadable += 1
            log.warning("record left out", topic=record.topic, place=place, reason=str(error)[:200])
            return
        if window:
            taking.window(event or None, envelope, record.value or b"", place)
        else:
            taking.chat(event or None, envelope, (record.key or b"").decode(), place)

    async def _give(self, giving: Giving) -> None:
        count = max(1, len(self.restored.chat_ends))
        async for sessions, said in self._looked_up(giving.gathered):
            for name in sessions:
                partition = partition_for(name.encode(), count)
                for part in giving.session(name, partition, said.get(name)):
                    await self._put(part)
        for part in giving.nowhere():
            await self._put(part)
        await self._put(giving.part)

    async def _looked_up(
        self, gathered: Gathered
    ) -> AsyncGenerator[tuple[list[str], Mapping[str, SessionFacts | Missing]]]:
        """All sessions, some at a time, with what the application says of them."""
        some: list[str] = []
        for name in gathered.sessions():
            some.append(name)
            if len(some) == SESSIONS:
                yield some, await self.look_up(some)
                some = []
        yield some, await self.look_up(some)

    async def _put(self, part: Part) -> None:
        await self.store.write(part)
        part.clear()


def _ends(source: TopicReader) -> dict[int, int]:
    return {tp.partition: end for tp, end in source.ends.items()}
