"""Rules of consolidation: when a scope is due, what is merged, how the answer is checked, what people may change.
Pure.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from eden_memory.forgotten import Marks, ids_of
from eden_memory.formation.prompt_material import ConsolidationMaterial, DatedText
from eden_memory.limits import (
    ABSORBED_AT_ONCE,
    CHARACTERS_OF_A_WORD,
    CONSOLIDATION_SECONDS,
    SHOWN_OF_A_BUFFER,
    ScopeLimits,
    cut_at_sentence,
    label_of,
    words_of,
)
from eden_memory.memory.snapshot_projection import last_formed, oldest_first, scope_changed
from eden_memory.schemas.answers import ConsolidatedText
from eden_memory.schemas.documents import BufferedReflection, Snapshot
from eden_memory.schemas.events import ScopeChanged
from eden_memory.schemas.events.reflections import MemoryAction
from eden_memory.schemas.scopes import Scope

Refusal = Literal["unknown", "stale", "needless", "absorbed", "too_long", "pinned"]
"""`unknown`: no such reflection, or a retired one; `stale`: another version stands; `needless`: nothing would change;
`absorbed`: a blob holds it; `too_long`: over the scope's word limit; `pinned`: the text lacks a pinned sentence."""


Because = Literal["threshold", "closed", "forgotten"]
TierOf = Callable[[Sequence[str], str | None], Awaitable[int]]
"""Users, or the session whose users they are where none are named → the highest of their tiers; 0 without any."""


@dataclass(frozen=True, slots=True)
class CurrentBlob:
    """A scope's blob as decided so far; version 0: none."""

    version: int = 0
    highest: int = 0
    """The highest version ever given."""
    text: str = ""
    pins: tuple[str, ...] = ()
    consolidated_at: datetime | None = None
    said_at: datetime | None = None


def stored_blob(snapshot: Snapshot | None) -> CurrentBlob:
    """Return the blob that a snapshot holds."""
    if snapshot is None:
        return CurrentBlob()
    return CurrentBlob(
        snapshot.blob_version,
        snapshot.highest_blob_version,
        unversioned(snapshot.blob or ""),
        snapshot.pins,
        snapshot.consolidated_at,
        snapshot.blob_said_at,
    )


@dataclass(frozen=True, slots=True)
class BlobText:
    """The text and the pins that a command gives a blob."""

    text: str
    pins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlobEdit:
    """A change of a scope's blob that somebody asks for; `text`: the blob's, or the sentence."""

    action: MemoryAction
    text: str
    expected_version: int | None = None

    def applied_to(self, blob: CurrentBlob, limits: ScopeLimits) -> BlobText | Refusal:
        """Return the blob's next text, or why there is none."""
        if self.expected_version not in (None, blob.version):
            return "stale"
        changed = self._changed(blob)
        if isinstance(changed, BlobText) and words_of(changed.text) > limits.blob_words:
            return "too_long"
        return changed

    def _changed(self, blob: CurrentBlob) -> BlobText | Refusal:
        match self.action:
            case "pin":
                return self._pinned(blob, one_line(self.text))
            case "unpin":
                return self._unpinned(blob, one_line(self.text))
            case _:
                return self._edited(blob, unversioned(self.text.strip()))

    def _edited(self, blob: CurrentBlob, text: str) -> BlobText | Refusal:
        if text == blob.text:
            return "needless"
        return "pinned" if missing_pins(text, blob.pins) else BlobText(text, blob.pins)

    def _pinned(self, blob: CurrentBlob, sentence: str) -> BlobText | Refusal:
        if sentence in blob.pins:
            return "needless"
        return BlobText(with_pins(blob.text, (sentence,)), (*blob.pins, sentence))

    def _unpinned(self, blob: CurrentBlob, sentence: str) -> BlobText | Refusal:
        if sentence not in blob.pins:
            return "unknown"
        return BlobText(blob.text, tuple(pin for pin in blob.pins if pin != sentence))


_VERSION_LINE = re.compile(r"\A\[VERSION \d+\](?:\n|\Z)")


def versioned(text: str, version: int, limits: ScopeLimits) -> str:
    """Return a blob's text as it is stored: below its version, where the scope's stream says so."""
    return f"[VERSION {version}]\n{text}" if limits.version_line else text


def unversioned(text: str) -> str:
    """Return a blob's text without the line of its version."""
    return _VERSION_LINE.sub("", text)


def one_line(text: str) -> str:
    """Return a sentence without line breaks and doubled spaces."""
    return " ".join(text.split())


def missing_pins(text: str, pins: Sequence[str]) -> list[str]:
    """Return the pinned sentences that a text lacks; line breaks and spaces do not count."""
    said = one_line(text)
    return [pin for pin in pins if pin not in said]


def with_pins(text: str, pins: Sequence[str]) -> str:
    """Return the text, the pinned sentences that it lacks below it, each on a line of its own."""
    return "\n".join([*filter(None, [text.strip()]), *missing_pins(text, pins)])


@dataclass(frozen=True, slots=True)
class Merge:
    """The material of one version of a scope's blob."""

    scope: Scope
    version: int
    """The version to be made."""
    based_on: int
    blob: str | None
    blob_said_at: datetime | None
    """The newest `said_at` that the blob holds."""
    pins: tuple[str, ...]
    """Sentences that the text keeps."""
    reflections: tuple[BufferedReflection, ...]
    """Oldest first."""
    because: Because

    @property
    def shown(self) -> tuple[str, ...]:
        """The version it is based on and the reflections absorbed, as stored beside the answer."""
        return (str(self.based_on), *(reflection.reflection_id for reflection in self.reflections))

    @property
    def writes(self) -> list[str]:
        """The version to be made, and the next of each reflection: one that is decided already ends this merge."""
        next_versions = (f"reflection:{item.reflection_id}@{item.version + 1}" for item in self.reflections)
        return [f"blob:{self.scope.key}@{self.version}", *next_versions]

    @property
    def consolidated_at(self) -> datetime:
        """The time at which the newest reflection was formed."""
        return max(reflection.formed_at for reflection in self.reflections)

    @property
    def said_at(self) -> datetime:
        """The newest `said_at` of the reflections and of the blob before."""
        said = [reflection.said_at for reflection in self.reflections]
        return max(said if self.blob_said_at is None else [*said, self.blob_said_at])


def may_be_due(changes: Sequence[ScopeChanged], limits: ScopeLimits) -> bool:
    """Return whether the snapshot is worth reading after these changes; :func:`due` then judges it."""
    last = changes[-1]
    taken_back = any("blob" in change.changed for change in changes)
    return (
        limits.active
        and last.buffered > 0
        and (last.closed or taken_back or last.buffered >= limits.threshold)
    )


def due(snapshot: Snapshot, limits: ScopeLimits) -> Because | None:
    """Return why a scope is to consolidate now; None if it is not."""
    if not (snapshot.buffer and limits.active):
        return None
    if snapshot.closed:
        return "closed"
    if _taken_back(snapshot):
        return "forgotten"
    waiting = len(snapshot.buffer)
    all_shown = waiting <= SHOWN_OF_A_BUFFER * limits.threshold
    if waiting < limits.threshold or (all_shown and _too_soon(snapshot)):
        return None
    return "threshold"


def _taken_back(snapshot: Snapshot) -> bool:
    """Return whether the newest blob was forgotten, so that the rest of what it absorbed waits for a new one."""
    return snapshot.highest_blob_version > snapshot.blob_version


def _too_soon(snapshot: Snapshot) -> bool:
    """Return whether the last consolidation is too near, in the windows' time; older windows may come late."""
    if snapshot.consolidated_at is None:
        return False
    newest = last_formed(snapshot.buffer) or snapshot.consolidated_at
    return abs((newest - snapshot.consolidated_at).total_seconds()) < CONSOLIDATION_SECONDS


def users_of(scope: Scope) -> tuple[str, ...]:
    """Return the users whose tier chooses the model: a user's own, a session's listed users; else none."""
    if scope.user_id is not None:
        return (scope.user_id,)
    return scope.audience if isinstance(scope.audience, tuple) else ()


def asked_of_forgetting(scope: Scope, snapshot: Snapshot) -> set[tuple[str, str]]:
    """Return (kind, target) of everything whose forgetting would concern this consolidation."""
    named = ids_of(scope, ()) | {("reflection", reflection.reflection_id) for reflection in snapshot.buffer}
    return named | {("blob", f"{scope.key}@{snapshot.blob_version}")}


def merge_of(scope: Scope, snapshot: Snapshot, marks: Marks, limits: ScopeLimits) -> Merge | None:
    """Return the next merge of a scope; None where nothing is to be done (yet)."""
    because = due(snapshot, limits)
    stands = tuple(
        reflection for reflection in oldest_first(snapshot.buffer) if not _gone(reflection, scope, marks)
    )
    forgotten_blob = snapshot.blob_version and marks.entity_gone("blob", scope.key, snapshot.blob_version)
    if because is None or not stands or forgotten_blob:
        return None  # a forgotten blob: the writer takes it back first
    return Merge(
        scope,
        snapshot.highest_blob_version + 1,
        snapshot.blob_version,
        snapshot.blob and unversioned(snapshot.blob),
        snapshot.blob_said_at,
        snapshot.pins,
        stands[:ABSORBED_AT_ONCE],
        because,
    )


def _gone(reflection: BufferedReflection, scope: Scope, marks: Marks) -> bool:
    return marks.entity_gone("reflection", reflection.reflection_id, 1) or marks.scope_gone(
        scope, reflection.formed_at
    )


def as_shown(shown: Sequence[str], merge: Merge, snapshot: Snapshot, marks: Marks) -> Merge | None:
    """Return the merge that an earlier answer was given for; None where that no longer stands."""
    based_on, *names = shown or ("",)
    by_name = {
        reflection.reflection_id: reflection
        for reflection in snapshot.buffer
        if not _gone(reflection, merge.scope, marks)
    }
    if based_on != str(merge.based_on) or not names or not set(names) <= set(by_name):
        return None
    return replace(merge, reflections=tuple(by_name[name] for name in names))


def material_of(merge: Merge, limits: ScopeLimits, language: str | None = None) -> ConsolidationMaterial:
    """Return the values that the prompt is rendered from."""
    return ConsolidationMaterial(
        label=label_of(merge.scope),
        blob=merge.blob,
        buffer=tuple(DatedText(reflection.said_at, reflection.content) for reflection in merge.reflections),
        guidance=limits.consolidation_guidance,
        words=limits.blob_words,
        blob_said_at=merge.blob_said_at,
        pins=merge.pins,
        language=language,
    )


def shortcoming(answer: ConsolidatedText, limit: int, pins: Sequence[str] = ()) -> str | None:
    """Return the complaint about a text that is empty, too long, or lacks a pinned sentence; None if it is fine."""
    words = words_of(answer.text)
    if words == 0:
        return "The text is empty. Return the whole consolidated text."
    if not _fits(answer.text, limit):
        return (
            f"The text has {words} words, {len(answer.text)} characters; at most {limit} words are allowed. "
            "Return it shorter, without losing what matters most."
        )
    if missing_pins(answer.text, pins):
        return (
            "Sentences that must stay word for word are missing or changed. Return the text with all of them."
        )
    return None


def within_limit(answer: ConsolidatedText, limit: int, pins: Sequence[str] = ()) -> tuple[str, bool]:
    """Return the text with its pinned sentences, the rest cut to the limit where needed, and whether it was cut."""
    text = unversioned(answer.text.strip())
    if not text or _fits(with_pins(text, pins), limit):
        return with_pins(text, pins) if text else text, False
    room = limit - words_of("\n".join(pins))
    cut = cut_at_sentence(text, max(room, 1))[: max(room, 1) * CHARACTERS_OF_A_WORD].rstrip()
    return with_pins(cut if room > 0 else "", pins), True


def _fits(text: str, limit: int) -> bool:
    """Return whether a text keeps to the limit of words, and of characters (for text without spaces)."""
    return words_of(text) <= limit and len(text) <= limit * CHARACTERS_OF_A_WORD


def change_of(snapshot: Snapshot) -> ScopeChanged:
    """Return the announcement of an unchanged scope, for scopes that the due scan finds."""
    return scope_changed(snapshot, ("blob",) if _taken_back(snapshot) else ())
