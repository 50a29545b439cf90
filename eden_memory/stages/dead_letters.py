"""Dead letters: a record that a stage gives up, whole, why, and the ids that it names; as documents, and back as
records.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import orjson

from eden_memory.forgotten import Marks, ids_of
from eden_memory.kafka.record import Outgoing, Record
from eden_memory.names import hashed
from eden_memory.schemas.documents import DeadLetter, GivenUp, LetterSource
from eden_memory.schemas.envelope import Envelope, EnvelopeError
from eden_memory.schemas.events import (
    Forgotten,
    FormationAsked,
    FormationRequested,
    MessageRecorded,
    ModelCalled,
    ScopeChanged,
    ScopeConsolidated,
    SessionClosed,
    SessionEnded,
    Watermark,
)
from eden_memory.schemas.provenance import SourceMessage

TEXTLESS = frozenset(
    event.NAME
    for event in (
        FormationAsked,
        FormationRequested,
        Forgotten,
        ModelCalled,
        ScopeChanged,
        SessionClosed,
        SessionEnded,
        Watermark,
    )
)
"""Events without text: their letters stay, so that they can be tried again."""
NOT_ITS_TEXT = ("window", "considered")
"""Parts of events that name what their texts do not rest on."""
ENTITIES = {"fact_id": "fact", "reflection_id": "reflection"}
SOURCES = ("message_id", "session_id", "user_id")


LONGEST_LETTER_REASON = 2_000
LONGEST_VALUE = 5_000_000
"""Bytes; no topic of ours takes a record so large. Of a longer one the beginning is kept."""
ENTITY_KINDS = ("fact", "reflection", "blob")


@dataclass(frozen=True, slots=True)
class NamedIds:
    """The ids that a text names: sources, and facts, reflections and blobs as (kind, id)."""

    sources: tuple[SourceMessage, ...] = ()
    entities: frozenset[tuple[str, str]] = frozenset()

    def pairs(self) -> set[tuple[str, str]]:
        """Return (kind, id) of everything whose forgetting concerns the text."""
        return {(kind, name) for kind, name in {*ids_of(None, self.sources), *self.entities} if name}

    def gone(self, marks: Marks) -> bool:
        """Return whether any of it is forgotten; what does not say when it was written counts as old."""
        ended = any(marks.entity_gone(kind, name, 0) for kind, name in self.entities)  # pyright: ignore[reportArgumentType]
        return ended or marks.any_gone(self.sources)


def named_in(
    key: bytes, value: bytes, headers: Sequence[tuple[str, bytes | None]], at: datetime
) -> NamedIds | None:
    """Return what an event's bytes name, as far as they can be read; None for an event without text."""
    envelope = _envelope(headers)
    if envelope is not None and envelope.name in TEXTLESS:
        return None
    parts = list(objects_in(_json(value)))
    if envelope is None:
        return ids_in(parts, at)
    if envelope.name == MessageRecorded.NAME:
        parts = [{"message_id": envelope.subject, "session_id": envelope.ordering_key}, *parts]
    ids = ids_in(parts, envelope.time)
    if envelope.name == ScopeConsolidated.NAME:
        blob = ("blob", key.decode(errors="replace"))
        return NamedIds(ids.sources, ids.entities | {blob})
    return ids


def ids_in(parts: Sequence[Mapping[str, Any]], time: datetime) -> NamedIds:
    """Return what JSON objects name; `time`: when it was written, where they do not say so."""
    sources = [part for part in parts if any(isinstance(part.get(name), str) for name in SOURCES)]
    return NamedIds(
        tuple(dict.fromkeys(_source(part, time) for part in sources)),
        frozenset(pair for part in parts for pair in _entities(part)),
    )


def _source(part: Mapping[str, Any], time: datetime) -> SourceMessage:
    """Return what a JSON object says of a message; what it does not say is empty, and older than any mark."""
    named = {name: part[name] if isinstance(part.get(name), str) else "" for name in (*SOURCES, "version")}
    with suppress(KeyError, TypeError, ValueError):
        time = datetime.fromisoformat(part["time"])
    fields = {**named, "user_id": named["user_id"] or None, "time": time, "said_at": time}
    return SourceMessage.model_construct(None, **fields)


def _entities(part: Mapping[str, Any]) -> set[tuple[str, str]]:
    found = {(kind, part[name]) for name, kind in ENTITIES.items() if isinstance(part.get(name), str)}
    found |= {(kind, f"{name}@{part['version']}") for kind, name in found if "version" in part}
    absorbed = part.get("absorbed")
    if isinstance(absorbed, list):
        found |= {("reflection", name) for name in cast(list[Any], absorbed) if isinstance(name, str)}
    return found


def objects_in(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object in a JSON value but those that its text does not rest on."""
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if isinstance(found, dict):
            part = cast(dict[str, Any], found)
            yield part
            waiting += [inner for name, inner in part.items() if name not in NOT_ITS_TEXT]
        elif isinstance(found, list):
            waiting += cast(list[Any], found)


def _json(value: bytes) -> Any:
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return None


def _envelope(headers: Sequence[tuple[str, bytes | None]]) -> Envelope | None:
    try:
        return Envelope.of_headers((name, value or b"") for name, value in headers)
    except EnvelopeError:
        return None


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose dead letter it is: a stage, under the name that it has in its namespace."""

    stage: str
    program: str


def dead_letter(record: Record, why: GivenUp, of: Origin) -> DeadLetter:
    """Return the dead letter of a record; one of a negative offset is a stage's own event, which no broker took.

    A record that is given up again has the same id, also where it stands in its topic twice.
    """
    value, identity, stood = record.value, event_id_of(record), record.offset >= 0
    ids = named_in(record.key or b"", value, record.headers, why.at) if value else None
    return DeadLetter(
        _id=hashed(of.program, why.member or record.fingerprint),
        program=of.program,
        stage=of.stage,
        reason=why.reason,
        error=why.error,
        trace=why.trace,
        attempts=why.attempts,
        at=why.at,
        topic=record.topic,
        partition=record.partition if stood else None,
        offset=record.offset if stood else None,
        member=None if identity is None else f"{of.stage}:{identity}",
        key=record.key,
        value=None if value is None else value[:LONGEST_VALUE],
        headers=record.headers,
        cut=None if value is None or len(value) <= LONGEST_VALUE else len(value),
        named=names_in(ids) if ids is not None else None,
        sources=sources_in(ids) if ids is not None else (),
    )


def refused_letter(of: Origin, topic: str, record: Outgoing, at: datetime) -> DeadLetter:
    """Return the dead letter of a record of the tailer's that no broker takes: without its value, so that it is read
    again from its document.
    """
    ids = named_in(record.key, record.value or b"", record.headers, at)
    return DeadLetter(
        _id=hashed(of.program, topic, record.key.decode(errors="replace")),
        program=of.program,
        stage=of.stage,
        reason=f"{topic} takes no record of {record.size} bytes",
        error="MessageSizeTooLargeError",
        at=at,
        topic=topic,
        key=record.key,
        version=dict(record.headers).get("ce_id", b"").decode(errors="replace"),
        named=None if ids is None else names_in(ids),
        sources=() if ids is None else sources_in(ids),
    )


def names_in(ids: NamedIds) -> tuple[str, ...]:
    """Return `<kind>:<id>` of everything whose forgetting erases a letter."""
    return tuple(sorted(f"{kind}:{name}" for kind, name in ids.pairs()))


def sources_in(ids: NamedIds) -> tuple[LetterSource, ...]:
    """Return the messages, sessions and users that a letter names, as it stores them."""
    return tuple(
        LetterSource(
            message_id=source.message_id,
            version=source.version,
            session_id=source.session_id,
            user_id=source.user_id,
            time=source.time,
        )
        for source in ids.sources
    )


def ids_named(letter: DeadLetter) -> NamedIds:
    """Return what a letter names; the entities are those named that no source is."""
    sources = tuple(
        SourceMessage.model_construct(None, **source.model_dump(), said_at=source.time)
        for source in letter.sources
    )
    pairs = (tuple(name.split(":", 1)) for name in letter.named or ())
    return NamedIds(sources, frozenset((kind, name) for kind, name in pairs if kind in ENTITY_KINDS))


def event_id_of(record: Record) -> str | None:
    """Return the event's id, if the record has one."""
    identity = dict(record.headers).get("ce_id")
    return identity.decode(errors="replace") if identity else None


def record_of(letter: DeadLetter) -> Record:
    """Return the record that a stage's dead letter holds, where it first stood."""
    nowhere = -1
    return Record(
        topic=letter.topic,
        partition=nowhere if letter.partition is None else letter.partition,
        offset=nowhere if letter.offset is None else letter.offset,
        key=letter.key,
        value=letter.value,
        headers=letter.headers,
        timestamp=0,
    )
