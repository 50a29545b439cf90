"""Dead letters: a record that a stage gives up, whole, and why; as documents, and back as records."""

from dataclasses import dataclass
from datetime import datetime

from eden_memory.kafka.outgoing import Outgoing
from eden_memory.kafka.record import Record
from eden_memory.names import hashed
from eden_memory.schemas.documents import DeadLetter, GivenUp, LetterSource
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.stages.dead_letter_ids import NamedIds, named_in

LONGEST_LETTER_REASON = 2_000
LONGEST_VALUE = 5_000_000
"""Bytes; no topic of ours takes a record so large. Of a longer one the beginning is kept."""
ENTITY_KINDS = ("fact", "reflection", "blob")


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
