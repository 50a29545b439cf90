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

from eden_memory.kafka.record import Outgoing
from eden_memory.mongo.changes import version_of
from eden_memory.schemas.envelope import Envelope, rfc3339
from eden_memory.schemas.events import FormationAsked, SessionEnded, Watermark
from eden_memory.schemas.events.base import Event
from eden_memory.source.message_mapping import FieldPaths, MessageMapping
from eden_memory.stages.outcome import StoredRecord
from eden_memory.stages.patience import until_done
from eden_memory.stages.publishing import Publisher, partition_for
from tests.chaos.stages_events import CALM_SESSIONS, PARTITIONS, fate, junk, question

CHAT = "chat.messages"
START = datetime(2026, 1, 5, 8, tzinfo=UTC)
MAPPING = MessageMapping(FieldPaths("session", "role", "text", "user", "at"), "chaos", str, text_limit=8_000)
"""The tailer's own, for ids that are typed already: what it never builds is no input."""


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
    sessions: set[str] = field(default_factory=set[str])
    """All that it has ever been in: a window of any of them may have it."""


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
    moves: int = 0
    transactions: int = 0

    def __post_init__(self) -> None:
        self._chance = random.Random(f"{self.seed}/chat")
        self._sessions = [f"s.c{number}" for number in range(50)]
        self._active = self._chance.sample(self._sessions, 15)
        self._now, self._counter = START, 0
        self._position: int | None = None
        """Among the changes of one cluster time: those of a transaction."""

    async def talk(self, over: asyncio.Event) -> None:
        """Until told to stop; then every session ends, and a last watermark says so."""
        for tick in count():
            if over.is_set():
                break
            await asyncio.sleep(self.pause)
            self._now += timedelta(seconds=self._chance.uniform(2, 40))
            records = [record for _ in range(self.per_tick) for record in self.records()]
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

    def records(self) -> list[StoredRecord]:
        """Of the next thing that happens."""
        drawn = self._chance.random()
        session = self._chance.choice(self._active)
        own = [name for name in self.order[session][-6:] if not self.messages[name].deleted]
        if own and drawn < 0.10:
            self.edits += 1
            return [self._message(self.messages[self._chance.choice(own)])]
        if own and drawn < 0.13:
            self.deletions += 1
            return [self._deletion(self.messages[self._chance.choice(own)])]
        if own and drawn < 0.18:
            self.moves += 1
            return self._move(self.messages[self._chance.choice(own)], self._elsewhere(session))
        if drawn < 0.20:
            self.controls += 1
            return [self._control(FormationAsked, session, if_due=self._chance.random() < 0.3)]
        if drawn < 0.32:
            return self._transaction(self._new(session))
        return [self._message(self._new(session))]

    def _transaction(self, message: Message) -> list[StoredRecord]:
        """Several changes of one new message at one cluster time; it stands after them."""
        self.transactions += 1
        self._counter, self._position = self._counter + 1, 0
        home, records = message.session, [self._message(message)]
        match self._chance.randrange(4):
            case 0:
                records += [self._message(message)]
            case 1:
                records += [self._deletion(message), self._message(message)]
            case 2:
                records += self._move(message, self._elsewhere(home))
            case _:
                records += [*self._move(message, self._elsewhere(home)), *self._move(message, home)]
        self._position = None
        return records

    def _elsewhere(self, session: str) -> str:
        """Another session; every second time one of the same partition."""
        others = [one for one in self._sessions if one != session]
        home = partition_for(session.encode(), PARTITIONS)
        beside = [one for one in others if partition_for(one.encode(), PARTITIONS) == home]
        return self._chance.choice(beside if beside and self._chance.random() < 0.5 else others)

    def _new(self, session: str) -> Message:
        message = Message(f"s.m{len(self.messages)}", session, "")
        self.messages[message.id] = message
        self.order[session].append(message.id)
        return message

    def _version(self) -> str:
        if self._position is None:
            self._counter += 1
            return version_of(int(self._now.timestamp()), self._counter)
        self._position += 1
        return version_of(int(self._now.timestamp()), self._counter, self._position - 1)

    def _message(self, message: Message) -> StoredRecord:
        message.version, message.deleted = self._version(), False
        return self._recorded(message)

    def _recorded(self, message: Message) -> StoredRecord:
        message.sessions.add(message.session)
        text = f"{message.id} at {message.version} " + "words " * self._chance.randint(2, 25)
        document = {
            "_id": message.id,
            "session": message.session,
            "role": "user",
            "user": "s.someone",
            "text": text,
        }
        return self._put_down(
            MAPPING.record(document, message.version, rfc3339(self._now).encode(), "stream")
        )

    def _move(self, message: Message, session: str) -> list[StoredRecord]:
        """As the tailer says it where there are pre-images: both records have the change's version."""
        before, message.session, message.version = message.session, session, self._version()
        self.order[before].remove(message.id)
        self.order[session].append(message.id)
        left = MAPPING.tombstone(message.id, message.version, self._now, "moved", session_id=before)
        return [self._put_down(left), self._recorded(message)]

    def _deletion(self, message: Message) -> StoredRecord:
        message.deleted, message.version = True, self._version()
        ended = MAPPING.tombstone(
            message.id, message.version, self._now, "deleted", session_id=message.session
        )
        return self._put_down(ended)

    def _put_down(self, record: Outgoing) -> StoredRecord:
        return StoredRecord(self.topic, record.ordering_key, record.key, record.value, tuple(record.headers))

    def _control(
        self, kind: type[FormationAsked] | type[SessionEnded], session: str, **fields: bool
    ) -> StoredRecord:
        version = self._version()
        event = kind(inbox_id=f"s.i{version}", session_id=session, version=version, asked_by=None, **fields)
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
