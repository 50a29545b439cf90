"""When a scope's buffer is merged into its blob, what of it, and what becomes of the answer. Pure."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, Protocol

from eden_memory.constants import ABSORBED_AT_ONCE, CONSOLIDATION_SECONDS
from eden_memory.forgotten import Marks, ids_of
from eden_memory.formation.prompt_material import ConsolidationMaterial, DatedText
from eden_memory.memory.buffer_order import last_formed, oldest_first
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.documents import BufferedReflection, Snapshot
from eden_memory.schemas.events import ScopeChanged
from eden_memory.schemas.scopes import Scope, ScopeKind
from eden_memory.scope_limits import ScopeLimits, label_of
from eden_memory.word_limits import CHARACTERS_OF_A_WORD, cut_at_sentence, words_of

Because = Literal["threshold", "closed", "forgotten"]


TierOf = Callable[[Sequence[str], str | None], Awaitable[int]]
"""Users, or the session whose users they are where none are named → the highest of their tiers; 0 without any."""


@dataclass(frozen=True, slots=True)
class Merge:
    """What one version of a scope's blob is to be made from."""

    scope: Scope
    version: int
    """The blob's next one."""
    based_on: int
    blob: str | None
    blob_said_at: datetime | None
    """The newest `said_at` that the blob holds."""
    reflections: tuple[BufferedReflection, ...]
    """Oldest first."""
    because: Because

    @property
    def shown(self) -> tuple[str, ...]:
        """Kept beside the answer: on which version it was based, and the reflections absorbed."""
        return (str(self.based_on), *(one.reflection_id for one in self.reflections))

    @property
    def consolidated_at(self) -> datetime:
        """When the newest of the reflections was formed."""
        return max(one.formed_at for one in self.reflections)

    @property
    def said_at(self) -> datetime:
        """The newest time that the new blob holds: of the reflections, and of the blob before it."""
        said = [one.said_at for one in self.reflections]
        return max(said if self.blob_said_at is None else [*said, self.blob_said_at])


def may_be_due(changes: Sequence[ScopeChanged], limits: ScopeLimits) -> bool:
    """Whether the snapshot is worth reading after these changes; it is the judge (:func:`due`)."""
    last = changes[-1]
    taken_back = any("blob" in one.changed for one in changes)
    return (
        limits.active
        and last.buffered > 0
        and (last.closed or taken_back or last.buffered >= limits.threshold)
    )


def due(snapshot: Snapshot, limits: ScopeLimits) -> Because | None:
    """Why a scope is to consolidate now, if it is."""
    if not (snapshot.buffer and limits.active):
        return None
    if snapshot.closed:
        return "closed"
    if _taken_back(snapshot):
        return "forgotten"
    if len(snapshot.buffer) < limits.threshold or _too_soon(snapshot):
        return None
    return "threshold"


def _taken_back(snapshot: Snapshot) -> bool:
    """Whether the newest blob was forgotten, and what else it had absorbed waits for a new one."""
    return snapshot.highest_blob_version > snapshot.blob_version


def _too_soon(snapshot: Snapshot) -> bool:
    """Within the windows' time that must lie between two consolidations; older ones that come late count too."""
    if snapshot.consolidated_at is None:
        return False
    newest = last_formed(snapshot.buffer) or snapshot.consolidated_at
    return abs((newest - snapshot.consolidated_at).total_seconds()) < CONSOLIDATION_SECONDS


def users_of(scope: Scope) -> tuple[str, ...]:
    """The users whose tier chooses the model: a user's own, a session's listed users; nobody's for wider scopes."""
    if scope.user_id is not None:
        return (scope.user_id,)
    return scope.audience if isinstance(scope.audience, tuple) else ()


def asked_of_forgetting(scope: Scope, snapshot: Snapshot) -> set[tuple[str, str]]:
    """(kind, target) of everything whose forgetting would concern this consolidation."""
    named = ids_of(scope, ()) | {("reflection", one.reflection_id) for one in snapshot.buffer}
    return named | {("blob", f"{scope.key}@{snapshot.blob_version}")}


def merge_of(scope: Scope, snapshot: Snapshot, marks: Marks, limits: ScopeLimits) -> Merge | None:
    """The next merge of a scope; None where nothing is to be done (yet)."""
    because = due(snapshot, limits)
    stands = tuple(one for one in oldest_first(snapshot.buffer) if not _gone(one, scope, marks))
    forgotten_blob = snapshot.blob_version and marks.entity_gone("blob", scope.key, snapshot.blob_version)
    if because is None or not stands or forgotten_blob:
        return None  # a forgotten blob: the writer takes it back first
    return Merge(
        scope,
        snapshot.highest_blob_version + 1,
        snapshot.blob_version,
        snapshot.blob,
        snapshot.blob_said_at,
        stands[:ABSORBED_AT_ONCE],
        because,
    )


def _gone(one: BufferedReflection, scope: Scope, marks: Marks) -> bool:
    return marks.entity_gone("reflection", one.reflection_id, 1) or marks.scope_gone(scope, one.formed_at)


def as_shown(shown: Sequence[str], merge: Merge, snapshot: Snapshot, marks: Marks) -> Merge | None:
    """The merge that an earlier answer was given for; None where that no longer stands."""
    based_on, *names = shown or ("",)
    by_name = {one.reflection_id: one for one in snapshot.buffer if not _gone(one, merge.scope, marks)}
    if based_on != str(merge.based_on) or not names or not set(names) <= set(by_name):
        return None
    return replace(merge, reflections=tuple(by_name[name] for name in names))


def material_of(merge: Merge, limits: ScopeLimits) -> ConsolidationMaterial:
    """What the prompt is rendered from."""
    return ConsolidationMaterial(
        label=label_of(merge.scope),
        blob=merge.blob,
        buffer=tuple(DatedText(one.said_at, one.content) for one in merge.reflections),
        guidance=limits.consolidation_guidance,
        words=limits.blob_words,
        blob_said_at=merge.blob_said_at,
    )


def shortcoming(answer: ConsolidatedText, limit: int) -> str | None:
    """What the model is told once: its text is empty, or over the limit."""
    words = words_of(answer.text)
    if words == 0:
        return "The text is empty. Return the whole consolidated text."
    if not _fits(answer.text, limit):
        return (
            f"The text has {words} words, {len(answer.text)} characters; at most {limit} words are allowed. "
            "Return it shorter, without losing what matters most."
        )
    return None


def within_limit(answer: ConsolidatedText, limit: int) -> tuple[str, bool]:
    """The text, never over its limit, and whether it had to be cut."""
    text = answer.text.strip()
    if _fits(text, limit):
        return text, False
    return cut_at_sentence(text, limit)[: limit * CHARACTERS_OF_A_WORD].rstrip(), True


def _fits(text: str, limit: int) -> bool:
    """Text that has no spaces is bounded too."""
    return words_of(text) <= limit and len(text) <= limit * CHARACTERS_OF_A_WORD


def change_of(snapshot: Snapshot) -> ScopeChanged:
    """What the writer would announce of a scope that has not changed: for scopes found without an event."""
    return ScopeChanged(
        scope=Scope.of_key(snapshot.scope_key, snapshot.agent_id, snapshot.audience),
        revision=snapshot.revision,
        changed=("blob",) if _taken_back(snapshot) else (),
        applied=snapshot.applied,
        active_facts=snapshot.active_facts,
        buffered=len(snapshot.buffer),
        newest_buffered_at=last_formed(snapshot.buffer),
        blob_version=snapshot.blob_version,
        consolidated_at=snapshot.consolidated_at,
        closed=snapshot.closed,
        committed_at=snapshot.changed_at,
    )


class ConsolidationWatch(Protocol):
    """Who counts consolidations."""

    def consolidated(self, kind: ScopeKind, because: Because, *, cut: bool) -> None:
        """A blob's version is decided; `cut`: it was over its limit twice."""
        ...


class BlobsDecided(Protocol):
    """Which versions of blobs are decided, whether the writer has applied them or not."""

    async def blob_decided(self, scope_key: str, version: int) -> bool:
        """Whether this version of a scope's blob is decided."""
        ...
