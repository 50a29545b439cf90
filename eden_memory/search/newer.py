"""Of two facts that say different things of the same, the newer stands above the older. Pure.

Deduplication replaces what a new fact contradicts; what it leaves side by side (it saw no contradiction, or never saw
the older one) is put in order here, for questions about how things are, not how they were. A newer fact overtakes an
older one of the same subject that is alike in meaning: much alike, or less so if its words say that something has
changed. Alike is measured by cosine, stretched so that unrelated texts have 0.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from eden_memory.search.diversity import cosines
from eden_memory.search.fact_candidates import Scored

ALIKE = 0.7
"""From which two facts are about the same, whatever their words."""
ALIKE_AND_CHANGED = 0.4
"""From which they are if the newer one says that something has changed."""
NEAREST = 3
"""One of the two is among so many of the other's most alike."""
SHARE = 0.3
"""Of the older one's score that the newer one has at least: both answer the question."""
POOL = 10
"""So many of the best are put in order: what is found stays the same, where 10 are asked for."""
_CHANGED = re.compile(
    r"\b(now|nowadays|these days|currently|any ?more|no longer|instead|since then|by now|lately|recently|as of|"
    r"from now on|new|newly|latest|(re)?moved|relocated|settled|switched|changed|replaced|updated?|upgraded|"
    r"became|becomes?|turned|joined|left|quit|stopped|started|began|begun|finished|ended|gave up|took up|dropped|"
    r"cancell?ed|postponed|pushed back|rescheduled|extended|extension|closed|went (up|down|to)|up to|down to|grew|"
    r"grown|increased|reduced|cut|raised|lowered|rose|fell|prefers?|decided|broke up|divorced|married|used to|"
    r"previously|formerly|rather than|has (gone|got|had|been))\b",
    re.IGNORECASE,
)
_THEN = re.compile(
    r"\b(did|was|were|had|used to|previous(ly)?|former(ly)?|original(ly)?|first|before|ago|earlier|past|once|ever|"
    r"history)\b",
    re.IGNORECASE,
)
_PERFECT, _DO = re.compile(r"\b(has|have)\b", re.IGNORECASE), re.compile(r"\b(do|does)\b", re.IGNORECASE)
_WORD = re.compile(r"\w[\w-]*")
_PEOPLE = frozenset(("user", "users", "assistant", "agent", "customer", "client", "speaker"))
"""Stand for a name, as facts have it."""
_FUNCTION = frozenset(
    re.findall(
        r"\w+",
        "a an the this that these those as at by for from in of on since until to with after before during when "
        "while and but or if it its his her their my our your is are was were has have had there",
    )
)


@dataclass(frozen=True, slots=True)
class _About:
    """The subject of a fact, by its words."""

    subject: str | None
    words: frozenset[str]
    changed: bool


def asks_for_now(question: str) -> bool:
    """Whether a question is about how things are: in English, nothing in it speaks of the past."""
    if _THEN.search(question):
        return False
    return _PERFECT.search(question) is None or _DO.search(question) is not None


def newer_first(found: Sequence[Scored], unrelated: float = 0.5) -> list[Scored]:
    """Each newer fact directly above the best placed older one of the same, wherever it stood below it.

    `unrelated`: (1 + cosine) / 2 of texts that have nothing to do with each other.
    """
    pool = found[:POOL]
    if len(pool) < 2:
        return list(found)
    overtakes = _overtaking(pool, unrelated)
    if not overtakes.any():
        return list(found)
    order: list[int] = []
    for number in range(len(pool)):
        place = next((at for at, above in enumerate(order) if overtakes[number, above]), len(order))
        order.insert(place, number)
    return [*_with_falling_scores([pool[number] for number in order]), *found[POOL:]]


def _overtaking(pool: Sequence[Scored], unrelated: float) -> NDArray[np.bool_]:
    """Whether the line's fact is to stand above the column's."""
    floor = 2 * unrelated - 1
    alike = (cosines(pool) - floor) / (1 - floor)
    np.fill_diagonal(alike, 0)
    places = (-alike).argsort(1, kind="stable").argsort(1)
    stated = np.array([scored.fact.valid_from.timestamp() for scored in pool])
    scores = np.array([scored.score for scored in pool])
    possible = (stated[:, None] > stated[None, :]) & (alike >= ALIKE_AND_CHANGED)
    possible &= np.minimum(places, places.T) < NEAREST
    possible &= scores[:, None] >= SHARE * scores[None, :]
    overtakes = np.zeros_like(possible)
    for line, column in np.argwhere(possible).tolist():
        overtakes[line, column] = _updates(pool[line], pool[column], float(alike[line, column]))
    return overtakes


def _updates(newer: Scored, older: Scored, alike: float) -> bool:
    if newer.fact.scope_key != older.fact.scope_key:
        return False
    told, known = _about(newer.fact.text), _about(older.fact.text)
    return (told.changed or alike >= ALIKE) and _same_subject(told, known)


def _same_subject(newer: _About, older: _About) -> bool:
    """Whether what one text is about stands in the other too: its first name, or without names its first noun."""
    if newer.subject is None or older.subject is None:
        return True
    return newer.subject in older.words and older.subject in newer.words


@lru_cache(4_096)
def _about(text: str) -> _About:
    words = [word.removesuffix("'s") for word in _WORD.findall(text)]
    telling = [word for word in words if word.casefold() not in _FUNCTION]
    named = next((word for word in telling if word[0].isupper() or word in _PEOPLE), None)
    subject = named or next(iter(telling), None)
    return _About(
        subject.casefold() if subject else None,
        frozenset(word.casefold() for word in words),
        _CHANGED.search(text) is not None,
    )


def _with_falling_scores(found: Sequence[Scored]) -> list[Scored]:
    """A fact that moved up has the score of the place that it moved to."""
    highest = 0.0
    raised: list[Scored] = []
    for scored in reversed(found):
        highest = max(highest, scored.score)
        raised.append(scored if scored.score == highest else scored.now("newer", highest))
    return raised[::-1]
