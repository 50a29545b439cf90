"""People's own edits of facts: the edit that is still in force of each fact, and what it meets in another memory.

A reform forms facts from conversations alone, so what people, applications, mirrors and imports added, edited or
retired (`by` of the commands that facts name) has to be applied to it again.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.memory.memory_batch import fact_hash
from eden_memory.mongo.documents import document_of
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact, FactVersion
from eden_memory.schemas.events import CommandRef, FactCommanded
from eden_memory.schemas.events.facts import By
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
PEOPLE: frozenset[By] = frozenset({"person", "application", "mirror", "import"})
"""Who wants a change that no formation makes again."""
Kind = Literal["add", "edit", "retire"]
EditOutcome = Literal["applied", "already", "unmatched", "outdated"]
REWORDED, ENDED = "reworded by a formation since", "no longer held since"
COMMAND = "own/"
"""Begins the ids of the commands that apply a change again."""


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

    @property
    def texts(self) -> tuple[str, ...]:
        """All that the fact said, the likeliest to be said in another memory first."""
        after = () if self.after is None else (self.after,)
        return (*after, *self.before) if self.kind == "add" else (*self.before, *after)


class EditedFacts:
    """The facts of one namespace that people had a hand in; the one reader of their stored versions."""

    _THEIRS: Row = {
        "$or": [{name: {"$in": sorted(PEOPLE)}} for name in ("command.by", "history.command.by")],
    }

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._facts = database.get_collection(names[Fact.COLLECTION], read_concern=ReadConcern("majority"))

    async def scopes(self) -> Sequence[Scope]:
        """Return where there are any, by key."""
        by_scope = {"$group": {"_id": "$scope_key", "agent_id": {"$first": "$agent_id"}}}
        rows = await self._facts.aggregate([{"$match": self._THEIRS}, by_scope, {"$sort": {"_id": 1}}])
        return [Scope.of_key(row["_id"], row["agent_id"]) async for row in rows]

    async def edits(self, scope: Scope) -> AsyncGenerator[UserEdit]:
        """Yield people's edits in one scope, by fact id."""
        async for row in self._facts.find({"scope_key": scope.key, **self._THEIRS}).sort("_id"):
            fact = document_of(Fact, row)
            other = None
            if fact.retired_because == "duplicate" and fact.replaced_by is not None:
                other = await self._facts.find_one({"_id": fact.replaced_by})
            merged_into = None if other is None else document_of(Fact, other)
            if (change := user_edit(fact, _versions(fact), scope, merged_into)) is not None:
                yield change

    async def commanded(self, scope_key: str) -> Mapping[str, str]:
        """Return the facts that people's commands changed, by command id."""
        rows = self._facts.find({"scope_key": scope_key, **self._THEIRS})
        return {
            version.command.command_id: fact.id
            async for fact in (document_of(Fact, row) async for row in rows)
            for version in _versions(fact)
            if version.command is not None
        }


def _versions(fact: Fact) -> list[FactVersion]:
    """Return the versions of a fact, as far as they are kept, the oldest first."""
    fields = ("version", "content", "decision", "reason", "valid_from", "command", "call")
    return [*reversed(fact.history), FactVersion(**{name: getattr(fact, name) for name in fields})]


def user_edit(
    fact: Fact, versions: Sequence[FactVersion], scope: Scope, merged_into: Fact | None = None
) -> UserEdit | None:
    """Return people's edit of a stored fact; None: nothing of what is kept of its history.

    `merged_into`: the fact that replaced it, where it was retired as a duplicate.
    """
    theirs = [
        index
        for index, version in enumerate(versions)
        if version.command and version.command.by in PEOPLE and _is_edit(version.command, version)
    ]
    if not theirs:
        return None
    last = versions[theirs[-1]]
    assert last.command is not None
    kind: Kind = (
        "edit"  # a fact that people added is an addition, whatever else they did before they retired it
    )
    if last.command.action == "retire":
        kind = "retire"
    elif any(_adds(versions[index]) for index in theirs):
        kind = "add"
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
        theirs=_adds(versions[0]),
        said_at=last.valid_from if kind == "add" else None,
        private=kind == "add" and fact.private,
        outdated=_outdated(fact, merged, versions[theirs[-1] :], kind),
    )


def _is_edit(command: CommandRef, version: FactVersion) -> bool:
    """Return whether a command changed the fact itself; a retirement also marks the fact that takes over sources."""
    retires = command.action == "retire"
    return command.action != "mark" and (not retires or version.decision == "RETIRE")


def _adds(version: FactVersion) -> bool:
    return version.command is not None and version.command.action == "add"


def _texts(versions: Sequence[FactVersion], after: str | None) -> tuple[str, ...]:
    """Newest first, each once, without what the fact says now."""
    texts = {fact_hash(version.content): version.content for version in versions}
    if after is not None:
        texts.pop(fact_hash(after), None)
    newest = dict.fromkeys(fact_hash(version.content) for version in reversed(versions))
    return tuple(texts[text_hash] for text_hash in newest if text_hash in texts)


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

    @property
    def command(self) -> FactCommanded:
        """The command that applies it: the same for the same change and fact, however often it is made."""
        change, fact_id = self.change, self.fact_id
        adds = fact_id is None
        return FactCommanded(
            command_id=f"{COMMAND}{change.id}" if adds else f"{COMMAND}{change.id}/{fact_id}",
            scope=change.scope,
            action="add" if adds else "retire" if change.kind == "retire" else "edit",
            fact_id=fact_id,
            text=change.after,
            sources=change.sources if adds else (),
            expires_at=change.expires_at,
            by=change.command.by,
            asked_by=change.command.asked_by,
            reason=change.reason,
            asked_at=change.at,
            said_at=change.said_at if adds else None,
            private=(change.private or None) if adds else None,
        )

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


def change_of(command_id: str) -> str | None:
    """Return the id of the change that a command applied again; None: it is none of these commands."""
    if not command_id.startswith(COMMAND):
        return None
    return command_id.removeprefix(COMMAND).partition("/")[0]


@dataclass(frozen=True, slots=True)
class AppliedAdditions:
    """Reflections that people added, sentences that they pinned and private marks, and what cannot be applied."""

    applied: int = 0
    already: int = 0
    not_applied: int = 0
    """Formed reflections and blobs that people edited or retired: for them to look at."""
    marked: int = 0
    """What rests on the messages of private memory, and is marked as private, too."""
    unmatched_marks: int = 0
    """Private memory on whose messages nothing rests in the other memory."""

    def __bool__(self) -> bool:
        return any(asdict(self).values())


@dataclass(frozen=True, slots=True)
class AppliedEdits:
    """What became of all changes of facts, each once, by scope key, then by time; of other memory, how many."""

    settled: tuple[SettledEdit, ...] = ()
    additions: AppliedAdditions = AppliedAdditions()

    def of(self, outcome: EditOutcome) -> list[SettledEdit]:
        """Return those with an outcome.

        `applied`: a command was given (or would be, where nothing is published); `already`: nothing to do;
        `unmatched`: the other memory does not say it; `outdated`: formation has reworded or ended it since.
        """
        return [settled for settled in self.settled if settled.outcome == outcome]

    @property
    def blocking(self) -> int:
        """Retirements and private marks that match nothing: what people took back may stand there in other words."""
        retired = [settled for settled in self.of("unmatched") if settled.change.kind == "retire"]
        return len(retired) + self.additions.unmatched_marks

    def without(self, earlier: "AppliedEdits") -> "AppliedEdits":
        """Return what is new since the memory was asked for all of this before."""
        known = {settled.change.id for settled in earlier.settled}
        additions = AppliedAdditions(
            self.additions.applied,
            not_applied=max(0, self.additions.not_applied - earlier.additions.not_applied),
            marked=self.additions.marked,
            unmatched_marks=max(0, self.additions.unmatched_marks - earlier.additions.unmatched_marks),
        )
        return AppliedEdits(
            tuple(settled for settled in self.settled if settled.change.id not in known), additions
        )

    def json_object(self, most: int | None) -> dict[str, Any]:
        """Return them as a report shows them; `most` in each list (None: all)."""
        found: dict[str, Any] = {"to_apply": len(self.of("applied")), "already": len(self.of("already"))}
        for outcome in ("unmatched", "outdated"):
            settled = self.of(outcome)
            found |= {
                outcome: [one.json_object() for one in settled[:most]],
                f"{outcome}_count": len(settled),
            }
        return {**found, "additions": asdict(self.additions)}
