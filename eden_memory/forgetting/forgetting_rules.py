"""Consequences of forgetting: derived marks, tombstones, facts that hold again, and pins that are restored. Pure."""

import hmac
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import groupby
from operator import itemgetter

from eden_memory.forgotten import Mark, Marks
from eden_memory.memory.memory_batch import fact_hash, fact_id, normalised
from eden_memory.memory.projection import restated, to_state_anew
from eden_memory.schemas.documents import Erasure, FactStatement
from eden_memory.schemas.events import (
    Event,
    FactChanged,
    FactCommanded,
    Forgotten,
    MemoryCommanded,
    MemoryCommandRef,
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
    """A stored fact that was retired because another one contradicted it, or says the same."""

    fact_id: str
    version: int
    scope: Scope
    replaced_by: str
    held_from: datetime
    """Since when it held before that."""
    hash: str = ""
    """Of its text."""
    updated: bool = False
    """Another statement had changed its text, to what the other fact says."""


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
        reason="what contradicted it, or said the same, is forgotten",
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
    private: bool = False
    """Whether a fact is marked so; what is left of it stays so."""
    statements: tuple[FactStatement, ...] = ()
    """Of a fact that holds, and is not to be forgotten itself: everything that it was merged from."""
    expires_at: datetime | None = None
    texts: frozenset[str] = frozenset()
    """All that it says or ever said."""
    commands: frozenset[str] = frozenset()
    """Commands that led to its versions."""


@dataclass(frozen=True, slots=True)
class ForgottenMessage:
    """A stored message that is forgotten."""

    message_id: str
    session_id: str
    version: str
    """The newest that was stored."""


@dataclass(frozen=True, slots=True)
class Slice:
    """A bounded part of what is concerned: facts, reflections, scopes, messages, then dead letters."""

    resting: Sequence[Resting] = ()
    scopes: Sequence[Scope] = ()
    """Scopes that belong to the forgotten session or user."""
    told: Sequence[ForgottenMessage] = ()
    letters: Sequence[str] = ()
    """Ids of the dead letters that name it."""
    last: str | None = None
    """`<kind>/<id>` behind which there may be more; None: this is the end."""


@dataclass(frozen=True, slots=True)
class BlobRef:
    """Reference to one version of a scope's blob."""

    scope: Scope
    version: int
    command: str | None = field(default=None, compare=False)
    """The command that led to it, if one did."""

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
    return Mark(event.kind, event.id, event.reach, event.version, event.until, event.because == "asked")


def gone(resting: Iterable[Resting], marks: Marks) -> list[Resting]:
    """Return the facts and reflections that forgetting reaches: their texts cannot be taken apart."""
    return [memory for memory in resting if marks.reaches(memory.scope, memory.sources, memory.formed_at)]


def stated_anew(
    forgotten: Forgotten, resting: Iterable[Resting], marks: Marks, decides: Callable[[Scope], bool]
) -> list[FactCommanded]:
    """Return commands that state again what is left of facts merged from several statements.

    `decides`: whether a model may decide, in one call of the scope, what statements with different texts mean for
    one another; otherwise each becomes a fact of its own, and only those that say the same become one.
    """
    commands: list[FactCommanded] = []
    for memory in resting:
        if marks.scope_gone(memory.scope, memory.formed_at):
            continue
        left = [said for said in memory.statements if not marks.any_gone(said.sources)]
        different = len({fact_hash(said.text) for said in left}) > 1
        commands += [
            restated(
                memory.id,
                said,
                memory.scope,
                asked_by=forgotten.asked_by,
                asked_at=max(forgotten.forgotten_at, memory.formed_at),
                expires_at=memory.expires_at,
                decide=different and decides(memory.scope),
                private=memory.private,
            )
            for said in to_state_anew(left)
        ]
    return commands


def takes_its_place(memory: Resting, commands: Iterable[FactCommanded]) -> str | None:
    """Return the fact that stands for a forgotten one: what began it, stated anew, or what contradicted it."""
    began = f"restated/{memory.id}/1"
    anew = (fact_id(began, memory.scope.key, 1) for command in commands if command.command_id == began)
    return next(anew, memory.contradicted_by)


def held_again(
    forgotten: Forgotten, resting: Iterable[Resting], duplicates: Iterable[Contradicted]
) -> list[FactCommanded]:
    """Return commands for facts that were retired because a fact of `resting` says the same: they hold again.

    So do those that a statement had changed into it. Not if someone asked to forget that fact itself, nor where
    an edit led to the same text.
    """
    gone = {memory.id: memory for memory in resting if memory.kind == "fact"}
    said = {
        name: {fact_hash(text) for text in memory.texts} for name, memory in gone.items() if memory.statements
    }
    return [
        _command(forgotten, fact, None)
        for fact in duplicates
        if fact.fact_id not in gone
        and (texts := said.get(fact.replaced_by)) is not None
        and (fact.updated or fact.hash in texts)
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
        outgoing += [*_tombstones(memory), *_commands(memory)]
    for blob in withdrawn:
        outgoing.append(_erase(ScopeConsolidated, blob.name, blob.scope, blob.scope.key, blob.version))
        if blob.command is not None:
            outgoing.append(_erase(MemoryCommanded, blob.command, blob.scope, blob.command))
    return outgoing


def next_slice(delivery: Delivery, forgotten: Forgotten, last: str) -> Emit:
    """Return the record that forgets the next slice, behind `last`; a repeat gives the same record."""
    root = (forgotten.caused_by if forgotten.after is not None else None) or delivery.id
    event = forgotten.model_copy(update={"caused_by": root, "after": last})
    return Emit(event, identity=f"{root}/after/{last}")


def text_hash(secret: bytes, text: str) -> str:
    """Return the keyed hash of a text: without the secret nobody can try what the text may have been."""
    return hmac.new(secret, b"erased\x00" + normalised(text).encode(), sha256).hexdigest()


def erasure_of(
    delivery: Delivery,
    resting: Sequence[Resting],
    messages: Sequence[str],
    withdrawn: Sequence[BlobRef],
    letters: Sequence[str],
    events: Sequence[Emitted],
    hashed: Callable[[str], str],
) -> Erasure:
    """Return what a decision erases, for the receipt; `hashed` gives a text's keyed hash."""
    forgotten = delivery.event
    assert isinstance(forgotten, Forgotten)
    assert forgotten.kind != "key", "a key leaves nothing to erase"
    named = {
        kind: tuple(f"{memory.id}@{memory.versions}" for memory in resting if memory.kind == kind)
        for kind in ("fact", "reflection")
    }
    published = [event for event in events if isinstance(event, Emit)]
    return Erasure(
        _id=delivery.id,
        kind=forgotten.kind,
        target=forgotten.id,
        asked_by=forgotten.asked_by,
        forgotten_at=forgotten.forgotten_at,
        messages=tuple(messages),
        facts=named["fact"],
        reflections=named["reflection"],
        blobs=tuple(blob.name for blob in withdrawn),
        restated=_ids(published, FactCommanded),
        texts=tuple(sorted(hashed(text) for memory in resting for text in memory.texts)),
        dead_letters=tuple(letters),
        leads_to=_ids(published, Forgotten),
    )


def _ids(published: Iterable[Emit], kind: type[Event]) -> tuple[str, ...]:
    return tuple(emit.identity for emit in published if isinstance(emit.event, kind) and emit.identity)


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


def _commands(resting: Resting) -> list[Erase]:
    """Return tombstones of the commands that hold its texts in topics kept until they are consumed."""
    of = MemoryCommanded if resting.kind == "reflection" else FactCommanded
    return [_erase(of, name, resting.scope, name) for name in sorted(resting.commands)]


def _reflection_keys(resting: Resting) -> list[str]:
    return [resting.id, *(f"{resting.id}@{version}" for version in range(2, resting.versions + 1))]


def _erase(of: type[Event], key: str, scope: Scope, subject: str, version: int | None = None) -> Erase:
    entity_version = None if version is None else str(version)
    return Erase(of, key, scope.key, subject, REASON, entity_version=entity_version, scope=scope.key)


RESTORED_FOR = frozenset({"person", "application", "mirror", "forgetting"})
"""Whose pins are restored; `forgetting` has restored one before."""


@dataclass(frozen=True, slots=True)
class PinnedBlob:
    """What one version of a blob says and pins."""

    version: int
    text: str
    pins: tuple[str, ...]
    command: MemoryCommandRef | None


@dataclass(frozen=True, slots=True)
class WithdrawnPins:
    """The versions of a scope's blob that are withdrawn, oldest first, and the one that readers see then."""

    scope: Scope
    withdrawn: Sequence[PinnedBlob]
    before: PinnedBlob | None

    def versions_with_previous(self) -> Iterator[tuple[PinnedBlob | None, PinnedBlob]]:
        """Yield each withdrawn version with the one before it."""
        return zip((self.before, *self.withdrawn), self.withdrawn, strict=False)


def restored_pins(
    forgotten: Forgotten, blobs: Iterable[WithdrawnPins], own: Collection[str], texts: Iterable[str]
) -> list[MemoryCommanded]:
    """Return commands that pin and unpin again what people did in versions that are withdrawn.

    `own`: keys of the scopes that belong to what is forgotten; `texts`: all that the forgotten memory says. Nothing
    of these is pinned again, nor a sentence that the blob held before it was pinned: it may come from what is
    forgotten, here or by another record.
    The same goes for the sessions of a forgotten user, who may have pinned it.
    """
    said = [normalised(text) for text in texts]
    return [
        command
        for scope_blobs in blobs
        if scope_blobs.scope.key not in own
        and not (forgotten.kind == "user" and scope_blobs.scope.kind == "session")
        for command in _pin_commands(forgotten, scope_blobs, said)
    ]


def _pin_commands(
    forgotten: Forgotten, blobs: WithdrawnPins, said: Sequence[str]
) -> Iterator[MemoryCommanded]:
    newest = blobs.withdrawn[-1]
    before = blobs.before.pins if blobs.before else ()
    unpinned = [pin for pin in before if pin not in newest.pins]
    pinned = [pin for pin in newest.pins if pin not in before]
    for number, sentence in enumerate([*unpinned, *pinned], 1):
        changed = _changed_by_people(blobs, sentence)
        if changed is None or f"{blobs.scope.key}@{changed.version}" == forgotten.id:
            continue
        if sentence in pinned and not _is_of_pinner(blobs, changed, normalised(sentence), said):
            continue
        assert changed.command is not None
        asked_at = changed.command.asked_at
        yield MemoryCommanded(
            command_id=f"repinned/{blobs.scope.key}/{newest.version}/{number}",
            scope=blobs.scope,
            action="pin" if sentence in pinned else "unpin",
            text=sentence,
            by="forgetting",
            asked_by=forgotten.asked_by,
            reason="the blob version that it was based on is forgotten",
            asked_at=max(forgotten.forgotten_at, asked_at),
            said_at=asked_at,
        )


def _changed_by_people(blobs: WithdrawnPins, sentence: str) -> PinnedBlob | None:
    """Return the last version that pinned or unpinned a sentence; None if nobody asked for that."""
    changes = [
        version
        for previous, version in blobs.versions_with_previous()
        if (sentence in version.pins) != (previous is not None and sentence in previous.pins)
    ]
    command = changes[-1].command if changes else None
    return changes[-1] if command is not None and command.by in RESTORED_FOR else None


def _is_of_pinner(blobs: WithdrawnPins, pinned: PinnedBlob, sentence: str, said: Sequence[str]) -> bool:
    """Return whether a sentence is the words of whoever pinned it."""
    if any(text in sentence or sentence in text for text in said):
        return False
    earlier = (version for version in blobs.withdrawn if version.version < pinned.version)
    texts = (version.text for version in (*earlier, blobs.before) if version is not None)
    return not any(sentence in normalised(text) for text in texts)
