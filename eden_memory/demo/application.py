"""The chat application of the demo, which knows nothing of memory, and what arrives of its writes in Kafka."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, ConsumerRecord
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.demo.conversation import Conversation, PlayedChange, PlayedMessage, PlayedStep, plain_text
from eden_memory.errors import EdenError
from eden_memory.kafka.connection import client_kwargs, start
from eden_memory.mongo.document_fields import cut
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import MessageRecorded, Watermark, decode
from eden_memory.schemas.ids import split
from eden_memory.settings import KafkaSettings, Settings
from eden_memory.source.messages_store import inbox_name

Kind = Literal["message", "edit", "delete"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record of chat.messages as the reader found it; without text it is a tombstone."""

    message: str
    session: str
    author: str
    text: str | None
    partition: int
    offset: int
    at: float
    """Seconds since the epoch, when it was read."""


@dataclass(slots=True)
class ApplicationWrite:
    """One write of the application; without text it is a deletion."""

    kind: Kind
    message: str
    session: str
    text: str | None
    at: float
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo's outcome; delays in seconds."""

    written: Counter[Kind]
    seen: Counter[Kind]
    missing: list[str]
    out_of_order: list[str]
    """Sessions whose messages did not arrive in the order in which they were written."""
    p50: float
    p99: float

    @property
    def complete(self) -> bool:
        """Return whether nothing is missing and every session is in order."""
        return not self.missing and not self.out_of_order


@dataclass(slots=True)
class DeliveryLog:
    """Follows every write until a record that says the same has been read."""

    writes: dict[str, list[ApplicationWrite]] = field(default_factory=dict[str, list[ApplicationWrite]])
    order: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    arrivals: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Message ids by session, in the order of their first arrival."""

    def wrote(self, write: ApplicationWrite) -> None:
        """Note a write before the application makes it."""
        self.writes.setdefault(write.message, []).append(write)
        if write.kind == "message":
            self.order.setdefault(write.session, []).append(write.message)

    def arrived(self, arrival: Arrival) -> ApplicationWrite | None:
        """Return the write that this record shows for the first time."""
        seen = self.arrivals.setdefault(arrival.session, [])
        if arrival.text is not None and arrival.message not in seen:
            seen.append(arrival.message)
        for write in self.writes.get(arrival.message, []):
            if write.delay is None and write.text == arrival.text:
                write.delay = max(0.0, arrival.at - write.at)
                return write
        return None

    def missing(self) -> list[str]:
        """Return the messages whose newest state has not been read; empty texts do not count."""
        newest = [writes[-1] for writes in self.writes.values()]
        return [write.message for write in newest if write.delay is None and write.text != ""]

    def summary(self) -> Summary:
        """Return the counts, delays and losses so far."""
        every = [write for writes in self.writes.values() for write in writes]
        delays = [write.delay for write in every if write.delay is not None]
        return Summary(
            written=Counter(write.kind for write in every),
            seen=Counter(write.kind for write in every if self._shown(write)),
            missing=self.missing(),
            out_of_order=[name for name in self.order if not self._in_order(name)],
            p50=median(delays) if delays else 0.0,
            p99=quantiles(delays, n=100)[98] if len(delays) > 1 else sum(delays),
        )

    def _shown(self, write: ApplicationWrite) -> bool:
        """Return whether a write was read, or a later write of the same message."""
        later = self.writes[write.message]
        return any(written.delay is not None for written in later[later.index(write) :])

    def _in_order(self, session: str) -> bool:
        """Return the delays, without messages that were empty until an edit."""
        late = {message for message, writes in self.writes.items() if writes[0].text == ""}
        came = [message for message in self.arrivals.get(session, []) if message not in late]
        there = set(came)
        return came == [message for message in self.order[session] if message in there]


Record = ConsumerRecord[bytes, bytes]


class Arrivals:
    """Reads from the topic's end at the moment when the block is entered."""

    def __init__(self, kafka: KafkaSettings, bootstrap: str, topic: str) -> None:
        self._consumer: Any = AIOKafkaConsumer(
            topic, **client_kwargs(kafka, bootstrap), enable_auto_commit=False, auto_offset_reset="latest"
        )

    async def __aenter__(self) -> "Arrivals":
        await start(self._consumer)
        for partition in self._consumer.assignment():
            await self._consumer.position(partition)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def __aiter__(self) -> AsyncIterator[Arrival | Watermark]:
        """Yield messages, tombstones and watermarks as they come; skip other records."""
        async for record in self._consumer:
            found = read(record, time.time())
            if found is not None:
                yield found


def read(record: Record, at: float) -> Arrival | Watermark | None:
    """Decode a record; None for events that the demo does not show."""
    envelope = Envelope.of_headers(record.headers)
    place: dict[str, Any] = {"partition": record.partition, "offset": record.offset, "at": at}
    if record.value is None:
        session = split(envelope.scope)[1] if envelope.scope else "(unknown)"
        return Arrival(split(envelope.subject)[1], session, "", None, **place)
    event = decode(envelope.name, envelope.version, record.value)
    if isinstance(event, MessageRecorded):
        author = split(event.user_id)[1] if event.user_id else event.role
        message, session = split(event.message_id)[1], split(event.session_id)[1]
        return Arrival(message, session, author, event.text, **place)
    return event if isinstance(event, Watermark) else None


MARKER = "made_by_eden_demo"


class ChatApplication:
    """Plays a conversation into a database of its own (`here`), noting every write in a journey."""

    def __init__(
        self, client: AsyncMongoClient[dict[str, Any]], here: Settings, journey: DeliveryLog
    ) -> None:
        self._client, self._journey, self._text_limit = client, journey, here.tailer.text_limit
        self._database: AsyncDatabase[dict[str, Any]] = client[here.source_database]
        self._inbox = self._database[inbox_name(here)]

    async def prepare(self, conversation: Conversation) -> None:
        """Create an empty database with people and sessions; never touch one that the demo did not create."""
        await self.remove()
        await self._database[MARKER].insert_one({"_id": "eden demo"})
        await self._database.create_collection("messages", changeStreamPreAndPostImages={"enabled": True})
        await self._database["messages"].create_index([("created_at", 1), ("_id", 1)])
        for name, documents in conversation.people.items():
            if documents:
                await self._database[name].insert_many(documents)

    async def remove(self) -> None:
        """Drop the demo's database; an EdenError if there is one of that name that is not the demo's."""
        name = self._database.name
        collections = await self._database.list_collection_names()
        if collections and MARKER not in collections:
            raise EdenError(
                f"the database {name} exists and was not made by the demo", "Rename or drop it first."
            )
        await self._client.drop_database(name)

    async def play(self, conversation: Conversation, rate: float) -> None:
        """Write everything at about `rate` messages a second, a few at once."""
        started, done = time.monotonic(), 0
        for step in conversation.steps():
            await self._do(step)
            done += len(step.messages) or 1
            await asyncio.sleep(max(0.0, started + done / rate - time.monotonic()))

    async def end_sessions(self, conversation: Conversation) -> None:
        """End every session as an application would: with a document in the inbox."""
        sessions = dict.fromkeys(message.session for message in conversation.messages)
        asked = [{"kind": "session_ended", "session_id": session, "asked_by": "demo"} for session in sessions]
        await self._inbox.insert_many(asked)

    async def _do(self, step: PlayedStep) -> None:
        if step.change is not None:
            await self._change(step.change)
            return
        for message in step.messages:
            text = cut(plain_text(message.content), self._text_limit)
            self._journey.wrote(ApplicationWrite("message", message.id, message.session, text, time.time()))
        await self._database["messages"].insert_many([_document(message) for message in step.messages])

    async def _change(self, change: PlayedChange) -> None:
        session = self._journey.writes[change.id][0].session
        text = None if change.change == "delete" else cut(plain_text(change.content or ""), self._text_limit)
        self._journey.wrote(ApplicationWrite(change.change, change.id, session, text, time.time()))
        messages = self._database["messages"]
        if change.change == "delete":
            await messages.delete_one({"_id": change.id})
        else:
            await messages.update_one({"_id": change.id}, {"$set": {"content": change.content}})


def _document(message: PlayedMessage) -> dict[str, Any]:
    return {
        "_id": message.id,
        "session_id": message.session,
        "role": message.role,
        "content": message.content,
        "user_id": message.user,
        "created_at": message.created_at,
    }
