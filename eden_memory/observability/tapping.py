"""Read a topic for people, in no consumer group and without committing, and show its records.

A record's text is data: no control character in it reaches a terminal.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Literal, cast

from aiokafka.errors import KafkaError

from eden_memory.kafka import KafkaArguments
from eden_memory.kafka.record import Record, as_record
from eden_memory.kafka.topic_reading import Offsets, TopicReader, reading
from eden_memory.logs import LibraryLogger
from eden_memory.schemas.envelope import Envelope, EnvelopeError, event_type, rfc3339

TOMBSTONE = "tombstone"
LONG = 300
"""Characters of one text that a line for people shows."""
_OBEYED = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_SHOWN_FIRST = ("text", "content", "decision", "action", "reason", "error", "outcome")


@dataclass(frozen=True, slots=True)
class Tapped:
    """One record in its partition; `timestamp` is the broker's, `envelope` None if it has none."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime
    envelope: Envelope | None
    problem: str = ""
    """Why there is no envelope."""

    @classmethod
    def of(cls, record: Record) -> "Tapped":
        """A record with its headers read."""
        at = datetime.fromtimestamp(record.timestamp / 1000, UTC)
        place = record.topic, record.partition, record.offset, record.key, record.value, at
        try:
            return cls(*place, Envelope.of_headers(record.headers))
        except EnvelopeError as error:
            return cls(*place, None, str(error))

    @property
    def time(self) -> datetime:
        """The record's own time, else the broker's."""
        return self.envelope.time if self.envelope is not None else self.timestamp

    @property
    def scopes(self) -> tuple[str, ...]:
        """The ordering key, else the scope or session that a tombstone names."""
        return () if self.envelope is None else self.envelope.scopes


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects records; an empty filter selects all. Times are the records' own (`ce_time`)."""

    scopes: tuple[str, ...] = ()
    """Patterns (`*`, `?`, `[…]`) of scope keys, in `chat.messages` of session ids."""
    types: tuple[str, ...] = ()
    """Names of events (`FactChanged`), with a version if it matters (`FactChanged.v1`), or `tombstone`."""
    since: datetime | None = None
    until: datetime | None = None

    def matches(self, record: Tapped) -> bool:
        """Whether a record is selected."""
        return (
            (self.since is None or record.time >= self.since)
            and (self.until is None or record.time < self.until)
            and (not self.types or bool(_names(record) & set(self.types)))
            and (
                not self.scopes
                or any(fnmatchcase(key, scope) for key in record.scopes for scope in self.scopes)
            )
        )


def harmless(text: str) -> str:
    """Return the text with control and direction characters spelled out, on one line."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def as_json(record: Tapped) -> dict[str, Any]:
    """Return everything about a record, with its data in the version in which it was written."""
    about = record.envelope
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "key": _text(record.key),
        "timestamp": rfc3339(record.timestamp),
    }
    if about is None:
        shown["problem"] = record.problem
    else:
        shown |= {
            "id": about.id,
            "type": event_type(about.name, about.version),
            "source": about.source,
            "time": rfc3339(about.time),
            "subject": about.subject,
            "orderingkey": about.ordering_key,
            "entityversion": about.entity_version,
            "scope": about.scope,
            "reason": about.reason,
        }
    data, readable = _data(record.value)
    return {**shown, "data" if readable else "data_text": data}


def line(record: Tapped) -> tuple[str, str, str]:
    """Time and place, what it is, what it says: three texts for a terminal, each harmless and on one line."""
    at = f"{record.time:%Y-%m-%d %H:%M:%S} {record.partition}@{record.offset}"
    about = record.envelope
    if about is None:
        return at, "not an event", harmless(f"{record.problem}; key {_text(record.key)}")
    kind = f"{about.name}.v{about.version}"
    if record.value is None:
        told = f"{about.subject} is erased: {about.reason or 'no reason given'}"
        return at, f"{kind} {TOMBSTONE}", harmless(" ".join((told, *record.scopes)))
    data, _ = _data(record.value)
    said = _said(cast(dict[str, Any], data)) if isinstance(data, dict) else _short(str(data))
    return at, kind, harmless(f"{about.subject} {about.ordering_key}  {said}")


def _names(record: Tapped) -> set[str]:
    about = record.envelope
    named = set[str]() if about is None else {about.name, f"{about.name}.v{about.version}"}
    return {TOMBSTONE, *named} if record.value is None else named


def _said(data: Mapping[str, Any]) -> str:
    """Return the fields that people look for; else all of it, shortened."""
    told = {name: data[name] for name in _SHOWN_FIRST if data.get(name) not in (None, "")}
    return "  ".join(f"{name}={_short(_plain(value))}" for name, value in (told or data).items())[: LONG * 3]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= LONG else text[: LONG - 1] + "…"


def _data(value: bytes | None) -> tuple[Any, bool]:
    """Return the JSON of a value and True; if it is none, its text and False."""
    if value is None:
        return None, True
    try:
        return json.loads(value), True
    except (ValueError, RecursionError):
        return _text(value), False


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode(errors="backslashreplace")


Start = Literal["start", "end"] | datetime
"""Start at the first stored record, at the next one written, or at the broker's time."""
POLL_MS = 500
SILENT_POLLS = 10
"""After this many polls without a record, check whether Kafka answers at all."""
ANSWER_SECONDS = 5.0
RETRY_MS = 1_000
"""Seconds between two attempts to reach a broker that does not answer."""
log = LibraryLogger()


@asynccontextmanager
async def tapping(
    kafka: KafkaArguments, topic: str, start: Start, *, until_end: bool = False
) -> AsyncGenerator[AsyncGenerator[Tapped]]:
    """The records of a topic (whole name), in order per partition, uncommitted transactions included.

    The block is entered once every partition's place is fixed. `until_end`: only what was there then; else
    until the block is left. An EdenError where there is no such topic.
    """
    async with reading({**kafka, "retry_backoff_ms": RETRY_MS}, [topic]) as reader:
        reader.seek(await _places(reader, start))
        yield _until(reader) if until_end else _following(reader.consumer)


async def _places(reader: TopicReader, start: Start) -> Offsets:
    if not isinstance(start, datetime):
        return reader.begins if start == "start" else reader.ends
    at = dict.fromkeys(reader.ends, int(start.timestamp() * 1000))
    found = await reader.consumer.offsets_for_times(at)
    return {**reader.ends, **{tp: place.offset for tp, place in found.items() if place is not None}}


async def _following(consumer: Any) -> AsyncGenerator[Tapped]:
    silent, answers = 0, True
    while True:
        batches = await consumer.getmany(timeout_ms=POLL_MS)
        for fetched in batches.values():
            for record in fetched:
                yield Tapped.of(as_record(record))
        silent = 0 if batches else silent + 1
        if silent >= SILENT_POLLS or (batches and not answers):
            silent, answers = 0, await _still_answers(consumer, answers)


async def _still_answers(consumer: Any, before: bool) -> bool:
    """Whether Kafka answers; each change is reported."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await consumer.end_offsets(consumer.assignment())
    except (KafkaError, TimeoutError):
        if before:
            log.warning("Kafka does not answer, waits for it")
        return False
    if not before:
        log.warning("Kafka answers again")
    return True


async def _until(reader: TopicReader) -> AsyncGenerator[Tapped]:
    async for batch in reader.batches():
        for record in batch:
            yield Tapped.of(record)
