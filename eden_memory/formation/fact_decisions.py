"""Decisions of a model on new facts: checked against what it was shown, then carried out in order. Pure.

Nothing that a model says may lose a fact. What names a fact that it was not shown, that has little in common with the
new one, or that has changed since, is void: the new fact is added as it was stated, and its reason says why.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from eden_memory.directory.participants import given_to_all
from eden_memory.formation.decision_plan import NO_TIMES, DecisionPlan, NumberedFact
from eden_memory.formation.fact_statements import KnownFact, Stated
from eden_memory.formation.scope_facts import ChangeCause, ScopeFacts, Worded, later
from eden_memory.limits import ScopeLimits
from eden_memory.memory.memory_batch import fact_hash, normalised
from eden_memory.schemas.answers import FactDecision
from eden_memory.schemas.events import Considered
from eden_memory.schemas.events.facts import Decision
from eden_memory.schemas.provenance import Call, Embedding, SourceMessage

_LABEL = re.compile(r"\[?([KN]?)(\d{1,9})\]?")
LONGEST = 2
"""A merged text of more than so many times the word limit is not taken."""
SAME = (0.7, 0.5)
"""For a NONE: the least likeness of two facts (0 unrelated, 1 equal vectors), or the least share of common words."""
ABOUT = (0.5, 0.3)
"""The same for an UPDATE or DELETE. Either is enough: words may change wholly, and vectors miss some languages.

Both were measured on our sets of changes (docs/formation.md).
"""
MANY = 3
"""If one answer has a decision for more texts, each needs both: a weak model says the same of everything."""
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
"""Scripts that put no spaces between words: there, pairs of characters are compared."""
_PART = re.compile(rf"(?=([{_UNSPACED}]{{2}}))|([^\W_{_UNSPACED}]+)")


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
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Why what the model decided on a new fact is not carried out, by the new fact's id."""
    near: Mapping[str, Mapping[str, float]] = field(default_factory=dict[str, Mapping[str, float]])
    """The facts that each new one was compared with: 0 is unrelated, 1 equal."""
    often: frozenset[str] = frozenset()
    """The decisions that the answer had for more than `MANY` different texts."""
    considered: Mapping[str, tuple[Considered, ...]] = field(
        default_factory=dict[str, tuple[Considered, ...]]
    )
    as_shown: Mapping[str, str] = field(default_factory=dict[str, str])
    times: Mapping[str, datetime] = field(default_factory=dict[str, datetime])
    """When what is shown was said, by fact id."""
    call: Call | None = None
    void: int = 0

    def merged_texts(self) -> list[str]:
        """Return the texts that need a vector, each once."""
        return list(dict.fromkeys(choice.text for choice in self.choices.values() if choice.text is not None))

    def doubt(self, fact_id: str, choice: SettledDecision) -> str | None:
        """Return why a decision on a new fact is implausible; None if it may be carried out."""
        near = self.near[fact_id].get(choice.target)
        if near is None:
            return _refusal(choice.decision, "the two facts were not compared")
        new, known = self.as_shown[fact_id], self.as_shown[choice.target]
        late, text = self._is_late(fact_id, choice.target), normalised(choice.text or "")
        same = choice.decision == "NONE" or (text == normalised(known) and not late)
        least_alike, least_shared = SAME if same else ABOUT
        reached = (near >= least_alike, _share(new, known) >= least_shared)
        if not any(reached):
            return _refusal(choice.decision, "the two facts have too little in common")
        if choice.decision in self.often and not all(reached):
            return _refusal(
                choice.decision, "it did so for many facts, and these two have too little in common"
            )
        one_alone = late and text in (normalised(new), normalised(known))
        own, other = _numbers(new) - _numbers(known), _numbers(known) - _numbers(new)
        drops = one_alone and (text == normalised(known) or bool(_words(known) - _words(new)))
        if own and (same or (drops and not other)):  # a number against none contradicts nothing
            return _refusal(choice.decision, "the new fact names another number")
        later, earlier = (known, new) if late else (new, known)
        merges = choice.text is None or same or one_alone or _merges(choice.text, later, earlier)
        if not merges:
            return _refusal(choice.decision, "its text leaves out what the facts say")
        return None

    def _is_late(self, fact_id: str, known: str) -> bool:
        """Return whether a new fact was said before the one that it was compared with."""
        said, since = self.times.get(fact_id), self.times.get(known)
        return said is not None and since is not None and said < since


def compared(
    plan: DecisionPlan,
    decisions: Iterable[FactDecision],
    texts: Mapping[str, str],
    words: int,
    call: Call | None = None,
    unrelated: float = 0.5,
    times: Mapping[str, datetime] = NO_TIMES,
) -> Comparison:
    """Check an answer against what was shown (`texts`, by fact id); of two decisions on a fact the first counts.

    `unrelated`: (1 + cosine) / 2 of unrelated texts. `times`: when the facts were said.
    """
    names = [fact_id for fact_id, _ in plan.known] + [fact.fact_id for fact in plan.new]
    choices: dict[str, SettledDecision] = {}
    refused: dict[str, str] = {}
    void = 0
    for decision in decisions:
        if decision.decision == "ADD":
            continue
        new = _new_fact(plan, decision.fact)
        if new is None or new.fact_id in choices or new.fact_id in refused:
            void += 1
            continue
        choice = _choice(plan, decision, new, names, words)
        if isinstance(choice, SettledDecision):
            choices[new.fact_id] = choice
        else:
            refused[new.fact_id] = choice
    stated = {(choice.decision, normalised(texts[fact_id])) for fact_id, choice in choices.items()}
    counted = Counter(decision for decision, _ in stated)
    checked = Comparison(
        near={
            fact.fact_id: {
                names[number - 1]: (similarity - unrelated) / (1 - unrelated)
                for number, similarity in zip(fact.candidates, fact.similarities, strict=True)
            }
            for fact in plan.new
        },
        often=frozenset(decision for decision, count in counted.items() if count > MANY),
        considered={fact.fact_id: plan.considered(fact) for fact in plan.new},
        as_shown=texts,
        times=times,
        call=call.model_copy(update={"items": len(plan.new)}) if call is not None else None,
    )
    doubts = {fact_id: checked.doubt(fact_id, choice) for fact_id, choice in choices.items()}
    refused |= {fact_id: doubt for fact_id, doubt in doubts.items() if doubt is not None}
    choices = {fact_id: choice for fact_id, choice in choices.items() if fact_id not in refused}
    return replace(checked, choices=choices, refused=refused, void=void + len(refused))


def _refusal(decision: str, because: str) -> str:
    return f"the model answered {decision}, but {because}"


def _share(one: str, other: str) -> float:
    """Return the share of the shorter text's words that the other has, without whom it begins with.

    The first word is the subject of most facts, which all of a user's facts share.
    """
    said, known = (_beginnings(text) for text in (one, other))
    return len(said & known) / max(1, min(len(said), len(known)))


def _merges(text: str, later: str, earlier: str) -> bool:
    """Return whether a merged text has words of both facts, one that only the later one has, and its numbers.

    The later fact itself may replace the earlier one, as a DELETE would.
    """
    if normalised(text) == normalised(later):
        return True
    said, stated, before = set(_parts(text)), _beginnings(later), _beginnings(earlier)
    both = all(words and len(said & words) >= ABOUT[1] * len(words) for words in (stated, before))
    added = {word for word in stated - before if not word.isdigit()}
    return both and (not added or bool(said & added)) and not _numbers(later) - _numbers(text)


def _beginnings(text: str) -> set[str]:
    return set(_parts(text)[1:])


def _parts(text: str) -> list[str]:
    """Return the first letters of a text's words: endings differ."""
    return [pair or word[:5] for pair, word in _PART.findall(re.sub(r"['\u2019]s\b", "", normalised(text)))]


def _numbers(text: str) -> set[str]:
    return {digits.lstrip("0") for digits in re.findall(r"\d+", text)}


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
) -> SettledDecision | str:
    """Return a decision that is valid, or why it is not: its fact was not compared, or its text is of no use."""
    existing = _candidate(plan, decision.existing)
    if existing not in new.candidates:
        return _refusal(decision.decision, "named no fact that was compared")
    assert decision.decision != "ADD"
    text = " ".join((decision.text or "").split()) if decision.decision == "UPDATE" else None
    if text is not None and not 0 < len(text.split()) <= LONGEST * words:
        return _refusal(decision.decision, "gave no text that can be used")
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
        self._by_text: dict[str, str] = {}
        """The first statement of a text that a choice is on, by the text's hash."""
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
        choice, refused = self._choice(stated)
        target = self._target(choice)
        if choice is not None and (target is None or not self._carry_out(stated, choice, target)):
            refused = _refusal(
                choice.decision, "the known fact has changed since, or is not the user's to change"
            )
        elif choice is not None:
            return
        self.counts["void"] += choice is not None
        self._add(stated, refused)

    def _choice(self, stated: Stated) -> tuple[SettledDecision | None, str | None]:
        """Return the model's choice for the statement or an earlier one with the same text, or why it is refused.

        Where it named a statement that is not decided here, what it said of that one holds, if it is plausible.
        """
        choices, refused = self._compared.choices, self._compared.refused
        name = stated.fact_id
        if name not in choices and name not in refused:
            name = self._by_text.get(stated.hash, name)
        named = choice = choices.get(name)
        if named is None:
            return None, refused.get(name)
        self._by_text.setdefault(stated.hash, name)
        while choice is not None and not self._decided(choice.target):
            behind = choices.get(choice.target)
            choice = None if behind is None else replace(choice, target=behind.target)
        if choice is None or choice is named:
            return choice, None
        doubt = self._compared.doubt(name, choice)
        return (choice, None) if doubt is None else (None, doubt)

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
        over_given = stated.command is None and _is_given(target.sources) and not _is_given(stated.sources)
        if choice.decision == "DELETE" or _is_overruled(stated, target, choice.text):
            return self._replace(stated, choice, target, cause, overruled=over_given)
        return not over_given and self._update(stated, choice, target, cause)

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
        self,
        stated: Stated,
        choice: SettledDecision,
        target: KnownFact,
        cause: ChangeCause,
        *,
        overruled: bool,
    ) -> bool:
        if not self._unchanged(choice, target):
            return False
        if overruled or stated.said_at < target.valid_from:
            self._record_overruled(stated, target, cause)
            return True
        worded = self._worded(stated.text)
        self._facts.retire(cause, target, "DELETE", "contradicted", stated.fact_id)
        self._begin(stated, worded, "DELETE", cause, target.fact_id)
        return True

    def _record_overruled(self, stated: Stated, by: KnownFact, cause: ChangeCause) -> None:
        """Record a statement that a newer one contradicts as a fact that held until then.

        One that contradicts what the operator gave to all never held, however new it is.
        """
        if self._facts.recorded(stated.fact_id) is None:
            fact = replace(
                self._fact(stated),
                retired=True,
                retired_at=max(by.valid_from, stated.said_at),
                retired_because="contradicted",
                replaced_by=by.fact_id,
            )
            self._facts.record(cause, fact, "DELETE")
        self._settled[stated.fact_id] = by.fact_id
        self.counts["DELETE"] += 1

    def _add(self, stated: Stated, reason: str | None) -> None:
        if self._facts.recorded(stated.fact_id) is not None:
            self.counts["repeated"] += 1
            return
        self._begin(stated, self._worded(stated.text), "ADD", self._cause(stated, reason))

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


def _is_given(sources: Sequence[SourceMessage]) -> bool:
    """Tell whether the operator gave it to all: no user's words may change it or take its place."""
    return any(given_to_all(source.session_id) for source in sources)


def _is_overruled(stated: Stated, by: KnownFact, merged: str | None) -> bool:
    """Return whether an older statement and a newer fact cannot both hold, though the answer was UPDATE.

    The merged text is then one of the two alone, and leaves out words of the other.
    """
    if merged is None or stated.said_at >= by.valid_from:
        return False
    said, known, text = _words(stated.text), _words(by.text), normalised(merged)
    dropped = {normalised(by.text): said - known, normalised(stated.text): known - said}
    return bool(dropped.get(text))


def _words(text: str) -> set[str]:
    return {word.strip(".,;:!?()\"'") for word in normalised(text).split()}
