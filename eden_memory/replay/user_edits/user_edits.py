"""People's own edits of facts: the change that is still in force of each fact. Pure.

A reform forms facts from conversations alone, so what people, applications, mirrors and imports added, edited or
retired (`by` of the commands that facts name) has to be applied to it again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Literal

from eden_memory.memory.fact_hash import fact_hash
from eden_memory.schemas.documents import Fact, FactVersion
from eden_memory.schemas.events import CommandRef
from eden_memory.schemas.events.facts import By
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

PEOPLE: frozenset[By] = frozenset({"person", "application", "mirror", "import"})
"""Who wants a change that no formation makes again."""

Kind = Literal["add", "edit", "retire"]
EditOutcome = Literal["applied", "already", "unmatched", "outdated"]
REWORDED, ENDED = "reworded by a formation since", "no longer held since"


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
        index for index, version in enumerate(versions) if version.command and version.command.by in PEOPLE
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


@dataclass(frozen=True, slots=True)
class AppliedEdits:
    """All changes, each once, by scope key, then by time."""

    applied: tuple[SettledEdit, ...] = ()
    """A command was given (or would be, where nothing is published)."""
    already: tuple[SettledEdit, ...] = ()
    """Nothing to do."""
    unmatched: tuple[SettledEdit, ...] = ()
    """Edits and retirements of what the other memory does not say: for people to look at."""
    outdated: tuple[SettledEdit, ...] = ()
    """Formation has since reworded or ended what people had changed: also for people to look at."""
