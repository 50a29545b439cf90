"""The demo's chat application, which knows nothing of memory, the conversation that it plays, and what reaches Kafka.

A conversation is JSON lines of messages, what happens to some of them later, and what it may cost.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from math import ceil
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Literal, TypeVar

import orjson
import yaml
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, field_validator
from pymongo import AsyncMongoClient
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.errors import EdenError, describe
from eden_memory.kafka.connection import client_kwargs, start
from eden_memory.models.call_accounts import PerMillion, per_million
from eden_memory.models.catalogue import OFFLINE, chosen, provider_name
from eden_memory.models.question import Role
from eden_memory.mongo.document_fields import cut, text_of
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import MessageRecorded, Watermark, decode
from eden_memory.schemas.ids import split
from eden_memory.settings import KafkaSettings, Settings
from eden_memory.source.messages_store import inbox_name

INSTALLED = Path(__file__).parent / "example"

EXAMPLE = (INSTALLED if INSTALLED.exists() else Path(__file__).parents[2] / "examples") / "demo.jsonl"
"""Beside this module if installed from a wheel; in a checkout among the examples."""

PEOPLE = ("agents", "users", "groups", "sessions")

HINT = "A line is {session, role, content, user, created_at}; id is optional."


Content = str | list[dict[str, Any]]

Line = TypeVar("Line", bound=BaseModel)


_People = TypeAdapter(dict[str, list[dict[str, Any]]])
OWNER = "me"
"""The author of all user messages: an export does not name its owner."""
ROLES = ("user", "assistant", "tool", "system")
Row = dict[str, Any]
CHARACTERS_PER_TOKEN = 3.5
INSTRUCTIONS = 1_500
"""Tokens of a prompt besides the conversation."""
ANSWER = 1_500
"""Tokens of an answer, thinking included."""
CALLS: Mapping[Role, int] = {"facts": 1, "decisions": 1, "reflections": 1, "consolidation": 3}
"""Of a window; consolidations of up to three scopes."""
SHOWN_THE_CONVERSATION = frozenset[Role]({"facts", "reflections"})
Kind = Literal["message", "edit", "delete"]
Record = ConsumerRecord[bytes, bytes]
MARKER = "made_by_eden_demo"


class PlayedMessage(BaseModel):
    """One line of a conversation; `user` is the author's id, if a user wrote it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = ""
    session: str
    role: str
    content: Content
    user: str | None = None
    created_at: datetime

    @field_validator("created_at")
    @classmethod
    def _with_zone(cls, time: datetime) -> datetime:
        """Read a time; one without a zone is in UTC."""
        return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


class PlayedChange(BaseModel):
    """An edit or deletion of a message, made once the message `after` has been written."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: str
    change: Literal["edit", "delete"]
    id: str
    content: Content | None = None


@dataclass(frozen=True, slots=True)
class PlayedStep:
    """One thing that the application does: write some messages of one session, or one change."""

    messages: Sequence[PlayedMessage] = ()
    change: PlayedChange | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages in the order in which they are written, changes, and the documents of people and sessions."""

    messages: list[PlayedMessage]
    changes: list[PlayedChange]
    people: dict[str, list[dict[str, Any]]]

    def steps(self, together: int = 3) -> Iterator[PlayedStep]:
        """Yield the writes in order: at most `together` messages at once, changes in their place."""
        waiting: list[PlayedMessage] = []
        for message in self.messages:
            if waiting and (len(waiting) == together or waiting[-1].session != message.session):
                yield PlayedStep(waiting)
                waiting = []
            waiting.append(message)
            due = [change for change in self.changes if change.after == message.id]
            if due:
                yield PlayedStep(waiting)
                waiting = []
                yield from (PlayedStep(change=change) for change in due)
        if waiting:
            yield PlayedStep(waiting)


def read_conversation(path: Path = EXAMPLE) -> Conversation:
    """JSON lines with their `.changes.jsonl` and `.people.yaml` if there are, or a ChatGPT export (`.json`).

    An EdenError if it cannot be read.
    """
    if is_export(path):
        exported = [PlayedMessage.model_validate(row) for row in read_export(path)]
        return Conversation(_checked(path, exported), [], _nobody())
    messages = _checked(
        path,
        [_numbered(index, message) for index, message in enumerate(read_lines(path, PlayedMessage, HINT), 1)],
    )
    changes_path, people_path = path.with_suffix(".changes.jsonl"), path.with_suffix(".people.yaml")
    changes = read_lines(changes_path, PlayedChange, HINT) if changes_path.exists() else []
    people = _people(people_path) if people_path.exists() else {}
    known = {message.id for message in messages}
    if strangers := [change.id for change in changes if not {change.id, change.after} <= known]:
        raise EdenError(f"{changes_path}: no message {', '.join(strangers)}", "Correct the ids there.")
    return Conversation(messages, changes, {name: people.get(name, []) for name in PEOPLE})


def _people(path: Path) -> dict[str, Any]:
    """Documents by the collection that they represent."""
    hint = f"It holds lists of documents: {', '.join(PEOPLE)}."
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
        return _People.validate_python(found or {})
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise EdenError(f"{path} cannot be read: {' '.join(str(error).split())}", hint) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise EdenError(f"{path}: {'.'.join(map(str, first['loc']))} {first['msg']}", hint) from None


def _nobody() -> dict[str, list[dict[str, Any]]]:
    return {name: [] for name in PEOPLE}


def plain_text(content: Content) -> str:
    """Return a message's content as text."""
    return text_of(content)


def _checked(path: Path, messages: list[PlayedMessage]) -> list[PlayedMessage]:
    """Raise EdenError if there are no messages, or two with the same id."""
    if not messages:
        raise EdenError(f"{path} holds no messages", "Name a file of JSON lines.")
    often = [name for name, count in Counter(message.id for message in messages).items() if count > 1]
    if often:
        raise EdenError(f"{path}: several messages have the id {often[0]}", "Ids may be left out.")
    return messages


def _numbered(index: int, message: PlayedMessage) -> PlayedMessage:
    return message if message.id else message.model_copy(update={"id": f"m{index:04d}"})


def read_lines(path: Path, kind: type[Line], hint: str) -> list[Line]:
    """Read JSON lines; EdenError, with the hint, names the first that is not valid."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise EdenError(f"{path} cannot be read: {error.strerror}", "Name a file of JSON lines.") from None
    except UnicodeDecodeError:
        raise EdenError(f"{path} is not valid UTF-8", "Name a file of JSON lines.") from None
    return [_line(path, number, line, kind, hint) for number, line in enumerate(lines, 1) if line.strip()]


def _line(path: Path, number: int, line: str, kind: type[Line], hint: str) -> Line:
    try:
        return kind.model_validate(orjson.loads(line))
    except (orjson.JSONDecodeError, ValidationError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else {"msg": error.msg, "loc": ()}
        what = f"{path}, line {number}: {'.'.join(map(str, first['loc']))} {first['msg']}".replace("  ", " ")
        raise EdenError(what, hint) from None


def is_export(path: Path) -> bool:
    """Return whether a file is an export: JSON, not JSON lines."""
    return path.suffix == ".json"


def read_export(path: Path) -> list[Row]:
    """Rows of {id, session, role, content, user, created_at}, chats in order of their first message."""
    try:
        chats: Any = orjson.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise EdenError(
            f"{path} cannot be read: {describe(error)}", "Give the conversations.json of an export."
        ) from None
    if not isinstance(chats, list):
        raise EdenError(f"{path} is no list of conversations", "Give the conversations.json of an export.")
    read = [_read(path, number, chat) for number, chat in enumerate(chats, 1) if isinstance(chat, dict)]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    rows = [row for chat in sorted(filter(None, read), key=_first) for row in chat]
    if not rows:
        raise EdenError(f"{path} holds no messages", "Give the conversations.json of an export.")
    return rows


def _read(path: Path, number: int, chat: Mapping[str, Any]) -> list[Row]:
    try:
        return _messages(number, chat)
    except (AttributeError, TypeError, LookupError, ValueError, OverflowError, OSError) as error:
        what = f"{path}: chat {number} is not built as those of an export ({type(error).__name__})"
        raise EdenError(what, "Give the conversations.json of an export.") from None


def _messages(number: int, chat: Mapping[str, Any]) -> list[Row]:
    name = str(chat.get("conversation_id") or chat.get("id") or f"chat-{number}")
    time, rows = chat.get("create_time"), list[Row]()
    for node in _branch(chat):
        message: Mapping[str, Any] = node.get("message") or {}
        author: Mapping[str, Any] = message.get("author") or {}
        role = author.get("role")
        text = _text(message.get("content") or {})
        time = message.get("create_time") or time
        if role in ROLES and text and isinstance(time, int | float):
            rows.append(
                {
                    "id": f"{name}-{len(rows) + 1}",
                    "session": name,
                    "role": role,
                    "content": text,
                    "user": OWNER if role == "user" else None,
                    "created_at": datetime.fromtimestamp(time, UTC),
                }
            )
    return rows


def _branch(chat: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the nodes from the first to the last one shown; edits and new answers are other branches."""
    nodes: Mapping[str, Mapping[str, Any]] = chat.get("mapping") or {}
    current: str | None = chat.get("current_node") or next(reversed(list(nodes)), None)
    path: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    while current is not None and current in nodes and current not in seen:
        seen.add(current)
        path.append(nodes[current])
        current = nodes[current].get("parent")
    return reversed(path)


def _text(content: Mapping[str, Any]) -> str:
    parts = content.get("parts") or [content.get("text")]
    return "\n".join(part for part in parts if isinstance(part, str) and part.strip())


def _first(chat: list[Row]) -> datetime:
    found: datetime = chat[0]["created_at"]
    return found


def estimate(conversation: Conversation, settings: Settings) -> Decimal | None:
    """Return US dollars; 0 if only rules are used, None if a price is unknown."""
    counts = Counter(message.session for message in conversation.messages)
    windows = sum(ceil(count / settings.windows.messages) for count in counts.values())
    characters = sum(len(plain_text(message.content)) + 40 for message in conversation.messages)
    costs = [_of_role(role, windows, characters / CHARACTERS_PER_TOKEN, settings) for role in CALLS]
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)).quantize(Decimal("0.0001")) if len(known) == len(costs) else None


def _of_role(role: Role, windows: int, said: float, settings: Settings) -> Decimal | None:
    """Estimate all calls of a role at the price of the dearest tier's model."""
    prices = _prices(role, settings)
    calls = windows * CALLS[role]
    asked = calls * INSTRUCTIONS + (said if role in SHOWN_THE_CONVERSATION else 0)
    costs = [
        Decimal(asked) * price.input + Decimal(calls * ANSWER) * price.output
        for price in prices
        if price is not None and price.output is not None
    ]
    return max(costs, default=Decimal(0)) / 1_000_000 if len(costs) == len(prices) else None


def _prices(role: Role, settings: Settings) -> list[PerMillion | None]:
    choices = {chosen(role, tier, settings) for tier in (0, 1)}
    return [
        per_million(provider_name(choice.provider), choice.model or "")
        for choice in choices
        if choice.provider != OFFLINE
    ]


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
