"""Histories of one scope's memory as records, made by a given source of chance, and stored memory to compare."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from random import Random
from typing import Any

from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    Forgotten,
    ReflectionFormed,
    ScopeConsolidated,
    SessionClosed,
)
from eden_memory.schemas.events.reflections import MemoryAction, MemoryCommandRef
from eden_memory.schemas.fields import pack_vector
from eden_memory.schemas.provenance import Call, Embedding, SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
USER = Scope.of_user("s.assistant", "i.4711")
SESSION = Scope.of_session("s.assistant", "s.one", ("i.4711",))
TOPICS: dict[type[Event], str] = {
    FactChanged: "memory.facts",
    ReflectionFormed: "memory.reflections",
    SessionClosed: "memory.reflections",
    ScopeConsolidated: "memory.consolidations",
    Forgotten: "memory.forgotten",
}
NOT_COMPARED = ("revision", "changed_at", "reset_revision")
"""What tells how documents came about, not what they say."""


def minute(number: float) -> datetime:
    """So many minutes after noon."""
    return NOON + timedelta(minutes=number)


def source(number: int, user: str | None = "i.4711") -> SourceMessage:
    """A message that something rests on."""
    return SourceMessage(
        message_id=f"i.{number}",
        version=f"{number:016x}",
        session_id="s.one",
        user_id=user,
        time=minute(number / 10),
    )


def fact(
    name: str,
    version: int = 1,
    text: str = "Ana lives in Porto.",
    *,
    at: float = 0,
    outcome: int = 1,
    scope: Scope = USER,
    retired: bool = False,
    sources: Sequence[SourceMessage] = (),
    vector: Sequence[float] = (0.6, 0.8),
) -> FactChanged:
    """One version of a fact; `at` in minutes, of its first version."""
    return FactChanged(
        cause="c",
        fact_id=name,
        version=version,
        outcome=outcome,
        scope=scope,
        text=text,
        hash=sha256(text.encode()).hexdigest(),
        embedding=None if retired else Embedding(model="tiny", vector=pack_vector(vector)),
        decision="RETIRE" if retired else "ADD" if version == 1 else "UPDATE",
        reason=f"because of {version}",
        call=Call(call_id="call", model="m", prompt="fact-dedup/1"),
        sources=tuple(sources),
        formed_at=minute(at),
        said_at=minute(at),
        valid_from=minute(at + version),
        retired_at=minute(at + version) if retired else None,
        retired_because="asked" if retired else None,
    )


def reflection(
    name: str,
    *,
    at: float = 0,
    said: float | None = None,
    position: int = 1,
    scope: Scope = USER,
    sources: Sequence[SourceMessage] = (),
    version: int = 1,
    retired: bool = False,
) -> ReflectionFormed:
    """A version of a reflection, formed `at` minutes after noon; `said` then, unless at another minute."""
    return ReflectionFormed(
        cause="c",
        reflection_id=name,
        scope=scope,
        version=version,
        text=f"Ana wants {name}." if version == 1 else f"Ana wants {name}, {version} times.",
        position=position,
        formation_id="f",
        session_id="s.one",
        origin="formed",
        asked_by=None,
        sources=tuple(sources),
        formed_at=minute(at),
        said_at=minute(at if said is None else said),
        command=None if version == 1 else command_ref("retire_reflection" if retired else "edit_reflection"),
        retired_at=minute(at + version) if retired else None,
    )


def command_ref(action: MemoryAction) -> MemoryCommandRef:
    """The command behind a version."""
    return MemoryCommandRef(command_id=f"asked/{action}", action=action, by="person", asked_at=NOON)


def blob(
    version: int,
    absorbed: Iterable[str],
    *,
    at: float = 60,
    said: float | None = None,
    scope: Scope = USER,
    based_on: int | None = None,
    pins: Iterable[str] = (),
) -> ScopeConsolidated:
    """One version of a scope's blob; it holds nothing newer than `said`."""
    return ScopeConsolidated(
        cause="c",
        scope=scope,
        version=version,
        based_on=version - 1 if based_on is None else based_on,
        text=f"All about Ana, {version}.",
        words=4,
        word_limit=300 + version,
        absorbed=tuple(absorbed),
        because="threshold",
        pins=tuple(pins),
        consolidated_at=minute(at),
        said_at=minute(at if said is None else said),
        settings_version="1",
    )


def closed(at: float, *, scope: Scope = SESSION) -> SessionClosed:
    """A session's last word."""
    return SessionClosed(
        cause="c", scope=scope, formation_id=f"final-{at}", reflections=1, closed_at=minute(at)
    )


def delivered(event: Event, *, at: float = 100, prefix: str = "", partition: int = 0) -> Delivery:
    """A record as the stage gets it."""
    envelope = Envelope(
        id=f"e/{event.key()}".replace(" ", ""),
        name=event.NAME,
        version=event.VERSION,
        source="test",
        time=minute(at),
        subject=event.subject(),
        ordering_key=event.ordering_key(),
    )
    return Delivery(envelope, event, prefix + TOPICS[type(event)], event.key(), partition)


def tombstone(event: Event, *, at: float = 200) -> Delivery:
    """The end of a record."""
    given = delivered(event, at=at)
    envelope = given.envelope
    ended = Envelope(
        id="t" + envelope.id,
        name=envelope.name,
        version=envelope.version,
        source="test",
        time=minute(at),
        subject=envelope.subject,
        ordering_key=envelope.ordering_key,
        reason="forgotten",
    )
    return Delivery(ended, None, given.topic, given.key)


def history(chance: Random, scope: Scope = USER, size: int = 4) -> list[Event]:
    """What a scope may have lived through, in the order in which it did: up to `size` of everything."""
    events: list[Event] = []
    outcome = 0
    for number in range(chance.randint(0, size)):
        versions = chance.randint(1, chance.choice((1, 3, 24)))
        at = chance.randint(0, 3)
        for version in range(1, versions + 1):
            outcome += 1
            text = f"Text {chance.randint(1, 3)}."
            retired = version == versions and chance.random() < 0.3
            name = f"{scope.user_id or scope.session_id}-f{number}"
            events.append(
                fact(
                    name,
                    version,
                    text,
                    at=at,
                    outcome=outcome,
                    scope=scope,
                    retired=retired,
                    sources=[source(number)],
                )
            )
    names = [
        f"{scope.user_id or scope.session_id}-r{number}" for number in range(chance.randint(0, 2 * size))
    ]
    for name in names:
        at, position = chance.randint(0, 5), chance.randint(1, 3)
        versions = chance.choice((1, 1, chance.randint(1, 3), 24))
        events += [
            reflection(
                name,
                at=at,
                said=chance.randint(-5, 5),
                position=position,
                scope=scope,
                version=version,
                retired=version == versions > 1 and chance.random() < 0.5,
            )
            for version in range(1, versions + 1)
        ]
    for version in range(1, chance.randint(0, chance.choice((2, 24))) + 1):
        absorbed = chance.sample(names, chance.randint(0, min(2, len(names))))
        pins = chance.sample(("Stays.", "Stays too."), chance.randint(0, 2))
        said = chance.randint(-5, 60)
        events.append(blob(version, absorbed, at=60 + version, said=said, scope=scope, pins=pins))
    if scope.kind == "session" and chance.random() < 0.7:
        events.append(closed(chance.randint(0, 6), scope=scope))
    return events


def forgotten_of(chance: Random, events: Sequence[Event]) -> list[Event]:
    """Records that forgetting may erase: facts, also only their first versions; reflections with their blobs."""
    facts = [one for one in events if isinstance(one, FactChanged)]
    gone: list[Event] = []
    for name in dict.fromkeys(one.fact_id for one in facts):
        versions = [one for one in facts if one.fact_id == name]
        gone += versions[: chance.choice((0, 0, len(versions), chance.randint(0, len(versions)))) or 0]
    reflections = [one for one in events if isinstance(one, ReflectionFormed)]
    for one in chance.sample(reflections, chance.randint(0, min(2, len(reflections)))):
        gone += [other for other in reflections if other.reflection_id == one.reflection_id]
        blobs = [blob for blob in events if isinstance(blob, ScopeConsolidated)]
        first = min((blob.version for blob in blobs if one.reflection_id in blob.absorbed), default=None)
        gone += [blob for blob in blobs if first is not None and blob.version >= first]
    return list({one.key(): one for one in gone}.values())


def batches(chance: Random, deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """Cut anywhere."""
    cut: list[list[Delivery]] = []
    left = list(deliveries)
    while left:
        size = chance.randint(1, 6)
        cut.append(left[:size])
        left = left[size:]
    return cut


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """A document without what tells how it came about."""
    return {name: value for name, value in row.items() if name not in NOT_COMPARED}
