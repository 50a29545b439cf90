"""The memory that an attack led to, what it displaced, and a preview of its undo, from recorded versions. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from itertools import chain
from typing import Any, Literal, NamedTuple

from eden_memory.memory.memory_views import View
from eden_memory.memory.projection import undo_id
from eden_memory.mongo.ids import decode_id
from eden_memory.observability.lineage import Memory, calls_of
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.schemas.ids import encode
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

CauseKind = Literal["message", "session", "user", "import", "call"]
Request = dict[str, Any]
EDITORS = frozenset({"person", "application", "mirror"})
OWN_WORDS = EDITORS | {"forgetting"}
"""Who gives a fact a whole new text, which nothing of the text before is left in."""
REASON = "what had changed it was removed"


@dataclass(frozen=True, slots=True)
class Attack:
    """The cause of memory that is to be undone.

    `id` is typed; of an import the beginning of its items' names (`mem0`, `mem0:17`), of a call as it is counted.
    """

    kind: CauseKind
    id: str

    @property
    def import_prefix(self) -> str:
        """The beginning of the typed ids of an import's items; a name ends where it says so."""
        return encode(f"import:{self.id.removeprefix('import:').rstrip(':')}:")

    def of_source(self, source: SourceMessage) -> bool:
        """Return whether a message is the attack's."""
        match self.kind:
            case "message":
                return source.message_id == self.id
            case "session":
                return source.session_id == self.id
            case "user":
                return source.user_id == self.id
            case "import":
                return source.message_id.startswith(self.import_prefix)
            case "call":
                return False

    def led_to(self, event: Memory) -> bool:
        """Return whether the attack led to this version, alone or with others."""
        if self.kind == "call":
            return self.id in {call.call_id for call in calls_of(event)}
        command = getattr(event, "command", None)
        if self.kind == "import" and command and command.command_id.startswith(self.import_prefix):
            return True
        return any(map(self.of_source, _said(event)))


class RestoredText(NamedTuple):
    """A fact whose text the attack changed, and the text that the other statements support."""

    fact: FactChanged
    text: str
    own_words: bool = False
    """Somebody has edited the fact: its text is added again, because forgetting takes the fact along."""


class WithdrawnBlob(NamedTuple):
    """A scope whose blob loses its versions from `version` on."""

    scope: Scope
    version: int
    anew: bool
    """Whether they absorbed something else, too, so that it is consolidated again."""
    direct: bool
    """Whether the attack led to the version itself, not to what it absorbed."""


@dataclass(slots=True)
class AttackPlan:
    """All that changes when an attack is undone; empty when nothing of it is left."""

    removed: list[FactChanged] = field(default_factory=list[FactChanged])
    """Facts that nothing else supports, in their newest versions."""
    restored: list[RestoredText] = field(default_factory=list[RestoredText])
    returning: list[FactChanged] = field(default_factory=list[FactChanged])
    """Facts that only removed ones had contradicted, or that the cause's own commands had retired."""
    reflections: list[ReflectionFormed] = field(default_factory=list[ReflectionFormed])
    blobs: list[WithdrawnBlob] = field(default_factory=list[WithdrawnBlob])

    def __bool__(self) -> bool:
        return bool(self.removed or self.restored or self.returning or self.reflections or self.blobs)


def plan_of(attack: Attack, events: Sequence[Memory], now: datetime) -> AttackPlan:
    """Return what changes, from all versions of the scopes concerned; what has expired by `now` stays retired."""
    plan, newest = AttackPlan(), dict[str, FactChanged]()
    for versions in _by_fact(events):
        newest[versions[-1].fact_id] = versions[-1]
        _judge(attack, versions, plan)
    removed = {fact.fact_id for fact in plan.removed}
    plan.returning = [
        fact
        for fact in newest.values()
        if (fact.expires_at is None or fact.expires_at > now)
        and fact.fact_id not in removed
        and (
            _retired_by(attack, fact)
            or (fact.retired_because == "contradicted" and _freed(fact, newest, removed))
        )
    ]
    plan.reflections = _reflections(attack, events)
    plan.blobs = list(_blobs(attack, events, {found.reflection_id for found in plan.reflections}))
    return plan


def supported(attack: Attack, versions: Sequence[FactChanged]) -> str | None:
    """Return the text that a fact's other statements support; None where the attack alone led to it.

    Where others wrote over the attack's text, as an update merges both, it goes back to the words of their statement.
    """
    text, shown, tainted = None, None, False
    for version in versions:
        changed, shown = version.text != shown, version.text
        if version.retired_at is not None:
            continue  # what ends a fact does not support it
        if attack.led_to(version):
            tainted |= changed
        elif changed and version.command is not None and version.command.by in OWN_WORDS:
            text, tainted = version.text, False
        elif version.statement is not None and (changed or text is None):
            text = version.statement.text if tainted else version.text
    return text


def requests_of(attack: Attack, plan: AttackPlan, messages: Iterable[str], by: str | None) -> list[Request]:
    """Return the requests that carry a plan out, for one transaction; `messages`: those of an import, typed.

    Forgetting messages states anew what else their facts were merged from. A call has no messages to forget: the
    texts that it changed are edited.
    """
    asked: Request = {"asked_by": by}
    forgets = chain(
        [(attack.kind, decode_id(attack.id))] if attack.kind in ("message", "session", "user") else (),
        (("message", decode_id(message)) for message in messages),
        (("fact", fact.fact_id) for fact in plan.removed if not _goes_anyway(attack, fact)),
        (
            ("reflection", found.reflection_id)
            for found in plan.reflections
            if not _goes_anyway(attack, found)
        ),
        (("blob", f"{blob.scope.key}@{blob.version}") for blob in plan.blobs if blob.direct),
    )
    return [
        *({**asked, "kind": "forget", "what": what, "target": target} for what, target in forgets),
        *(
            {**asked, **_stated(attack, restored)}
            for restored in plan.restored
            if attack.kind == "call" or restored.own_words
        ),
        *({**asked, **_active_again(attack, fact)} for fact in plan.returning if _retired_by(attack, fact)),
    ]


def _stated(attack: Attack, restored: RestoredText) -> Request:
    """Return the request that gives a fact its text again, or adds the words of an editor as a fact."""
    fact = restored.fact
    edit = {"action": "edit", "fact_id": fact.fact_id, "expected_version": fact.version, "by": "forgetting"}
    add = {
        "action": "add",
        "by": "person",
        "said_at": fact.valid_from,
        "expires_at": fact.expires_at,
        "private": fact.private or None,
    }
    return {
        "_id": undo_id(f"{attack.kind}:{attack.id}", fact.fact_id, fact.version),
        "kind": "fact_command",
        "scope": fact.scope.model_dump(mode="json"),
        "text": restored.text,
        "reason": REASON,
        **(add if restored.own_words else edit),
    }


def _active_again(attack: Attack, fact: FactChanged) -> Request:
    """Return the request that makes a fact active again; whoever asked for its retirement asks for this, too."""
    by_audit = fact.command is not None and fact.command.by == "audit"
    return {
        "_id": undo_id(f"{attack.kind}:{attack.id}", fact.fact_id, fact.version),
        "kind": "fact_command",
        "scope": fact.scope.model_dump(mode="json"),
        "action": "unmerge",
        "fact_id": fact.fact_id,
        "expected_version": fact.version,
        "by": "audit" if by_audit else "person",
        "reason": REASON,
    }


def _retired_by(attack: Attack, fact: FactChanged) -> bool:
    """Return whether a command of the cause retired the fact (`eden audit`, an import)."""
    command = fact.command
    retired = fact.retired_at is not None and command is not None and command.action == "retire"
    return attack.kind == "import" and retired and attack.led_to(fact)


def _judge(attack: Attack, versions: Sequence[FactChanged], plan: AttackPlan) -> None:
    newest = versions[-1]
    if all(_leaves_the_text(version) for version in versions if attack.led_to(version)):
        return
    text = supported(attack, versions)
    if text is None:
        plan.removed.append(newest)
    elif newest.retired_at is None and attack.kind != "call" and _edited(versions):
        plan.restored.append(RestoredText(newest, text, own_words=True))
    elif newest.retired_at is None and text != newest.text:
        plan.restored.append(RestoredText(newest, text))


def _leaves_the_text(version: FactChanged) -> bool:
    """Return whether a version only ends the fact, or gives it the sources of one that ends."""
    return version.command is not None and version.command.action == "retire"


def _edited(versions: Sequence[FactChanged]) -> bool:
    """Return whether the newest text of a fact is an editor's."""
    first = next(version for version in versions if version.text == versions[-1].text)
    return first.command is not None and first.command.by in EDITORS


def _freed(fact: FactChanged, newest: dict[str, FactChanged], removed: set[str]) -> bool:
    """Return whether a fact that was contradicted holds again: no fact is left behind the removed ones."""
    seen, name = {fact.fact_id}, fact.replaced_by
    while name in removed and name not in seen:
        seen.add(name)
        name = newest[name].replaced_by if newest[name].retired_because == "contradicted" else None
        if name is None:
            return True
    return False


def _reflections(attack: Attack, events: Sequence[Memory]) -> list[ReflectionFormed]:
    """Return the reflections that the attack led to, and those propagated from them, in their newest versions."""
    formed = [event for event in events if isinstance(event, ReflectionFormed)]
    newest = {event.reflection_id: event for event in sorted(formed, key=lambda event: event.version)}
    found = {event.reflection_id for event in formed if attack.led_to(event)}
    while (
        more := {
            event.reflection_id
            for event in formed
            if event.propagated_from and event.propagated_from.reflection_id in found
        }
        - found
    ):
        found |= more
    return [event for name, event in newest.items() if name in found]


def _blobs(attack: Attack, events: Sequence[Memory], reflections: set[str]) -> Iterable[WithdrawnBlob]:
    """Yield for each scope the lowest blob version that the attack is in."""
    versions = defaultdict[str, list[ScopeConsolidated]](list)
    for event in events:
        if isinstance(event, ScopeConsolidated):
            versions[event.scope.key].append(event)
    for found in versions.values():
        spoilt = [blob for blob in found if attack.led_to(blob) or reflections & {*blob.absorbed}]
        if spoilt:
            lowest = min(spoilt, key=lambda blob: blob.version)
            later = (blob.absorbed for blob in found if blob.version >= lowest.version)
            anew = bool(set(chain.from_iterable(later)) - reflections)
            yield WithdrawnBlob(lowest.scope, lowest.version, anew, attack.led_to(lowest))


def _goes_anyway(attack: Attack, memory: FactChanged | ReflectionFormed) -> bool:
    """Return whether forgetting the attack's messages removes it: it rests on nothing else."""
    return bool(memory.sources) and all(map(attack.of_source, memory.sources))


def _said(event: Memory) -> Sequence[SourceMessage]:
    """Return the messages behind one version."""
    if isinstance(event, FactChanged):
        return event.statement.sources if event.statement else ()
    return event.sources if isinstance(event, ReflectionFormed) else ()


def _by_fact(events: Sequence[Memory]) -> Iterable[list[FactChanged]]:
    found = defaultdict[str, list[FactChanged]](list)
    for event in events:
        if isinstance(event, FactChanged):
            found[event.fact_id].append(event)
    return (sorted(versions, key=lambda version: version.version) for versions in found.values())


Change = Literal[
    "fact_removed",
    "text_restored",
    "fact_reactivated",
    "reflection_removed",
    "blob_withdrawn",
    "blob_consolidated_again",
]
MOST_NAMED = 1_000
"""Memories of a change that a door names."""


@dataclass(frozen=True, slots=True)
class PlannedChange(View):
    """Memories to which the same would happen."""

    change: Change
    count: int
    ids: tuple[str, ...]
    """The first 1,000, in order: of a fact or reflection its id, of a restored text `<fact id>@<version>`, of a blob
    `<scope key>@<version>`, the lowest version that goes."""


@dataclass(frozen=True, slots=True)
class UndoPreview(View):
    """All that an undo would change, without texts; no changes: no memory rests on it."""

    changes: tuple[PlannedChange, ...]
    preview: str
    """Names exactly these changes: give it to `undo`, so that it changes nothing else."""


def preview_of(attack: Attack, plan: AttackPlan) -> UndoPreview:
    """Return what a plan changes."""
    changes: list[tuple[Change, list[str]]] = [(change, sorted(ids)) for change, ids in _changes(plan) if ids]
    names = "\n".join(f"{change} {name}" for change, ids in changes for name in ids)
    digest = sha256(f"{attack.kind}\n{attack.id}\n{names}".encode()).hexdigest()
    planned = (PlannedChange(change, len(ids), tuple(ids[:MOST_NAMED])) for change, ids in changes)
    return UndoPreview(tuple(planned), digest[:32])


def _changes(plan: AttackPlan) -> Iterator[tuple[Change, list[str]]]:
    yield ("fact_removed", [fact.fact_id for fact in plan.removed])
    yield ("text_restored", [text_id(restored.fact) for restored in plan.restored])
    yield ("fact_reactivated", [fact.fact_id for fact in plan.returning])
    yield ("reflection_removed", [found.reflection_id for found in plan.reflections])
    yield ("blob_withdrawn", [_named(blob) for blob in plan.blobs if not blob.anew])
    yield ("blob_consolidated_again", [_named(blob) for blob in plan.blobs if blob.anew])


def text_id(fact: FactChanged) -> str:
    """Return the id of a fact's text in this version."""
    return f"{fact.fact_id}@{fact.version}"


def _named(blob: WithdrawnBlob) -> str:
    return f"{blob.scope.key}@{blob.version}"
