"""Answers by rule to the five questions: facts, reflections, decisions, consolidated texts and propagation (none).

Consolidation selects: newer lines replace older ones of the same, the least weighty go when words run out. A line
is as new as what it says; what a blob says counts as said at the time of its newest.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from eden_memory.formation.offline.sentences import (
    content,
    dates,
    english,
    names,
    numbers,
    pattern,
    plain,
    says,
)
from eden_memory.formation.offline.statements import HeardStatement, statements
from eden_memory.formation.prompt_material import (
    ConsolidationMaterial,
    DatedText,
    DecisionMaterial,
    FactMaterial,
    KnownLine,
    NewFact,
    PropagationMaterial,
    ReflectionMaterial,
    ScopeBrief,
    TranscriptLine,
    fact_label,
)
from eden_memory.formation.transcript import NUMBERED, REMOVED
from eden_memory.limits import cut_at_sentence
from eden_memory.schemas.answers import (
    ConsolidatedText,
    ExtractedFacts,
    FactDecision,
    FactDecisions,
    JudgedReflections,
    ShownAlike,
    StatedFact,
    StatedReflection,
    StatedReflections,
)

Meaning = Literal["NONE", "UPDATE", "DELETE", "ADD"]
_REASONS = {"NONE": "says the same", "UPDATE": "another value of the same", "DELETE": "no longer holds"}
UNKNOWN = datetime.min.replace(tzinfo=UTC)
Item = TypeVar("Item", StatedFact, StatedReflection)
_PLACES = (("group", "user"), ("user", "group"), ("user",))
"""Where statements of nobody, statements in doubt and a person's own go: the first of them that is there."""


def facts(material: FactMaterial) -> ExtractedFacts:
    """Return at most as many facts as are wanted; a later one replaces an earlier one of another value."""
    found: list[StatedFact] = []
    for statement in statements(material.lines, material.words):
        if statement.kind == "fact" and (label := _place(statement, material)):
            found = [old for old in found if old.scope != label or not _replaces(statement.text, old.text)]
            numbers = list(statement.messages)
            found.append(StatedFact(**_judged(label, statement.text, numbers), occurred_at=None))
    return ExtractedFacts(facts=_within(found, material.scopes)[: material.most])


def reflections(material: ReflectionMaterial) -> StatedReflections:
    """Return rules for all, ways to treat a person, and a summary of the session."""
    found: list[StatedReflection] = []
    for statement in statements(material.lines, material.words):
        if statement.kind in ("rule", "way") and (label := _place(statement, material)):
            (scope,) = (scope for scope in material.scopes if scope.label == label)
            shown = (*(scope.blob or "").splitlines(), *(known.text for known in scope.buffer))
            known = (*shown, *material.facts, *(other.text for other in found))
            if all(meaning_of(statement.text, old) != "NONE" for old in known):
                found.append(StatedReflection(**_judged(label, statement.text, list(statement.messages))))
    return StatedReflections(reflections=_within([*found, *_happened(material)], material.scopes))


def _judged(label: str, text: str, messages: list[int]) -> dict[str, Any]:
    """Return an item's fields; rules judge nobody's words: `_place` has chosen what is for others at all."""
    about = "person" if label in ("user", "session") else "organisation"
    return {
        "text": text,
        "scope": label,
        "messages": messages,
        "about": about,
        "sensitive": about == "person",
    }


def _place(statement: HeardStatement, material: FactMaterial | ReflectionMaterial) -> str | None:
    """Return the first scope offered of those where it may go.

    Rules have no judgement: the agent and its shards get what a user states as a rule for everybody, naming nobody,
    and what was added for all. A group gets what several of its members heard.
    """
    is_rule = statement.kind == "rule" and not names(statement.text)
    for_all = statement.personal == 0 and (is_rule or material.given)
    if for_all and (shard := _shard(statement, material.scopes)) is not None:
        return shard
    offered = {scope.label for scope in material.scopes}
    wanted = ("user", "session") if statement.kind == "way" else _PLACES[statement.personal]
    wanted = ("agent", *wanted) if for_all else wanted
    if statement.personal == 1 and material.given:
        wanted = (*wanted, "agent")
    if statement.personal <= 1 and material.given and "agent" not in offered:  # added to a shard
        wanted = (*(label for label in offered if label.startswith("shard:")), *wanted)
    return next((label for label in wanted if label in offered), None)


def _shard(statement: HeardStatement, scopes: Sequence[ScopeBrief]) -> str | None:
    """Return the shard whose name and guidance share most words with a statement."""
    said = content(statement.text)
    shared = {
        scope.label: len(said & _subject(scope)) for scope in scopes if scope.label.startswith("shard:")
    }
    return max(filter(shared.__getitem__, shared), key=shared.__getitem__, default=None)


def _subject(shard: ScopeBrief) -> frozenset[str]:
    """Return the stems of the words that say what a shard collects."""
    name = re.sub(r"[\W_]+", " ", shard.label.removeprefix("shard:"))
    return content(f"{name} {shard.guidance or ''}") - content(" ".join(english()["guiding"]))


def _replaces(new: str, old: str) -> bool:
    return meaning_of(old, new) == "NONE" or meaning_of(new, old) == "UPDATE"


def _within(items: Sequence[Item], scopes: Sequence[ScopeBrief]) -> list[Item]:
    most = {scope.label: scope.most for scope in scopes}
    before = [[item.scope for item in items[:at]] for at in range(len(items))]
    return [
        item for item, taken in zip(items, before, strict=True) if taken.count(item.scope) < most[item.scope]
    ]


def _happened(material: ReflectionMaterial) -> Iterator[StatedReflection]:
    numbered = enumerate(material.lines, 1)
    heard = {n: line for n, line in numbered if line.text not in ("", REMOVED) and line.role != "system"}
    said = {n: line for n, line in heard.items() if line.role == "user"} or heard
    if said and any(scope.label == "session" for scope in material.scopes):
        speakers = dict.fromkeys(line.speaker for line in said.values())
        people = "The users" if any(map(NUMBERED.fullmatch, speakers)) else _listed(list(speakers))
        day, topics = material.lines[min(said) - 1].time, _listed(_topics(tuple(heard.values())))
        what = f"talked about {topics}" if topics else "spoke"
        text = f"{people} {what} on {day.day} {day:%B %Y}."
        yield StatedReflection(**_judged("session", cut_at_sentence(text, material.words), list(said)))


def _listed(names: Sequence[str]) -> str:
    return " and ".join((*((", ".join(names[:-1]),) if names[1:] else ()), *names[-1:]))


def _topics(lines: Sequence[TranscriptLine], most: int = 3) -> list[str]:
    """Return the nouns and names that come up most often, as they are first written."""
    texts = [line.text for line in lines if not says(line.text, "never")]
    calendar = (*english()["months"], *english()["days"], "day", "week", "weekend", "month", "year")
    other = content(" ".join((*calendar, *(line.speaker for line in lines))))
    named = (word for text in texts for word in (*names(text), *pattern("{noun}").findall(text)))
    nouns = {*map(plain, named)} - other
    words = [word for text in texts for word in re.findall(r"\w{4,}", text) if content(word) & nouns]
    first = {plain(word): word for word in reversed(words)}
    return [first[word] for word, _ in Counter(map(plain, words)).most_common(most)]


def consolidate(material: ConsolidationMaterial) -> ConsolidatedText:
    """Return the blob's lines in their order, each new one in the section that it is nearest to."""
    blob = [line.strip() for line in (material.blob or "").splitlines() if line.strip()]
    lines = [DatedText(material.blob_said_at or UNKNOWN, line) for line in blob]
    for reflection in material.buffer:
        item = DatedText(reflection.said_at, " ".join(reflection.text.split()))
        rivals = [line for line in lines if not _heads(line.text) and _rivals(item, line)]
        if item.text and all(line.said_at <= item.said_at for line in rivals):
            lines = [line for line in lines if line not in rivals]
            lines.insert(_section_of(item.text, [line.text for line in lines]), item)
    return ConsolidatedText(text=_within_words(lines, material.words))


def _rivals(item: DatedText, line: DatedText) -> bool:
    """Return whether the newer of two lines replaces the older: the same, another value of it, or its end."""
    new, old = (item, line) if item.said_at >= line.said_at else (line, item)
    return meaning_of(new.text, old.text) != "ADD"


def _section_of(item: str, lines: list[str]) -> int:
    """Return the end of the section that shares most words with it; without sections, the end."""
    starts = [at for at, line in enumerate(lines) if _heads(line)]
    sections = zip(starts, [*starts[1:], len(lines)], strict=True) if starts else [(0, len(lines))]
    return max(
        sections, key=lambda section: len(content(item) & content(" ".join(lines[section[0] : section[1]])))
    )[1]


def _within_words(dated: list[DatedText], words: int) -> str:
    """Return the text, without the oldest lines if it has too many words; headings and lasting lines go last."""
    lines = [reflection.text for reflection in dated]
    left = dict(enumerate(lines))
    for at in sorted(
        left, key=lambda at: (_heads(lines[at]), says(lines[at], "weighty"), dated[at].said_at, at)
    ):
        if sum(len(line.split()) for line in left.values()) > words and len(left) > 1:
            del left[at]
    return "\n".join(left.values()) if len(left) > 1 else cut_at_sentence("".join(left.values()), words)


def _heads(line: str) -> bool:
    return line.startswith("#") or line.endswith(":")


def meaning_of(new: str, old: str, similarity: float = 0.5) -> Meaning:
    """Return the decision on a new text beside an old one; `similarity` is (1 + cosine) / 2, 0.5 if unknown.

    In doubt both stay: texts about different subjects mean nothing for each other, and the same is only what brings
    no word of its own, in the same tense, order and mood.
    """
    new, old = (pattern("{moved_home}").sub("now lives in", text) for text in (new, old))
    if _speaks_of(new) != _speaks_of(old):
        return "ADD"
    said, known = content(new), content(old)
    if says(new, "ended") != says(old, "ended"):
        return "DELETE" if _contradicts(new, old) else "ADD"
    if said <= known and _as_in(new, old):
        return "NONE"
    told, about = said - _values(new), known - _values(old)
    if says(new, "changed"):
        actor, least = content(new.split()[0]) & _speaks_of(new), 0.3 if similarity >= 0.85 else 0.5
        alike = _common(told, about) >= least
        same_thing = not (told | about) - actor or _common(told - actor, about - actor) >= least
        kinds = (dates, numbers, names) if same_thing else (dates, numbers)  # who does two things does both
    else:
        kinds, alike = (dates, numbers), bool(told) and told == about and names(new) <= names(old)
    corrected = any(of(new) and of(old) and not of(new) <= of(old) for of in kinds)
    corrected = corrected and not _counts_others(new, old)
    return "UPDATE" if alike and corrected and not (_is_past(new) or _is_past(old)) else "ADD"


def _common(some: frozenset[str], others: frozenset[str]) -> float:
    """Return the share of the fewer words that are in both; 0 without words."""
    return len(some & others) / max(min(len(some), len(others)), 1)


def _counts_others(new: str, old: str) -> bool:
    """Return whether the numbers of two texts count different things: `grew to 12 people`, `has 3 offices`."""
    counted = [
        content(" ".join(pattern(r"(?<!\w)(?:\d[\d.,:]*|{counts}) ([^\W\d_]+)").findall(text)))
        - _measures(text)
        for text in (new, old)
    ]
    return all(counted) and not counted[0] & counted[1]


def _contradicts(new: str, old: str) -> bool:
    """Return whether one of two texts denies all that the old one says, or a part of its only statement.

    A denial with more words denies less: who drinks no coffee on Mondays may drink it on other days.
    """
    denial = content(" ".join(pattern("{ended}").findall(f"{new} {old}"))) | content("longer more")
    said, known = content(new) - denial, content(old) - denial
    if not known or not says(new, "ended"):
        return bool(known) and known <= said
    parts = not pattern(r"[,;]|\b(?:and|or|but)\b").search(old)
    return known == said or (parts and bool(said) and said <= known)


def _speaks_of(text: str) -> frozenset[str]:
    """Return the words before the verb, without dates, numbers and what stands behind a comma."""
    said = pattern(r"^{starting},? ").sub("", text)
    heads = (said[: found.start()].partition(",")[0] for found in pattern("{finite}|{ended}").finditer(said))
    found = (content(head) - _measures(head) for head in heads)
    return next((words for words in found if words), content(""))


def _as_in(new: str, old: str) -> bool:
    """Return whether a text has the tense, the mood and the order of names of another, which has all its words."""
    turned = [set(map(str.lower, pattern("{turning}").findall(text))) for text in (new, old)]
    known = iter(_names_in_order(old))
    in_order = all(name in known for name in _names_in_order(new))
    return in_order and turned[0] == turned[1] and _is_past(new) == _is_past(old)


def _names_in_order(text: str) -> list[str]:
    named = names(text)
    return [word for word in re.findall(r"[\w-]+", text) if word in named]


def _is_past(text: str) -> bool:
    """Return whether a text tells of the past; `is planned` does not, nor what changed `to` a value that holds."""
    unpast = r"\b(?:is|are|be|being|gets?) \w+ed\b|(?:\b(?:has|have|had|was|were|been) )*{changed}(?= to\b)"
    return says(pattern(unpast).sub("", text), "past")


def judge(material: PropagationMaterial) -> JudgedReflections | ShownAlike:
    """Return nothing: rules cannot judge what is about nobody."""
    answer = JudgedReflections if material.others is None else ShownAlike
    return answer(propagated=[])


def decide(material: DecisionMaterial) -> FactDecisions:
    """Return a decision for each new fact that means something for a known one; the others are added."""
    shown = (*material.known, *material.new)
    decided = (_decision(number, material, shown) for number in range(1, len(material.new) + 1))
    return FactDecisions(decisions=[decision for decision in decided if decision])


def _decision(
    number: int, material: DecisionMaterial, shown: tuple[KnownLine | NewFact, ...]
) -> FactDecision | None:
    """Decide by the nearest fact that it means something for."""
    new, known = material.new[number - 1], len(material.known)
    nearest_first = sorted(zip(new.similarities, new.candidates, strict=True), reverse=True)
    for similarity, existing in nearest_first:
        other = shown[existing - 1]
        decision = meaning_of(new.text, other.text, similarity)
        if decision != "NONE" and _older(new, other):  # judged as if it had come first; it overrules nothing
            overruled = meaning_of(other.text, new.text, similarity) in ("UPDATE", "DELETE")
            decision = "DELETE" if overruled else "ADD"
        if decision != "ADD":
            text = cut_at_sentence(new.text, material.words) if decision == "UPDATE" else None
            return FactDecision(
                fact=fact_label(known + number, known),
                decision=decision,
                existing=fact_label(existing, known),
                text=text,
                reason=_REASONS[decision],
            )
    return None


def _older(new: NewFact, other: KnownLine | NewFact) -> bool:
    return new.said_at is not None and other.said_at is not None and new.said_at < other.said_at


def _values(text: str) -> frozenset[str]:
    """Return numbers, dates and names."""
    return _measures(text) | content(" ".join(names(text)))


def _measures(text: str) -> frozenset[str]:
    """Return numbers and dates."""
    days = dates(text)
    return content(" ".join((*numbers(text), *days, *(f"{day}s" for day in days))))
