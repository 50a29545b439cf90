"""The ids that a dead letter names: whoever forgets one of them ends the letter. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import orjson

from eden_memory.forgotten import Marks, ids_of
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
