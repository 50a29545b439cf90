"""Matches people's edits with the facts of another memory: by text first, then by meaning, best first. Pure.

A fact of the other memory is changed for the sake of one change at most, and never if the memory that people changed
still says the same by another fact.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from eden_memory.formation.known_facts import KnownFact
from eden_memory.memory.fact_hash import fact_hash
from eden_memory.replay.user_edits.user_edits import EditOutcome, SettledEdit, UserEdit
from eden_memory.schemas.events import FactCommanded

COMMAND = "own/"
"""Begins the ids of the commands that apply a change again."""
SAID_AGAIN = "said again since"


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
    )


def change_of(command_id: str) -> str | None:
    """The id of the change that a command applied again; None: it is none of these commands."""
    if not command_id.startswith(COMMAND):
        return None
    return command_id.removeprefix(COMMAND).partition("/")[0]


def in_order(settled: Sequence[SettledEdit]) -> list[SettledEdit]:
    """By time, then by fact: as commands are given."""
    return sorted(settled, key=lambda found: (found.change.at, found.change.fact_id))
