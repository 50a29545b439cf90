"""People's own edits of facts: the change that is still in force of each fact. Pure.

A reform forms facts from conversations alone, so what people, applications, mirrors and imports added, edited or
retired (`by` of the commands that facts name) has to be applied to it again.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal

from eden_memory.formation.known_facts import KnownFact
from eden_memory.memory.fact_hash import fact_hash
from eden_memory.schemas.documents import Fact, FactVersion
from eden_memory.schemas.events import CommandRef, FactCommanded
from eden_memory.schemas.events.facts import By
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

PEOPLE: frozenset[By] = frozenset({"person", "application", "mirror", "import"})
"""Who wants a change that no formation makes again."""

Kind = Literal["add", "edit", "retire"]
EditOutcome = Literal["applied", "already", "unmatched", "outdated"]
REWORDED, ENDED = "reworded by a formation since", "no longer held since"
COMMAND = "own/"
"""Begins the ids of the commands that apply a change again."""
SAID_AGAIN = "said again since"


@dataclass(frozen=True, slots=True)
class UserEdit:
    """People's edit of one fact: all their commands on it together."""

    fact_id: str
    """In the memory that they changed."""
    scope: Scope
    kind: Kind
    before: tuple[str, ...]
    """edit, retire: the texts that the fact had until then, newest first; add: texts that people gave it earlier."""
    after: str | None
    """add, edit: the text that it has now."""
    command: CommandRef
    """The last of the commands."""
    at: datetime
    """When it was asked."""
    reason: str | None = None
    expires_at: datetime | None = None
    sources: tuple[SourceMessage, ...] = ()
    vector: bytes | None = None
    """Of `after`, of `embedding_model`."""
    embedding_model: str | None = None
    theirs: bool = False
    """People had added the fact in the first place: no formation says it by itself."""
    said_at: datetime | None = None
    """add: since when the text is true."""
    private: bool = False
    """add: whether the fact is private."""
    outdated: str | None = None
    """Why it is no longer in force; None: it is."""

    @property
    def id(self) -> str:
        """Names the change: another one once another command has followed."""
        return blake2b(f"{self.command.command_id}\x00{self.fact_id}".encode(), digest_size=16).hexdigest()


def user_edit(fact: Fact, scope: Scope, merged_into: Fact | None = None) -> UserEdit | None:
    """Return people's edit of a stored fact; None: nothing of what is kept of its history.

    `merged_into`: the fact that replaced it, where it was retired as a duplicate.
    """
    versions = [*reversed(fact.history), _newest(fact)]
    theirs = [
        index
        for index, version in enumerate(versions)
        if version.command and version.command.by in PEOPLE and version.command.action != "mark"
    ]
    if not theirs:
        return None
    last = versions[theirs[-1]]
    assert last.command is not None
    kind = _kind(versions, theirs)
    merged = merged_into if last.decision == "EDIT" and theirs[-1] == len(versions) - 1 else None
    after = None if kind == "retire" else (merged.content if merged is not None else last.content)
    earlier = [versions[index] for index in theirs] if kind == "add" else versions[: theirs[-1] + 1]
    return UserEdit(
        fact_id=fact.id,
        scope=scope,
        kind=kind,
        before=_texts(earlier, after),
        after=after,
        command=last.command,
        at=last.command.asked_at or last.valid_from,
        reason=last.reason,
        expires_at=fact.expires_at if after is not None else None,
        sources=fact.sources if kind == "add" else (),
        vector=fact.embedding,
        embedding_model=fact.embedding_model,
        theirs=_adds(versions[0]),
        said_at=last.valid_from if kind == "add" else None,
        private=kind == "add" and fact.private,
        outdated=_outdated(fact, merged, versions[theirs[-1] :], kind),
    )


def _newest(fact: Fact) -> FactVersion:
    return FactVersion(
        version=fact.version,
        content=fact.content,
        decision=fact.decision,
        reason=fact.reason,
        valid_from=fact.valid_from,
        command=fact.command,
        call=fact.call,
    )


def _kind(versions: Sequence[FactVersion], theirs: Sequence[int]) -> Kind:
    """A fact that people added is an addition, whatever else they did to it before they retired it."""
    last = versions[theirs[-1]].command
    assert last is not None
    if last.action == "retire":
        return "retire"
    return "add" if any(_adds(versions[index]) for index in theirs) else "edit"


def _adds(version: FactVersion) -> bool:
    return version.command is not None and version.command.action == "add"


def _texts(versions: Sequence[FactVersion], after: str | None) -> tuple[str, ...]:
    """Newest first, each once, without what the fact says now."""
    seen = set[str]() if after is None else {fact_hash(after)}
    texts: list[str] = []
    for version in reversed(versions):
        if (text_hash := fact_hash(version.content)) not in seen:
            seen.add(text_hash)
            texts.append(version.content)
    return tuple(texts)


def _outdated(fact: Fact, merged: Fact | None, since: Sequence[FactVersion], kind: Kind) -> str | None:
    """Formation goes on: what it has made of the fact since then stands above the change."""
    if kind == "retire":
        return None
    if any(version.decision in ("UPDATE", "DELETE") for version in since[1:]):
        return REWORDED if fact.active else ENDED
    if fact.active or fact.retired_because == "duplicate":
        return ENDED if merged is not None and not merged.active else None
    return ENDED


@dataclass(frozen=True, slots=True)
class SettledEdit:
    """One change, and what it met."""

    change: UserEdit
    outcome: EditOutcome
    fact_id: str | None = None
    """The fact that it is about in the other memory; None for an addition, and where nothing matches."""
    text: str | None = None
    """The fact's text; of an unmatched edit the nearest text, if there is any."""
    similarity: float | None = None
    """(1 + cosine) / 2; None: the very text."""
    why: str | None = None
    """Why it is outdated."""

    def json_object(self) -> dict[str, Any]:
        """Return it as a report shows it (docs/replay.md)."""
        change = self.change
        nearest = None if self.text is None else {"text": self.text, "similarity": self.similarity}
        return {
            "fact_id": change.fact_id,
            "scope_key": change.scope.key,
            "kind": change.kind,
            "before": list(change.before),
            "after": change.after,
            "by": change.command.by,
            "asked_by": change.command.asked_by,
            "at": change.at.isoformat(),
            "nearest": nearest,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class AppliedAdditions:
    """Reflections that people added and sentences that they pinned, and what a reform cannot apply."""

    applied: int = 0
    already: int = 0
    not_applied: int = 0
    """Formed reflections and blobs that people edited or retired: for them to look at."""
    marked: int = 0
    """What rests on the messages of private memory, and is marked as private, too."""

    def __bool__(self) -> bool:
        return any((self.applied, self.already, self.not_applied, self.marked))


@dataclass(frozen=True, slots=True)
class AppliedEdits:
    """All changes of facts, each once, by scope key, then by time; of other memory, how many."""

    applied: tuple[SettledEdit, ...] = ()
    """A command was given (or would be, where nothing is published)."""
    already: tuple[SettledEdit, ...] = ()
    """Nothing to do."""
    unmatched: tuple[SettledEdit, ...] = ()
    """Edits and retirements of what the other memory does not say: for people to look at."""
    outdated: tuple[SettledEdit, ...] = ()
    """Formation has since reworded or ended what people had changed: also for people to look at."""
    additions: AppliedAdditions = AppliedAdditions()

    def json_object(self, most: int | None) -> dict[str, Any]:
        """Return them as a report shows them; `most` in each list (None: all)."""
        return {
            "to_apply": len(self.applied),
            "already": len(self.already),
            "unmatched": [settled.json_object() for settled in self.unmatched[:most]],
            "unmatched_count": len(self.unmatched),
            "outdated": [settled.json_object() for settled in self.outdated[:most]],
            "outdated_count": len(self.outdated),
            "additions": asdict(self.additions),
        }

    def without(self, earlier: "AppliedEdits") -> "AppliedEdits":
        """Return what is new since the memory was asked for all of this before."""
        known = {
            settled.change.id
            for before in (earlier.applied, earlier.already, earlier.unmatched, earlier.outdated)
            for settled in before
        }
        applied, already, unmatched, outdated = (
            tuple(settled for settled in found if settled.change.id not in known)
            for found in (self.applied, self.already, self.unmatched, self.outdated)
        )
        not_applied = max(0, self.additions.not_applied - earlier.additions.not_applied)
        additions = replace(self.additions, already=0, not_applied=not_applied)
        return AppliedEdits(applied, already, unmatched, outdated, additions)


@dataclass(frozen=True, slots=True)
class Likely:
    """A fact of the other memory that may be what a change is about."""

    change: UserEdit
    fact: KnownFact
    similarity: float
    text: str
    """Of the change: what the fact is near to."""


@dataclass(slots=True)
class Settling:
    """The changes of one scope."""

    said: Mapping[str, KnownFact]
    """Active facts of the other memory, by hash: those with any of the changes' texts."""
    still: Mapping[str, Set[str]]
    """Hash → active facts of the memory that people changed."""
    done: Mapping[str, KnownFact]
    """Changes that were applied before, by id, and commands by theirs; with the fact that each was applied to."""
    taken: set[str] = field(default_factory=set[str])
    """Facts of the other memory that a change was settled by; grows."""

    def by_text(self, change: UserEdit) -> SettledEdit | None:
        """Settle an edit by its text alone; None: nothing yet."""
        if change.outdated is not None:
            return SettledEdit(change, "outdated", why=change.outdated)
        known = self.done.get(change.id) or self.done.get(change.command.command_id)
        if known is not None:
            return self._settled(change, "already", known)
        if change.kind == "retire" and self.said_elsewhere(change, change.before[0]):
            return SettledEdit(change, "outdated", why=SAID_AGAIN)
        before = self._before(change)
        after = None if change.after is None else self.said.get(fact_hash(change.after))
        if before is not None and not (change.kind == "add" and after is not None):
            return self._settled(change, "applied", before)
        if after is None:
            return None
        expires = change.kind == "edit" and change.expires_at not in (None, after.expires_at)
        return self._settled(change, "applied" if expires else "already", after)

    def best_first(self, likely: Iterable[Likely]) -> list[SettledEdit]:
        """Settle by meaning: each change by one fact, each fact for one change, the most similar first."""
        settled: dict[str, SettledEdit] = {}
        for match in sorted(likely, key=_order):
            if match.change.fact_id not in settled and match.fact.fact_id not in self.taken:
                outcome = "already" if match.change.kind == "add" else "applied"
                settled[match.change.fact_id] = self._settled(
                    match.change, outcome, match.fact, match.similarity
                )
        return list(settled.values())

    def left(self, change: UserEdit, nearest: Likely | None) -> SettledEdit:
        """A change that meets nothing."""
        if change.kind == "add":
            return SettledEdit(change, "applied")
        if change.kind == "retire" and change.theirs:
            return SettledEdit(change, "already")
        if nearest is None:
            return SettledEdit(change, "unmatched")
        return SettledEdit(change, "unmatched", nearest.fact.fact_id, nearest.fact.text, nearest.similarity)

    def said_elsewhere(self, change: UserEdit, text: str) -> bool:
        """Whether another active fact where people changed it says this."""
        return bool(self.still.get(fact_hash(text), frozenset[str]()) - {change.fact_id})

    def free(self, fact: KnownFact) -> bool:
        """Whether a fact may still be taken: nobody has, and no active fact that people left alone says it."""
        return fact.fact_id not in self.taken and not self.still.get(fact.hash)

    def _before(self, change: UserEdit) -> KnownFact | None:
        for text in change.before:
            found = self.said.get(fact_hash(text))
            if found and found.fact_id not in self.taken and not self.said_elsewhere(change, text):
                return found
        return None

    def _settled(
        self, change: UserEdit, outcome: EditOutcome, fact: KnownFact, similarity: float | None = None
    ) -> SettledEdit:
        self.taken.add(fact.fact_id)
        return SettledEdit(change, outcome, fact.fact_id, fact.text, similarity)


def _order(likely: Likely) -> tuple[float, object, str, str]:
    return -likely.similarity, likely.change.at, likely.change.fact_id, likely.fact.fact_id


def texts_of(changes: Iterable[UserEdit]) -> list[str]:
    """All that the facts said, before and after, each once."""
    said = (text for change in changes for text in (*change.before, change.after) if text is not None)
    return list(dict.fromkeys(said))


def wanted_texts(change: UserEdit, most: int) -> list[str]:
    """Return the texts that the other memory's fact may paraphrase, the likeliest first."""
    after = [] if change.after is None else [change.after]
    texts = [*after, *change.before] if change.kind == "add" else [*change.before, *after]
    return texts[:most]


def command_of(settled: SettledEdit) -> FactCommanded:
    """The command that applies a change: the same for the same change and fact, however often it is made."""
    change, fact_id = settled.change, settled.fact_id
    asked = change.command
    name = f"{COMMAND}{change.id}" if fact_id is None else f"{COMMAND}{change.id}/{fact_id}"
    return FactCommanded(
        command_id=name,
        scope=change.scope,
        action="add" if fact_id is None else "retire" if change.kind == "retire" else "edit",
        fact_id=fact_id,
        text=change.after,
        sources=change.sources if fact_id is None else (),
        expires_at=change.expires_at,
        by=asked.by,
        asked_by=asked.asked_by,
        reason=change.reason,
        asked_at=change.at,
        said_at=change.said_at if fact_id is None else None,
        private=(change.private or None) if fact_id is None else None,
    )


def change_of(command_id: str) -> str | None:
    """The id of the change that a command applied again; None: it is none of these commands."""
    if not command_id.startswith(COMMAND):
        return None
    return command_id.removeprefix(COMMAND).partition("/")[0]


def in_order(settled: Sequence[SettledEdit]) -> list[SettledEdit]:
    """By time, then by fact: as commands are given."""
    return sorted(settled, key=lambda found: (found.change.at, found.change.fact_id))
