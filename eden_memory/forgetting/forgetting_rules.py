"""Consequences of forgetting: derived marks, tombstones, and facts that hold again. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from eden_memory.forgotten import Mark, Marks
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FactCommanded,
    Forgotten,
    MessageRecorded,
    ReflectionFormed,
    ScopeConsolidated,
)
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery, Emit, Emitted, Erase


@dataclass(frozen=True, slots=True)
class Contradicted:
    """A stored fact that was retired because another one contradicted it."""

    fact_id: str
    version: int
    scope: Scope
    replaced_by: str
    held_from: datetime
    """Since when it held before that."""


def taken_up_again(
    forgotten: Forgotten, gone: Mapping[str, str | None], contradicted: Iterable[Contradicted]
) -> list[FactCommanded]:
    """Return commands for the facts that facts of `gone` contradicted.

    `gone`: fact id → the fact that had contradicted it, if one had: that one takes its place. Where none had, the
    fact that was said last holds again; the others are contradicted by it now.
    """
    left = [(*_behind(gone, fact.replaced_by), fact) for fact in contradicted if fact.fact_id not in gone]
    left.sort(key=lambda found: (found[0], found[2].held_from, found[2].fact_id))
    commands: list[FactCommanded] = []
    for _, group in groupby(left, key=itemgetter(0)):
        *others, (_, instead, newest) = group
        commands.append(_command(forgotten, newest, instead))
        commands += [_command(forgotten, fact, instead or newest.fact_id) for _, _, fact in others]
    return commands


def _behind(gone: Mapping[str, str | None], name: str) -> tuple[str, str | None]:
    """Follow facts that contradicted one another: return the last that is gone, and the one behind it, if any."""
    last, seen = name, {name}
    while (following := gone.get(last)) in gone and following is not None and following not in seen:
        seen.add(following)
        last = following
    return last, None if following in seen else following


def _command(forgotten: Forgotten, fact: Contradicted, replaced_by: str | None) -> FactCommanded:
    """Return the command for a fact that holds again, or that another fact contradicts now."""
    return FactCommanded(
        command_id=f"contradicted/{fact.fact_id}/{fact.version}",
        scope=fact.scope,
        action="unmerge",
        fact_id=fact.fact_id,
        expected_version=fact.version,
        by="forgetting",
        asked_by=forgotten.asked_by,
        reason="what contradicted it is forgotten",
        asked_at=max(forgotten.forgotten_at, fact.held_from),
        said_at=fact.held_from,
        forgotten=(forgotten.key(),),
        replaced_by=replaced_by,
    )


REASON = "forgotten"
_VERSION = re.compile("[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class Resting:
    """A stored fact or reflection that names what was forgotten."""

    kind: Forgettable
    """`fact` or `reflection`."""
    id: str
    scope: Scope
    sources: tuple[SourceMessage, ...]
    formed_at: datetime
    versions: int = 1
    """Its highest version."""
    contradicted_by: str | None = None
    """The fact that retired a fact by contradicting it."""


@dataclass(frozen=True, slots=True)
class ForgottenMessage:
    """A stored message that is forgotten."""

    message_id: str
    session_id: str
    version: str
    """The newest that was stored."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A bounded part of the memory concerned, in the order facts, reflections, messages."""

    resting: Sequence[Resting] = ()
    told: Sequence[ForgottenMessage] = ()
    last: str | None = None
    """`<kind>/<id>` behind which there may be more; None: this is the end."""


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Reference to one version of a scope's blob."""

    scope: Scope
    version: int

    @property
    def name(self) -> str:
        """`<scope key>@<version>`."""
        return f"{self.scope.key}@{self.version}"

    @staticmethod
    def parse(name: str) -> tuple[str, int] | None:
        """Return scope key and version of a `name`; None if it names no blob version."""
        key, at, version = name.rpartition("@")
        return (key, int(version)) if at and _VERSION.fullmatch(version) else None


@dataclass(slots=True)
class Blobs:
    """The lowest blob version of each scope that holds something forgotten."""

    lowest: dict[str, int] = field(default_factory=dict[str, int])
    scopes: dict[str, Scope] = field(default_factory=dict[str, Scope])
    handled: set[str] = field(default_factory=set[str])
    """Versions of which another Forgotten record has taken care."""

    def holds(self, scope: Scope, version: int) -> None:
        """Note that a version of the scope's blob absorbed something that is forgotten."""
        self.scopes[scope.key] = scope
        self.lowest[scope.key] = min(version, self.lowest.get(scope.key, version))


def mark_of(event: Forgotten) -> Mark:
    """Return the mark that a Forgotten record asks for."""
    return Mark(event.kind, event.id, event.reach, event.version, event.until)


def gone(resting: Iterable[Resting], marks: Marks) -> list[Resting]:
    """Return the facts and reflections that have no source left."""
    return [
        memory for memory in resting if marks.rests_on_nothing(memory.scope, memory.sources, memory.formed_at)
    ]


def reflections_of(event: Forgotten, resting: Iterable[Resting]) -> dict[str, set[str]]:
    """Return the forgotten reflections by scope key."""
    found: dict[str, set[str]] = {}
    for memory in resting:
        if memory.kind == "reflection":
            found.setdefault(memory.scope.key, set()).add(memory.id)
    if event.kind == "reflection" and event.scope is not None:
        found.setdefault(event.scope, set()).add(event.id)
    return found


def follows(
    delivery: Delivery,
    forgotten: Forgotten,
    resting: Sequence[Resting],
    told: Sequence[ForgottenMessage],
    withdrawn: Sequence[BlobRef],
) -> list[Emitted]:
    """Return derived Forgotten records, then tombstones of messages, facts, reflections and blob versions."""
    outgoing: list[Emitted] = [
        _derived(delivery, forgotten, memory.kind, memory.id, memory.scope) for memory in resting
    ]
    outgoing += [_derived(delivery, forgotten, "blob", blob.name, blob.scope) for blob in withdrawn]
    outgoing += [_message(message) for message in told]
    for memory in resting:
        outgoing += _tombstones(memory)
    return outgoing + [
        _erase(ScopeConsolidated, blob.name, blob.scope, blob.scope.key, blob.version) for blob in withdrawn
    ]


def next_slice(delivery: Delivery, forgotten: Forgotten, last: str) -> Emit:
    """Return the record that forgets the next slice, behind `last`; a repeat gives the same record."""
    root = (forgotten.caused_by if forgotten.after is not None else None) or delivery.id
    event = forgotten.model_copy(update={"caused_by": root, "after": last})
    return Emit(event, identity=f"{root}/after/{last}")


def _derived(delivery: Delivery, because: Forgotten, kind: Forgettable, name: str, scope: Scope) -> Emit:
    event = Forgotten(
        kind=kind,
        id=name,
        reach="for_ever",
        because="derived",
        caused_by=delivery.id,
        scope=scope.key,
        asked_by=because.asked_by,
        forgotten_at=because.forgotten_at,
    )
    return Emit(event, identity=f"derived/{kind}/{name}")


def _message(message: ForgottenMessage) -> Erase:
    return Erase(
        MessageRecorded,
        message.message_id,
        message.session_id,
        message.message_id,
        REASON,
        entity_version=message.version,
        scope=message.session_id,
    )


def _tombstones(resting: Resting) -> list[Erase]:
    if resting.kind == "reflection":
        return [
            _erase(ReflectionFormed, key, resting.scope, resting.id, version)
            for version, key in enumerate(_reflection_keys(resting), 1)
        ]
    return [
        _erase(FactChanged, f"{resting.id}@{version}", resting.scope, resting.id, version)
        for version in range(1, resting.versions + 1)
    ]


def _reflection_keys(resting: Resting) -> list[str]:
    return [resting.id, *(f"{resting.id}@{version}" for version in range(2, resting.versions + 1))]


def _erase(of: type[Event], key: str, scope: Scope, subject: str, version: int | None = None) -> Erase:
    entity_version = None if version is None else str(version)
    return Erase(of, key, scope.key, subject, REASON, entity_version=entity_version, scope=scope.key)
