"""memory.formations, chat.messages → formation-trigger's state: recorded windows first, then the trigger itself.

1. The recorded windows are stored with their requests, and their messages as formed.
2. chat.messages is read for what its messages of windows say: authors, and texts where a window is to have them.
3. The real trigger reads chat.messages from the beginning and publishes nothing. It meets the recorded windows as its
   own; what waits behind them waits again, and windows that had closed unpublished are in their sessions' outboxes.

The four collections have to be empty, or left by a run that was killed: what that wrote is removed and done again.
A run that was completed does nothing more and says what it did then.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from pydantic import BaseModel

from eden_memory.assembly.handlers import Handlers, MongoClient
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import Directory, SessionFacts
from eden_memory.kafka.connection import client_kwargs
from eden_memory.kafka.record import Record
from eden_memory.kafka.topic_reading import TopicReader, reading
from eden_memory.kafka.topics import Topics
from eden_memory.local.servers import endpoints
from eden_memory.logs import LibraryLogger
from eden_memory.processors.formation_trigger import FormationTrigger
from eden_memory.replay.restore.restored_store import MongoRestored
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events import REGISTRY, FormationRequested, MessageRecorded, SchemaViolation
from eden_memory.schemas.provenance import MessageRef
from eden_memory.settings import Settings
from eden_memory.stages.codec import delivery
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.stages.publishing import partition_for
from eden_memory.stages.stage import Decision, Delivery
from eden_memory.windows.formation_requests import StoredWindow, TriggerStore, names_of, request, settle
from eden_memory.windows.session_state import AGAIN_A_DAY, Edit, Session, StoredMessage
from eden_memory.windows.trigger_store import MongoTriggerStore
from eden_memory.windows.window_rule import Closed, window_limits

WantsTexts = Callable[[FormationRequested], bool]
"""Tells whether a window is to have its texts."""
Write = Callable[
    [Iterable[StoredMessage], Iterable[Session], Iterable[StoredWindow], Iterable[StoredWindow]],
    Awaitable[None],
]
"""Stores messages, sessions, windows with texts and windows without in the place of what is there."""
GONE = frozenset({"forgotten", "opted_out"})
"""Tombstones after which no text of a message is used any more; after a deletion none up to its version."""
AGAIN_SECONDS = 1.0
log = LibraryLogger()


class Restored(BaseModel):
    """The figures of a restoration."""

    waiting: int = 0
    """Messages that wait for their window."""
    windows: int = 0
    """As recorded."""
    cut: int = 0
    """Windows that had closed, or would have, and were not published: the trigger asks for them next."""
    gone: int = 0
    """Messages of windows, wanted with text, of which there is none."""
    unreadable: int = 0
    chat_ends: dict[int, int] = {}
    """By partition, up to where `chat.messages` was taken: the offset behind the last record."""


@dataclass(slots=True)
class RecordedWindows:
    """Stores the recorded windows, and what chat.messages says of their messages.

    `forgets`: whether a deleted message's text is not to be used any more. `described`: sessions have documents.
    """

    store: TriggerStore
    write: Write
    directory: Directory
    wants_texts: WantsTexts
    forgets: bool
    described: bool
    partition_of: Callable[[str], int]
    explained: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict[str, list[str]](list))
    """Message → windows with texts that it explains."""
    misread: dict[str, None] = field(default_factory=dict[str, None])
    """Windows with texts of which a corrected field mapping has read messages again since."""
    count: int = 0

    async def take(self, recorded: Sequence[tuple[FormationRequested, bytes, str | None]]) -> None:
        """Store windows: each with the bytes of its request and its trace."""
        names = {asked.session_id for asked, *_ in recorded}
        sessions = await self.store.sessions(names, 0)
        known = await self.store.messages(ref.message_id for asked, *_ in recorded for ref in asked.messages)
        wanted = {asked.session_id for asked, *_ in recorded if self.wants_texts(asked)}
        facts = await self.directory.look_up(wanted) if wanted else {}
        windows: dict[str, StoredWindow] = {}
        erased: dict[str, StoredWindow] = {}
        for asked, value, trace in recorded:
            window = recorded_window(asked, value, trace)
            shown = asked.session_id in wanted and self.wants_texts(asked)
            if shown:
                window.before = tuple(unseen(ref, asked) for ref in asked.before)
                for ref in asked.before:
                    self.explained[ref.message_id].append(asked.formation_id)
                said = facts[asked.session_id]
                window.names = names_of(said, asked.participants) if isinstance(said, SessionFacts) else {}
            (windows if shown else erased).setdefault(asked.formation_id, window)
            follow(sessions[asked.session_id], asked, described=self.described)
            for message in window.messages:
                earlier = known.get(message.message_id)
                if earlier is None or earlier.version < message.version:
                    formed = replace(message, formation_id=asked.formation_id)
                    if earlier is not None and asked.closed_because == "edited":
                        times = (*earlier.formed_again, asked.closed_at)[-AGAIN_A_DAY:]
                        edit = Edit(message.version, earlier.version, earlier.formation_id)
                        formed = replace(formed, edit=edit, formed_again=times)
                    known[message.message_id] = formed
        for name, session in sessions.items():
            session.partition = self.partition_of(name)
        self.count += len(windows) + len(erased)
        await self.write(known.values(), sessions.values(), windows.values(), erased.values())

    async def describe(self, deliveries: Sequence[Delivery]) -> None:
        """Take in records of chat.messages, in their order."""
        known = await self.store.messages(first_id(found) for found in deliveries)
        formed = {name: message for name, message in known.items() if message.formation_id is not None}
        authored: defaultdict[str, list[str]] = defaultdict(list)
        excluded: dict[str, StoredMessage] = {}
        named = {message.formation_id or "" for message in formed.values()}
        named |= {window for found in deliveries for window in self.explained.get(first_id(found), ())}
        windows = await self.store.windows(named)
        for found in deliveries:
            key = first_id(found)
            event, member = found.event, formed.get(key)
            own = member.formation_id or "" if member is not None else ""
            shown_in = [windows[name] for name in (own, *self.explained.get(key, ())) if name in windows]
            if event is None:
                version = found.envelope.entity_version or ""
                if found.envelope.reason in GONE or (found.envelope.reason == "deleted" and self.forgets):
                    up_to = None if found.envelope.reason in GONE else version
                    for window in shown_in:
                        _show(window, found.key, None, up_to)
                if found.envelope.reason == "opted_out" and member is None:
                    excluded[found.key] = _excluded(known.get(found.key), found)
            elif isinstance(event, MessageRecorded) and member is not None:
                left = event.session_id != member.session_id and event.version > member.version
                if event.participant is not None and not left:  # nobody joins the session that it left for
                    authored[event.session_id].append(event.participant)
                corrected = bool(shown_in) and event.origin == "reread" and event.version > member.version
                told = replace(StoredMessage.of(event, found.envelope.time), message_id=key)
                for window in shown_in:
                    if corrected:
                        self.misread[window.formation_id] = None
                    _show(window, key, told, corrected=corrected)
                formed[key] = _described(member, told, corrected=corrected)
        sessions = await self.store.sessions(authored, 0)
        for name, session in sessions.items():
            session.partition = self.partition_of(name)
            for user in authored[name]:
                session.see(user)
        await self.write((*formed.values(), *excluded.values()), sessions.values(), windows.values(), ())

    async def ask_anew(self) -> None:
        """Write the requests again of windows that a corrected field mapping reads otherwise, as it reads them."""
        windows = await self.store.windows(self.misread)
        sessions = await self.store.sessions({window.session_id for window in windows.values()}, 0)
        facts = await self.directory.look_up(sessions)
        for window in sorted(windows.values(), key=lambda window: (window.session_id, window.seq)):
            session, said = sessions[window.session_id], facts[window.session_id]
            if isinstance(said, SessionFacts) and window.requested is not None:
                writing = await self.store.authors_among(session.session_id, session.users, ())
                session.users = tuple(user for user in session.users if user in writing)
                window.closed, window.before = replace(window.closed, users=session.users), ()
                request(window, session, said, window.requested.settings_version)
                settle(window)
        for name, session in sessions.items():
            session.partition = self.partition_of(name)
        await self.write((), sessions.values(), windows.values(), ())


def first_id(found: Delivery) -> str:
    """Return the id under which windows name the message of a record."""
    event = found.event
    return (event.first_id if isinstance(event, MessageRecorded) else None) or found.key


def recorded_window(asked: FormationRequested, value: bytes, trace: str | None) -> StoredWindow:
    """Return a window whose request is in the topic, without texts."""
    closed = Closed(
        (), asked.closed_because, asked.closed_at, asked.control_id, asked.asked_by, asked.participants
    )
    return StoredWindow(
        formation_id=asked.formation_id,
        session_id=asked.session_id,
        seq=asked.seq,
        messages=tuple(unseen(ref, asked) for ref in asked.messages),
        closed=closed,
        traceparent=trace,
        requested=asked,
        value=value,
        settled=True,
    )


def unseen(ref: MessageRef, asked: FormationRequested) -> StoredMessage:
    """Return a message of a window as long as nothing more is known of it."""
    return StoredMessage(
        message_id=ref.message_id,
        session_id=asked.session_id,
        version=ref.version,
        time=asked.closed_at,
        role="other",
        user_id=None,
        text=None,
        characters=0,
        truncated=False,
    )


def follow(session: Session, asked: FormationRequested, *, described: bool) -> None:
    """Let a session stand behind one of its windows."""
    session.seq = max(session.seq, asked.seq)
    session.audiences = session.audiences.behind(asked)
    if not described:  # where nothing else says so: the authors
        session.users = tuple(dict.fromkeys((*session.users, *asked.users)))
    if asked.control_id is not None and asked.control_id not in session.controls:
        session.controls = [*session.controls, asked.control_id]
    session.changed = True


def _show(
    window: StoredWindow,
    message_id: str,
    told: StoredMessage | None,
    up_to: str | None = None,
    *,
    corrected: bool = False,
) -> None:
    """Put the text of a message into a window, or take it out; what the window saw counts before other versions."""

    def shown(message: StoredMessage, *, exact: bool) -> StoredMessage:
        if message.message_id != message_id:
            return message
        if told is None:
            return message if up_to is not None and message.version > up_to else replace(message, text=None)
        if told.version == message.version or corrected or (message.text is None and not exact):
            return replace(told, version=message.version, session_id=window.session_id)
        return message

    window.messages = tuple(shown(message, exact=False) for message in window.messages)
    window.before = tuple(shown(message, exact=True) for message in window.before)


def _described(member: StoredMessage, told: StoredMessage, *, corrected: bool) -> StoredMessage:
    """Return a formed message with what one of its records says of it: that of its window before any other."""
    if corrected:
        return replace(
            told,
            session_id=member.session_id,
            text=None,
            formation_id=member.formation_id,
            changed_after_formation=True,
            edit=member.edit,
            formed_again=member.formed_again,
        )
    if told.version != member.version and (member.mapping is not None or member.characters):
        return member
    return replace(
        told,
        session_id=member.session_id,
        version=member.version,
        text=None,
        digest=told.digest if told.version == member.version else None,
        formation_id=member.formation_id,
        changed_after_formation=member.changed_after_formation,
        edit=member.edit,
        formed_again=member.formed_again,
    )


def _excluded(known: StoredMessage | None, ended: Delivery) -> StoredMessage:
    """Return a message that was recorded while its session or author was switched off: nothing of it is kept."""
    version = ended.envelope.entity_version or ""
    if known is not None and known.version > version:
        return known
    session_id, time = ended.envelope.scope, ended.envelope.time
    return StoredMessage(
        ended.key, session_id, version, time, "other", None, None, 0, truncated=False, opted_out=True
    )


async def run_silently(trigger: FormationTrigger, deliveries: Sequence[Delivery]) -> None:
    """Have the trigger process records of one partition; its outbox keeps what it would have published."""
    left = deliveries
    while left:
        decision = await trigger(left)
        if isinstance(decision, Decision):
            left = left[decision.covers :]
        else:
            await asyncio.sleep(AGAIN_SECONDS)


@dataclass(slots=True)
class TriggerRestore:
    """One restoration of formation-trigger's state."""

    settings: Settings
    """Of the state's namespace."""
    mongo: MongoClient
    topics: Topics
    """Of what is read."""
    wants_texts: WantsTexts
    anew: bool = False
    """Whether windows whose messages an earlier field mapping read wrong are asked for anew."""
    shown: Callable[[int, int], None] = lambda _read, _whole: None
    """Gets the number of records read and of offsets there are."""
    restored: Restored = field(default_factory=Restored)
    _unread: set[tuple[str, int, int]] = field(default_factory=set[tuple[str, int, int]])
    _read: int = 0
    _whole: int = 0

    async def run(self) -> Restored:
        """Restore, or say what was restored before."""
        settings = self.settings
        database = self.mongo[settings.mongodb.database]
        store = MongoRestored(database, settings.names)
        if (before := await store.begin()) is not None:
            return Restored.model_validate(before)
        chat = self.topics.topic_of(MessageRecorded)
        used = await PartitionCounts(database, settings.names).used()
        # the ends of memory.formations are taken first: what its windows hold is then in chat.messages
        async with (
            self._reading(self.topics.topic_of(FormationRequested)) as formations,
            self._reading(chat) as messages,
            self._reading(chat) as again,
        ):
            self.restored.chat_ends = {tp.partition: end for tp, end in messages.ends.items()}
            self._whole = sum(formations.ends.values()) + 2 * sum(messages.ends.values())
            partitions = used.get(chat) or max(1, len(messages.ends))
            windows = RecordedWindows(
                MongoTriggerStore(database, settings.names, window_limits(settings)),
                store.write,
                MongoDirectory(
                    self.mongo[settings.source_database],
                    database[settings.names[Stream.COLLECTION]],
                    settings,
                ),
                self.wants_texts,
                forgets=settings.messages.forgets,
                described=settings.sessions.collection is not None,
                partition_of=lambda session: partition_for(session.encode(), partitions),
            )
            await self._windows(formations, windows)
            async for found in self._deliveries(messages):
                await windows.describe(found)
            if self.anew:
                await windows.ask_anew()
            trigger = await Handlers(settings, self.mongo, is_live=False).formation_trigger()
            async for found in self._deliveries(again):
                for partition in dict.fromkeys(delivery.partition for delivery in found):
                    await run_silently(trigger, [one for one in found if one.partition == partition])
        self.restored.windows, self.restored.unreadable = windows.count, len(self._unread)
        counts = await store.count()
        self.restored.cut = counts.pop("windows") - windows.count
        self.restored = self.restored.model_copy(update=counts)
        await store.finish(self.restored.model_dump(mode="json"))
        return self.restored

    @asynccontextmanager
    async def _reading(self, topic: str) -> AsyncGenerator[TopicReader]:
        kafka = client_kwargs(self.settings.kafka, endpoints(self.settings).kafka)
        async with reading(kafka, [topic]) as source:
            yield source

    async def _windows(self, source: TopicReader, windows: RecordedWindows) -> None:
        async for batch in source.batches():
            found: list[tuple[FormationRequested, bytes, str | None]] = []
            for record in batch:
                read = self._delivery(record)
                if read is not None and isinstance(read.event, FormationRequested):
                    found.append((read.event, record.value or b"", read.envelope.traceparent))
            await windows.take(found)
            self._progress(len(batch))

    async def _deliveries(self, source: TopicReader) -> AsyncGenerator[list[Delivery]]:
        async for batch in source.batches():
            yield [read for record in batch if (read := self._delivery(record)) is not None]
            self._progress(len(batch))

    def _delivery(self, record: Record) -> Delivery | None:
        try:
            envelope = Envelope.of_headers(record.headers)
            return delivery(record, envelope, REGISTRY.decode, attempt=1, times=0)
        except (EnvelopeError, SchemaViolation) as error:
            place = record.topic, record.partition, record.offset
            self._unread.add(place)
            log.warning("record left out", place=place, reason=str(error)[:200])
            return None

    def _progress(self, more: int) -> None:
        self._read += more
        self.shown(self._read, self._whole)
