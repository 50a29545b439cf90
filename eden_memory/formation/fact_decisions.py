"""Decisions of a model on new facts: checked against what it was shown, then carried out in order. Pure.

Nothing that a model says may lose a fact: what names a fact that it was not shown, or that has changed since it was
shown, is void, and the new fact is added as it was stated.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from eden_memory.formation.decision_plan import DecisionPlan, NumberedFact
from eden_memory.formation.fact_statements import Stated
from eden_memory.formation.known_facts import KnownFact
from eden_memory.formation.scope_facts import ChangeCause, ScopeFacts, Worded, later
from eden_memory.limits import ScopeLimits
from eden_memory.memory.memory_batch import fact_hash, normalised
from eden_memory.schemas.answers import FactDecision
from eden_memory.schemas.events import Considered
from eden_memory.schemas.events.facts import Decision
from eden_memory.schemas.provenance import Call, Embedding

_LABEL = re.compile(r"\[?([KN]?)(\d{1,9})\]?")
LONGEST = 2
"""A merged text of more than so many times the word limit is not taken."""


class NoVector(LookupError):  # noqa: N818 - it is a direction, not an error
    """The vector of a text is missing: embed it, and carry out the decisions again."""

    def __init__(self, text: str) -> None:
        super().__init__("a vector is missing")
        self.text = text


@dataclass(frozen=True, slots=True)
class SettledDecision:
    """A valid decision other than ADD: the effect of a new fact on one that it was compared with."""

    decision: Literal["UPDATE", "DELETE", "NONE"]
    target: str
    """The fact, or the new fact that was shown: the id that it would have been added under."""
    text: str | None
    """UPDATE: the merged text."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of a call: `as_shown` are the texts that the model saw, by fact id."""

    choices: Mapping[str, SettledDecision] = field(default_factory=dict[str, SettledDecision])
    """By the new fact's id."""
    considered: Mapping[str, tuple[Considered, ...]] = field(
        default_factory=dict[str, tuple[Considered, ...]]
    )
    as_shown: Mapping[str, str] = field(default_factory=dict[str, str])
    call: Call | None = None
    void: int = 0

    def merged_texts(self) -> list[str]:
        """Return the texts that need a vector, each once."""
        return list(dict.fromkeys(choice.text for choice in self.choices.values() if choice.text is not None))


def compared(
    plan: DecisionPlan,
    decisions: Iterable[FactDecision],
    texts: Mapping[str, str],
    words: int,
    call: Call | None = None,
) -> Comparison:
    """Check an answer against what was shown (`texts`, by fact id); of two decisions on a fact the first counts."""
    names = [fact_id for fact_id, _ in plan.known] + [fact.fact_id for fact in plan.new]
    choices: dict[str, SettledDecision] = {}
    decided: set[str] = set()
    void = 0
    for decision in decisions:
        if decision.decision == "ADD":
            continue
        new = _new_fact(plan, decision.fact)
        choice = _choice(plan, decision, new, names, words) if new is not None else None
        name = new.fact_id if new is not None else None
        if choice is None or name is None or name in decided:
            void += 1
        else:
            choices[name] = choice
        if name is not None:
            decided.add(name)
    considered = {fact.fact_id: plan.considered(fact) for fact in plan.new}
    items = call.model_copy(update={"items": len(plan.new)}) if call is not None else None
    return Comparison(choices, considered, texts, items, void)


def _new_fact(plan: DecisionPlan, label: str) -> NumberedFact | None:
    """Return the new fact of this label (`N2`, or `2`); None if there is none."""
    found = _LABEL.fullmatch(label)
    number = int(found[2]) if found is not None and found[1] != "K" else 0
    return plan.new[number - 1] if 1 <= number <= len(plan.new) else None


def _candidate(plan: DecisionPlan, label: str | None) -> int:
    """Return the number of a fact in the plan; 0 if the label is none. Earlier prompts showed that number alone."""
    found = _LABEL.fullmatch(label or "")
    if found is None or (found[1] == "K" and int(found[2]) > len(plan.known)):
        return 0
    return int(found[2]) + (len(plan.known) if found[1] == "N" else 0)


def _choice(
    plan: DecisionPlan, decision: FactDecision, new: NumberedFact, names: Sequence[str], words: int
) -> SettledDecision | None:
    """Return a decision that is valid; None if it names a fact that was not compared, or lacks a usable text."""
    existing = _candidate(plan, decision.existing)
    if existing not in new.candidates:
        return None
    assert decision.decision != "ADD"
    text = " ".join((decision.text or "").split()) if decision.decision == "UPDATE" else None
    if text is not None and not 0 < len(text.split()) <= LONGEST * words:
        return None
    reason = " ".join(decision.reason.split())[:200] if decision.reason else None
    return SettledDecision(decision.decision, names[existing - 1], text, reason)


class DecisionResolver:
    """Carries out decisions on a scope's facts, statement by statement."""

    def __init__(
        self, facts: ScopeFacts, compared: Comparison, vectors: Mapping[str, Embedding], limits: ScopeLimits
    ) -> None:
        self._facts, self._compared = facts, compared
        self._vectors, self._limits = vectors, limits
        self._settled: dict[str, str] = {}
        """Fact that now holds what was stated: by the statement's hash, and by its own id."""
        self._by_text: dict[str, SettledDecision] = {}
        """The first choice on a text, by its hash."""
        self.counts: Counter[str] = Counter()

    def resolve(self, stated: Stated) -> None:
        """Carry out the decision on one statement."""
        doomed = self._facts.active(stated.instead_of)
        if doomed is not None and doomed.hash == stated.hash:  # its mark may come later than this command
            self._facts.retire(self._cause(stated, None), doomed, "RETIRE", "asked")
        same = self._facts.with_hash(stated.hash) or self._facts.active(self._settled.get(stated.hash))
        if same is not None:
            self._join(stated, same, self._cause(stated, None))
            return
        choice = self._choice(stated)
        target = self._target(choice)
        if choice is None or target is None or not self._carry_out(stated, choice, target):
            self.counts["void"] += choice is not None
            self._add(stated)

    def _choice(self, stated: Stated) -> SettledDecision | None:
        """Return the model's choice for the statement, or for an earlier one with the same text.

        Where it named a statement that is not decided here, what it said of that one holds.
        """
        choices = self._compared.choices
        choice = choices.get(stated.fact_id) or self._by_text.get(stated.hash)
        if choice is None:
            return None
        self._by_text.setdefault(stated.hash, choice)
        while choice is not None and not self._decided(choice.target):
            behind = choices.get(choice.target)
            choice = None if behind is None else replace(choice, target=behind.target)
        return choice

    def _decided(self, fact_id: str) -> bool:
        return fact_id in self._settled or self._facts.recorded(fact_id) is not None

    def _target(self, choice: SettledDecision | None) -> KnownFact | None:
        """Return the fact that is meant, as it is now: a new fact may have become a part of another."""
        if choice is None:
            return None
        return self._facts.active(self._settled.get(choice.target, choice.target))

    def _carry_out(self, stated: Stated, choice: SettledDecision, target: KnownFact) -> bool:
        cause = self._cause(stated, choice.reason)
        if choice.decision == "NONE":
            self._join(stated, target, cause)
            return True
        if choice.decision == "DELETE":
            return self._replace(stated, choice, target, cause)
        return self._update(stated, choice, target, cause)

    def _update(self, stated: Stated, choice: SettledDecision, target: KnownFact, cause: ChangeCause) -> bool:
        assert choice.text is not None
        worded = self._worded(choice.text)
        if not self._keeps(choice, target):
            return False
        other = self._facts.with_hash(worded.hash)
        if other is None:
            until = later(target.expires_at, self._until(stated))
            target = replace(target, private=target.private or stated.private)
            self._facts.reword(cause, target, "UPDATE", worded, stated.sources, until)
            self._settle(stated, target.fact_id, "UPDATE")
            return True
        self._join(stated, other, cause, private=target.private)
        if other.fact_id != target.fact_id:
            self._facts.retire(cause, target, "UPDATE", "duplicate", other.fact_id)
        return True

    def _replace(
        self, stated: Stated, choice: SettledDecision, target: KnownFact, cause: ChangeCause
    ) -> bool:
        if not self._unchanged(choice, target):
            return False
        if stated.said_at < target.valid_from:
            self._record_overruled(stated, target, cause)
            return True
        worded = self._worded(stated.text)
        self._facts.retire(cause, target, "DELETE", "contradicted", stated.fact_id)
        self._begin(stated, worded, "DELETE", cause, target.fact_id)
        return True

    def _record_overruled(self, stated: Stated, by: KnownFact, cause: ChangeCause) -> None:
        """Record a statement that a newer one contradicts as a fact that held until then."""
        if self._facts.recorded(stated.fact_id) is None:
            fact = replace(
                self._fact(stated),
                retired=True,
                retired_at=by.valid_from,
                retired_because="contradicted",
                replaced_by=by.fact_id,
            )
            self._facts.record(cause, fact, "DELETE")
        self._settled[stated.fact_id] = by.fact_id
        self.counts["DELETE"] += 1

    def _add(self, stated: Stated) -> None:
        if self._facts.recorded(stated.fact_id) is not None:
            self.counts["repeated"] += 1
            return
        self._begin(stated, self._worded(stated.text), "ADD", self._cause(stated, None))

    def _begin(
        self,
        stated: Stated,
        worded: Worded,
        decision: Decision,
        cause: ChangeCause,
        replaces: str | None = None,
    ) -> None:
        embedding = worded.embedding
        replaced = None if replaces is None else self._facts.recorded(replaces)
        fact = replace(
            self._fact(stated),
            private=stated.private or (replaced is not None and replaced.private),
            vector=embedding.vector,
            embedding_model=embedding.model,
            embedding_call=embedding.call_id,
            replaces=replaces,
        )
        self._facts.record(cause, fact, decision)
        self._settle(stated, fact.fact_id, decision)

    def _fact(self, stated: Stated) -> KnownFact:
        """Return the fact that a statement begins, without a vector."""
        return KnownFact(
            fact_id=stated.fact_id,
            version=1,
            scope_key=self._facts.scope.key,
            text=stated.text,
            hash=stated.hash,
            vector=None,
            embedding_model=None,
            sources=stated.sources,
            formed_at=stated.at,
            said_at=stated.said_at,
            occurred_at=stated.statement.occurred_at,
            valid_from=stated.said_at,
            expires_at=self._until(stated),
            private=stated.private,
        )

    def _join(self, stated: Stated, fact: KnownFact, cause: ChangeCause, *, private: bool = False) -> None:
        private = private or stated.private
        joined = self._facts.join(cause, fact, stated.sources, self._until(stated), private=private)
        self._settle(stated, fact.fact_id, "NONE" if joined else "known")

    def _until(self, stated: Stated) -> datetime | None:
        """Return when the statement expires: as a command says, or by the scope's retention."""
        return stated.expires_at or self._limits.until(stated.said_at)

    def _settle(self, stated: Stated, fact_id: str, how: str) -> None:
        self._settled[stated.hash] = self._settled[stated.fact_id] = fact_id
        self.counts[how] += 1

    def _unchanged(self, choice: SettledDecision, target: KnownFact) -> bool:
        """Return whether the fact still reads as the model saw it."""
        return normalised(self._compared.as_shown[choice.target]) == normalised(target.text)

    def _keeps(self, choice: SettledDecision, target: KnownFact) -> bool:
        """Return whether the merged text loses nothing that an earlier decision of this call has brought in."""
        assert choice.text is not None
        seen = _words(self._compared.as_shown[choice.target])
        return self._unchanged(choice, target) or _words(target.text) - seen <= _words(choice.text)

    def _worded(self, text: str) -> Worded:
        embedding = self._vectors.get(text)
        if embedding is None:
            raise NoVector(text)
        return Worded(text, fact_hash(text), embedding)

    def _cause(self, stated: Stated, reason: str | None) -> ChangeCause:
        considered = self._compared.considered.get(stated.fact_id)
        return ChangeCause(
            delivery=stated.delivery,
            at=stated.at,
            said_at=stated.said_at,
            statement=stated.statement,
            command=stated.command,
            call=self._compared.call if considered is not None else None,
            considered=considered or (),
            reason=reason,
        )


def _words(text: str) -> set[str]:
    return {word.strip(".,;:!?()\"'") for word in normalised(text).split()}
