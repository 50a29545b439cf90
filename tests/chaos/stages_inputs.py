"""What is put in: questions of sixty sessions, and the chat of fifty more with edits, deletions and watermarks.

Every record is published until it is confirmed, so what was put in is known; a repeat may stand twice in its topic,
as an at-least-once source's does.
"""

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

from eden_memory.domain.outcome import StoredRecord
from eden_memory.runtime.stages.patience import until_done
from eden_memory.runtime.stages.publishing import Publisher, partition_for
from schemas.envelope import Envelope
from schemas.events import FormationAsked, MessageRecorded, SessionEnded, Watermark
from schemas.events.base import Event
from tests.chaos.stages_events import CALM_SESSIONS, PARTITIONS, fate, junk, question

CHAT = "chat.messages"
START = datetime(2026, 1, 5, 8, tzinfo=UTC)


class Questions:
    """Sessions that ask at their own pace; `pause` is the mean in seconds."""

    def __init__(self, seed: int, publisher: Publisher, *, sessions: int = 60, pause: float = 8.0) -> None:
        self._seed, self._publisher, self._pause = seed, publisher, pause
        self.asked: dict[str, int] = {f"q{number}": 0 for number in range(sessions)}
        """How many questions of each session are confirmed: numbers 0 to below that."""
        self.junk: set[str] = set()

    @property
    def keys(self) -> list[str]:
        """Of all questions."""
        return [f"{session}-{number}" for session, most in self.asked.items() for number in range(most)]

    @property
    def poisoned(self) -> set[str]:
        """Those that can never be answered."""
        return {key for key in self.keys if fate(self._seed, key).poison is not None}

    async def ask(self, over: asyncio.Event) -> None:
        """All sessions, until told to stop."""
        async with asyncio.TaskGroup() as group:
            for session in list(self.asked):
                group.create_task(self._ask(session, over))

    async def trickle(self, over: asyncio.Event) -> None:
        """Good questions now and then, until told to stop: they tell what always fails from an outage."""
        for number in count():
            if over.is_set():
                return
            for place in range(PARTITIONS):
                session = f"{CALM_SESSIONS}{placed(place)}"
                self.asked[session] = number + 1
                records = [replace(question(session, number), ordering_key=placed(place).encode())]
                await until_done(partial(self._publisher.publish, records))
            await asyncio.sleep(0.3)

    async def _ask(self, session: str, over: asyncio.Event) -> None:
        chance = random.Random(f"{self._seed}/{session}")
        for number in count():
            await asyncio.sleep(chance.expovariate(1 / self._pause))
            if over.is_set():
                return
            records = [question(session, number)] * (2 if chance.random() < 0.03 else 1)
            if chance.random() < 0.01:
                records.append(junk(session, number, START))
                self.junk.add(f"junk-{session}-{number}")
            await until_done(partial(self._publisher.publish, records))
            self.asked[session] = number + 1


@dataclass
class Message:
    """A chat message as it stands."""

    id: str
    session: str
    version: str
    deleted: bool = False


@dataclass
class Chat:
    """One writer for all sessions, so that a watermark can promise something; its clock runs fast."""

    seed: int
    publisher: Publisher
    topic: str = CHAT
    pause: float = 0.5
    per_tick: int = 10
    messages: dict[str, Message] = field(default_factory=dict[str, Message])
    order: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Ids per session, in the order of their first records."""
    edits: int = 0
    controls: int = 0
    deletions: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.seed}/chat")
        self._sessions = [f"s.c{number}" for number in range(50)]
        self._active = self._chance.sample(self._sessions, 15)
        self._now, self._counter = START, 0

    async def talk(self, over: asyncio.Event) -> None:
        """Until told to stop; then every session ends, and a last watermark says so."""
        for tick in count():
            if over.is_set():
                break
            await asyncio.sleep(self.pause)
            self._now += timedelta(seconds=self._chance.uniform(2, 40))
            records = [self._record() for _ in range(self.per_tick)]
            if tick % 6 == 5:
                self._active = self._chance.sample(self._sessions, 15)
                records += self._watermarks()
            await self._put(records)
        await self.farewell()

    async def farewell(self) -> None:
        """Every session ends: nothing may wait afterwards."""
        self._now += timedelta(seconds=1)
        records = [self._control(SessionEnded, session) for session in self._sessions]
        await self._put(records)
        await self.watermark()

    async def watermark(self) -> None:
        """Time passes, in every partition."""
        self._now += timedelta(hours=1)
        await self._put(self._watermarks())

    async def _put(self, records: list[StoredRecord]) -> None:
        await until_done(lambda: self.publisher.publish(records))

    def _record(self) -> StoredRecord:
        drawn = self._chance.random()
        session = self._chance.choice(self._active)
        own = [name for name in self.order[session][-6:] if not self.messages[name].deleted]
        if own and drawn < 0.10:
            self.edits += 1
            return self._message(self.messages[self._chance.choice(own)])
        if own and drawn < 0.13:
            self.deletions += 1
            return self._deletion(self.messages[self._chance.choice(own)])
        if drawn < 0.15:
            self.controls += 1
            return self._control(FormationAsked, session)
        return self._message(self._new(session))

    def _new(self, session: str) -> Message:
        message = Message(f"s.m{len(self.messages)}", session, "")
        self.messages[message.id] = message
        self.order[session].append(message.id)
        return message

    def _version(self) -> str:
        self._counter += 1
        return f"{int(self._now.timestamp()):08x}{self._counter:08x}"

    def _message(self, message: Message) -> StoredRecord:
        message.version = self._version()
        text = f"{message.id} at {message.version} " + "words " * self._chance.randint(2, 25)
        event = MessageRecorded(
            message_id=message.id,
            session_id=message.session,
            version=message.version,
            role="user",
            user_id="s.someone",
            text=text,
            characters=len(text),
            truncated=False,
            created_at=None,
            origin="stream",
        )
        return self._stored(event, f"{message.id}@{message.version}", message.session)

    def _deletion(self, message: Message) -> StoredRecord:
        message.deleted, message.version = True, self._version()
        envelope = Envelope(
            id=f"{message.id}@{message.version}",
            name="MessageRecorded",
            version=1,
            source="chaos",
            time=self._now,
            subject=message.id,
            ordering_key=message.session,
            entity_version=message.version,
            scope=message.session,
            reason="deleted",
        )
        place = message.session.encode()
        return StoredRecord(self.topic, place, message.id.encode(), None, tuple(envelope.headers()))

    def _control(self, kind: type[FormationAsked] | type[SessionEnded], session: str) -> StoredRecord:
        version = self._version()
        event = kind(inbox_id=f"s.i{version}", session_id=session, version=version, asked_by=None)
        return self._stored(event, event.inbox_id, session)

    def _watermarks(self) -> list[StoredRecord]:
        version = self._version()
        events = [
            Watermark(partition=number, time=self._now, version=version) for number in range(PARTITIONS)
        ]
        return [
            self._stored(one, f"{one.key()}@{version}", placed(number)) for number, one in enumerate(events)
        ]

    def _stored(self, event: Event, identity: str, place: str) -> StoredRecord:
        envelope = Envelope(
            identity, event.NAME, event.VERSION, "chaos", self._now, event.subject(), event.ordering_key()
        )
        headers = tuple(envelope.headers())
        return StoredRecord(self.topic, place.encode(), event.key().encode(), event.json_bytes(), headers)


def placed(partition: int) -> str:
    """A text that is hashed to this partition."""
    return next(name for name in map(str, count()) if partition_for(name.encode(), PARTITIONS) == partition)
