"""Facts and reflections of a window, from its statements; each goes to the scope that it is about."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TypeVar

from eden_memory.formation.offline.offline_decisions import meaning_of
from eden_memory.formation.offline.sentence_words import content, english, names, pattern, plain, says
from eden_memory.formation.offline.statements import HeardStatement, statements
from eden_memory.formation.prompt_material import FactMaterial, ReflectionMaterial, ScopeBrief, TranscriptLine
from eden_memory.formation.transcript import NAMELESS, REMOVED
from eden_memory.schemas.answers import ExtractedFacts, StatedFact, StatedReflection, StatedReflections
from eden_memory.word_limits import cut_at_sentence

Item = TypeVar("Item", StatedFact, StatedReflection)
_PLACES = (("agent", "group", "user"), ("user", "group"), ("user",))
"""Where statements for all, statements in doubt and a person's own go: the first of them that is there."""


def facts(material: FactMaterial) -> ExtractedFacts:
    """At most as many as are wanted; a later one replaces an earlier one of another value."""
    found: list[StatedFact] = []
    for one in statements(material.lines, material.words):
        if one.kind == "fact" and (label := _place(one, material)):
            found = [old for old in found if old.scope != label or not _replaces(one.text, old.text)]
            found.append(StatedFact(text=one.text, scope=label, messages=list(one.messages)))
    return ExtractedFacts(facts=_within(found, material.scopes)[: material.most])


def reflections(material: ReflectionMaterial) -> StatedReflections:
    """Rules for all, ways to treat a person, and what the session was about."""
    found: list[StatedReflection] = []
    for one in statements(material.lines, material.words):
        if one.kind in ("rule", "way") and (label := _place(one, material)):
            (scope,) = (scope for scope in material.scopes if scope.label == label)
            shown = (*(scope.blob or "").splitlines(), *(known.text for known in scope.buffer))
            known = (*shown, *material.facts, *(other.text for other in found))
            if all(meaning_of(one.text, old) != "NONE" for old in known):
                found.append(StatedReflection(text=one.text, scope=label, messages=list(one.messages)))
    return StatedReflections(reflections=_within([*found, *_happened(material)], material.scopes))


def _place(one: HeardStatement, material: FactMaterial | ReflectionMaterial) -> str | None:
    """The first scope offered of those where it may go; what is added without a user is the agent's, in doubt too."""
    offered = {scope.label for scope in material.scopes}
    wanted = ("user", "session") if one.kind == "way" else _PLACES[one.personal]
    if one.personal == 1 and {line.speaker for line in material.lines if line.role == "user"} == {
        NAMELESS["user"]
    }:
        wanted = (*wanted, "agent")
    return next((label for label in wanted if label in offered), None)


def _replaces(new: str, old: str) -> bool:
    return content(old) <= content(new) or meaning_of(new, old) == "UPDATE"


def _within(items: Sequence[Item], scopes: Sequence[ScopeBrief]) -> list[Item]:
    most = {scope.label: scope.most for scope in scopes}
    before = [[one.scope for one in items[:at]] for at in range(len(items))]
    return [one for one, taken in zip(items, before, strict=True) if taken.count(one.scope) < most[one.scope]]


def _happened(material: ReflectionMaterial) -> Iterator[StatedReflection]:
    numbered = enumerate(material.lines, 1)
    heard = {n: line for n, line in numbered if line.text not in ("", REMOVED) and line.role != "system"}
    said = {n: line for n, line in heard.items() if line.role == "user"} or heard
    if said and any(scope.label == "session" for scope in material.scopes):
        people = " and ".join(dict.fromkeys(line.speaker for line in said.values()))
        day, topics = material.lines[min(said) - 1].time, ", ".join(_topics(tuple(heard.values())))
        what = f"talked about {topics}" if topics else "spoke briefly"
        text = f"On {day.day} {day:%B %Y} {people} {what}."
        yield StatedReflection(
            text=cut_at_sentence(text, material.words), scope="session", messages=list(said)
        )


def _topics(lines: Sequence[TranscriptLine], most: int = 6) -> list[str]:
    """The nouns and names that come up most often, as they are first written."""
    texts = [line.text for line in lines if not says(line.text, "never")]
    other = content(" ".join((*english()["months"], *english()["days"], *(line.speaker for line in lines))))
    named = (word for text in texts for word in (*names(text), *pattern("{noun}").findall(text)))
    nouns = {*map(plain, named)} - other
    words = [word for text in texts for word in re.findall(r"\w{4,}", text) if content(word) & nouns]
    first = {plain(word): word for word in reversed(words)}
    return [first[word] for word, _ in Counter(map(plain, words)).most_common(most)]
