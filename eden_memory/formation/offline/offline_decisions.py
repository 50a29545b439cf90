"""What a new statement means for a known one: the same, another value of the same, its end, or nothing."""

from typing import Literal

from eden_memory.formation.offline.sentence_words import content, dates, names, numbers, says
from eden_memory.formation.prompt_material import DecisionMaterial, KnownLine, NewFact
from eden_memory.schemas.answers import FactDecision, FactDecisions
from eden_memory.word_limits import cut_at_sentence

Meaning = Literal["NONE", "UPDATE", "DELETE", "ADD"]
_REASONS = {"NONE": "says the same", "UPDATE": "another value of the same", "DELETE": "no longer holds"}


def meaning_of(new: str, old: str, similarity: float = 0.5) -> Meaning:
    """As decisions are called; `similarity` is (1 + cosine) / 2, 0.5 where none was measured."""
    told, known = content(new) - _values(new), content(old) - _values(old)
    extra = _values(new, opening=True) - _values(old) - content(old)
    about = len(told & known) / max(min(len(told), len(known)), 1)
    negated = says(new, "ended") != says(old, "ended")
    alike = content(new) <= content(old) or (not extra and (about >= 0.75 or similarity >= 0.9))
    if alike and not negated:
        return "NONE"
    least = 1 if says(new, "changed") else min(2, len(known))
    if len(told & known) < least or about < (0.3 if similarity >= 0.85 else 0.5):
        return "ADD"
    kinds = (dates, numbers, names) if says(new, "changed") else (dates, numbers)
    corrected = any(of(new) and of(old) and not of(new) <= of(old) for of in kinds)
    if corrected and (says(new, "changed") or not (says(new, "past") and says(old, "past"))):
        return "UPDATE"
    return "DELETE" if about >= 0.6 and negated else "ADD"


def decide(material: DecisionMaterial) -> FactDecisions:
    """One decision for each new fact that means something for a known one; the others are added."""
    shown = (*material.known, *material.new)
    decided = (_decision(number, new, shown, material.words) for number, new in enumerate(material.new, 1))
    return FactDecisions(decisions=[one for one in decided if one])


def _decision(
    number: int, new: NewFact, shown: tuple[KnownLine | NewFact, ...], words: int
) -> FactDecision | None:
    """The nearest fact that it means something for; another value that was said before overrules nothing."""
    nearest_first = sorted(zip(new.similarities, new.candidates, strict=True), reverse=True)
    for similarity, existing in nearest_first:
        other = shown[existing - 1]
        decision = meaning_of(new.text, other.text, similarity)
        if decision == "UPDATE" and _older(new, other):
            decision = "DELETE"
        if decision != "ADD":
            text = cut_at_sentence(new.text, words) if decision == "UPDATE" else None
            why = _REASONS[decision]
            return FactDecision(fact=number, decision=decision, existing=existing, text=text, reason=why)
    return None


def _older(new: NewFact, other: KnownLine | NewFact) -> bool:
    return new.said_at is not None and other.said_at is not None and new.said_at < other.said_at


def _values(text: str, *, opening: bool = False) -> frozenset[str]:
    """Numbers, dates and names; `opening`: the first word too, which is capitalised anyway and may be a name."""
    return content(" ".join((*numbers(text), *dates(text), *names(text), *text.split()[: int(opening)])))
