"""What follows from forgetting something: derived marks and tombstones. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from eden_memory.forgetting.contradicted import Contradicted
from eden_memory.forgotten import Mark, Marks
from eden_memory.schemas.events import (
    FactChanged,
    Forgotten,
    MessageRecorded,
    ReflectionFormed,
    ScopeConsolidated,
)
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.stage import Delivery, Emit, Erase, Outgoing

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
    """The highest version of a fact."""
    contradicted_by: str | None = None
    """The fact that retired a fact by contradicting it."""


@dataclass(frozen=True, slots=True)
class Told:
    """A stored message that is forgotten."""

    message_id: str
    session_id: str
    version: str
    """The newest that was stored."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A bounded part of what is concerned, in the order facts, reflections, messages."""

    resting: Sequence[Resting] = ()
    told: Sequence[Told] = ()
    last: str | None = None
    """`<kind>/<id>` behind which there may be more; None: this is the end."""


@dataclass(frozen=True, slots=True)
class BlobVersion:
    """One version of a scope's blob."""

    scope: Scope
    version: int

    @property
    def name(self) -> str:
        """`<scope key>@<version>`."""
        return f"{self.scope.key}@{self.version}"

    @staticmethod
    def parse(name: str) -> tuple[str, int] | None:
        """Scope key and version out of a `name`; None for what names no blob version."""
        key, at, version = name.rpartition("@")
        return (key, int(version)) if at and _VERSION.fullmatch(version) else None


@dataclass(slots=True)
class Blobs:
    """For each scope the lowest blob version that holds something forgotten."""

    lowest: dict[str, int] = field(default_factory=dict[str, int])
    scopes: dict[str, Scope] = field(default_factory=dict[str, Scope])
    handled: set[str] = field(default_factory=set[str])
    """Versions of which another Forgotten record has taken care."""

    def holds(self, scope: Scope, version: int) -> None:
        """A version of the scope's blob absorbed something that is forgotten."""
        self.scopes[scope.key] = scope
        self.lowest[scope.key] = min(version, self.lowest.get(scope.key, version))


def mark_of(event: Forgotten) -> Mark:
    """The mark that a Forgotten record asks for."""
    return Mark(event.kind, event.id, event.reach, event.version, event.until)


def gone(resting: Iterable[Resting], marks: Marks) -> list[Resting]:
    """Those of which no source is left."""
    return [one for one in resting if marks.rests_on_nothing(one.scope, one.sources, one.formed_at)]


def reflections_of(event: Forgotten, resting: Iterable[Resting]) -> dict[str, set[str]]:
    """The forgotten reflections by scope key."""
    found: dict[str, set[str]] = {}
    for one in resting:
        if one.kind == "reflection":
            found.setdefault(one.scope.key, set()).add(one.id)
    if event.kind == "reflection" and event.scope is not None:
        found.setdefault(event.scope, set()).add(event.id)
    return found


def follows(
    delivery: Delivery,
    forgotten: Forgotten,
    resting: Sequence[Resting],
    told: Sequence[Told],
    withdrawn: Sequence[BlobVersion],
) -> list[Outgoing]:
    """Derived Forgotten records first, then the tombstones: of messages, facts, reflections, blob versions."""
    outgoing: list[Outgoing] = [_derived(delivery, forgotten, one.kind, one.id, one.scope) for one in resting]
    outgoing += [_derived(delivery, forgotten, "blob", one.name, one.scope) for one in withdrawn]
    outgoing += [_message(one) for one in told]
    for one in resting:
        outgoing += _facts(one) if one.kind == "fact" else [_reflection(one)]
    return outgoing + [_blob(one) for one in withdrawn]


def next_slice(delivery: Delivery, forgotten: Forgotten, last: str) -> Emit:
    """The same is forgotten from behind `last` on: a decision of its own, however often this one is repeated."""
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


def _message(one: Told) -> Erase:
    return Erase(
        MessageRecorded,
        one.message_id,
        one.session_id,
        one.message_id,
        REASON,
        entity_version=one.version,
        scope=one.session_id,
    )


def _facts(one: Resting) -> list[Outgoing]:
    return [
        Erase(
            FactChanged,
            f"{one.id}@{version}",
            one.scope.key,
            one.id,
            REASON,
            entity_version=str(version),
            scope=one.scope.key,
        )
        for version in range(1, one.versions + 1)
    ]


def _reflection(one: Resting) -> Erase:
    return Erase(ReflectionFormed, one.id, one.scope.key, one.id, REASON, scope=one.scope.key)


def _blob(one: BlobVersion) -> Erase:
    key = one.scope.key
    return Erase(ScopeConsolidated, one.name, key, key, REASON, entity_version=str(one.version), scope=key)


class ForgettingStore(Protocol):
    """What forgetting looks for, and what it erases itself: texts that wait, never memory."""

    async def mark(self, marks: Iterable[Mark], event_id: str, at: datetime) -> None:
        """Store marks, acknowledged by a majority; those that stand already are left as they are."""
        ...

    async def slice_of(self, mark: Mark, after: str | None, most: int) -> Slice:
        """Up to `most` facts, reflections and stored messages that are meant or name it, from behind `after` on."""
        ...

    async def blob(self, name: str) -> Blobs:
        """The blob version `KEY@N`, if there is one."""
        ...

    async def absorbing(self, reflections: Mapping[str, Iterable[str]], event_id: str) -> Blobs:
        """For each scope key the lowest blob version, stored or only decided, that lists any of its reflections.

        Versions that another Forgotten record has marked do not count: it withdraws them and all later ones.
        """
        ...

    async def versions_from(self, blobs: Blobs) -> Sequence[BlobVersion]:
        """For each scope its blob versions from the lowest named one on, with those decided from one of them."""
        ...

    async def marked_by_others(self, names: Iterable[str], event_id: str) -> set[str]:
        """Those of the blob versions (`KEY@N`) that another Forgotten record has marked."""
        ...

    async def contradicted_by(self, fact_ids: Iterable[str]) -> Sequence[Contradicted]:
        """The facts that were retired because one of these contradicted them."""
        ...

    async def erase_texts(self, message_ids: Iterable[str], up_to: str | None) -> None:
        """Erase the texts of messages that wait or stand in closed windows, and note that they are forgotten.

        With `up_to`, a deletion: only versions up to that one lose their text, and nothing is noted.
        """
        ...
