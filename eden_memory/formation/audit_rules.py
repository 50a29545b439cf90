"""Facts that memory would be better without, found by the checks of formation itself. Pure.

Two facts of one scope are compared where they share enough words, as the sharing checks do (`mostly_in`); what a fact
rests on is compared with the messages' own words, without memory that an application or a tool put into them. The
checks go by words: they find nothing in writing without spaces, `unsupported` judges only a fact that shares short
words with its messages, as texts of one language do, and `nobody` knows English alone.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from eden_memory.formation.shareable import adds_little, beginnings, contradicts, mostly_in
from eden_memory.formation.transcript import NUMBERED, without_memory
from eden_memory.formation.unnamed_sources import share_said
from eden_memory.memory.memory_batch import normalised
from eden_memory.memory.memory_views import JunkKind

LEAST_SAID = 0.1
"""Share of a fact's telling words that its messages have: less counts as none."""
MOST_ALIKE = 30
"""Facts that one word leads to; it is one of a fact's rarest."""
_NOBODY = re.compile(r"\W*(?:He|She|They)\s+(?!and\b|or\b|who\b|of\b)[a-z]{2,}")
"""A pronoun and what looks like its verb: names (`They Might Be Giants`) go on with a capital."""
_ENDS = ".,;:!?…\"'()“”„‘’«»"  # noqa: RUF001
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts that put no spaces between words: Thai to Burmese, Khmer, kana, Chinese characters."""
_SHORT = re.compile(r"\b[^\W\d_]{2,3}\b")
"""Words that are mostly of a language's grammar."""
SHARED_SHORT = 2
"""Different short words, at least, that a fact and its messages share, and half of the fact's: one language."""


@dataclass(frozen=True, slots=True)
class AuditedFact:
    """An active fact, as far as the checks need it."""

    fact_id: str
    version: int
    scope_key: str
    agent_id: str
    text: str
    valid_from: datetime
    expires_at: datetime | None = None
    occurred_at: datetime | None = None
    message_ids: tuple[str, ...] = ()
    commanded: bool = False
    """A person, an application or an import gave it its text: it needs no message."""


class Junk(NamedTuple):
    """A fact to retire, and the fact that makes it so, if one does."""

    kind: JunkKind
    fact: AuditedFact
    because: AuditedFact | None = None


class Alike(NamedTuple):
    """Two facts of one scope with mostly the same words, by when they were said."""

    older: AuditedFact
    newer: AuditedFact


class Likeness(NamedTuple):
    """How near two facts are: (1 + cosine) / 2, and from where on their model means the same."""

    similarity: float
    same: float


def alike(facts: Sequence[AuditedFact]) -> Iterator[Alike]:
    """Yield the pairs of a scope's facts of which one has at least two thirds of the other's words.

    Such facts share one of the rarest third of the shorter one's words. Of a word that more than 30 facts have, the
    first 30 are compared: time grows with the number of facts, not with its square.
    """
    words = [beginnings(fact.text) for fact in facts]
    often = Counter(word for of_fact in words for word in of_fact)
    having: dict[str, list[int]] = defaultdict(list)
    for place, of_fact in enumerate(words):
        for word in of_fact:
            if len(having[word]) < MOST_ALIKE:
                having[word].append(place)
    met = set[tuple[int, int]]()
    for place, of_fact in enumerate(words):
        if len(of_fact) < 2:
            continue
        rarest = sorted(of_fact, key=lambda word: (often[word], word))[: len(of_fact) // 3 + 1]
        for other in {found for word in rarest for found in having[word]} - {place}:
            pair = min(place, other), max(place, other)
            if pair not in met and len(words[other]) > 1 and mostly_in(of_fact, words[other]):
                met.add(pair)
                both = sorted((facts[place], facts[other]), key=lambda fact: (fact.valid_from, fact.fact_id))
                yield Alike(both[0], both[1])


def repeats(
    pairs: Iterable[Alike], similar: Mapping[tuple[str, str], Likeness], least: float
) -> Iterator[Junk]:
    """Yield the facts that another one makes needless; `similar`: how near a pair is, by its ids.

    Of a duplicate the older fact stays. A near duplicate is the fact of which another one has all words, in their
    order, and more. What happened at two times does not contradict itself.
    """
    for older, newer in pairs:
        near = similar.get((older.fact_id, newer.fact_id))
        if near is None or near.similarity < least:
            continue
        of_older, of_newer = _words(older.text), _words(newer.text)
        if contradicts(newer.text, older.text):
            if None in (older.occurred_at, newer.occurred_at) or older.occurred_at == newer.occurred_at:
                yield Junk("contradicted", older, newer)
        elif of_older == of_newer:
            yield Junk("duplicate", newer, older)
        elif near.similarity >= near.same:
            less, more = (older, newer) if len(of_older) < len(of_newer) else (newer, older)
            if _has_all(_words(more.text), _words(less.text)):
                yield Junk("near_duplicate", less, more)


def _words(text: str) -> list[str]:
    """Return all words, normalised; signs that belong to one stay (`C++`, `-5`, `5%`)."""
    return [word for part in normalised(text).split() if (word := part.strip(_ENDS))]


def _has_all(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether `wanted` are among the words, in this order."""
    left = iter(words)
    return len(wanted) < len(words) and all(word in left for word in wanted)


def by_itself(fact: AuditedFact, now: datetime) -> JunkKind | None:
    """Return what a fact's own fields and text say."""
    if fact.expires_at is not None and fact.expires_at <= now:
        return "expired"
    return "nobody" if _NOBODY.match(fact.text) or NUMBERED.search(fact.text) else None


def by_messages(
    fact: AuditedFact, messages: Sequence[tuple[str, str]], older: Iterable[AuditedFact] = ()
) -> Junk | None:
    """Return what a fact's messages, (role, text), say of it; None: it rests on them, or nothing can be told.

    `older`: facts of its scope with mostly its words, said before.
    """
    own = " ".join(without_memory(text, role) for role, text in messages)
    if share_said(fact.text, own) >= LEAST_SAID:
        repeated = None
        if {role for role, _ in messages} <= {"assistant", "tool"}:
            repeated = next((known for known in older if adds_little(fact.text, known.text)), None)
        return None if repeated is None else Junk("quote", fact, repeated)
    whole = " ".join(text for _, text in messages)
    if share_said(fact.text, whole) >= LEAST_SAID:
        return Junk("quote", fact)
    return Junk("unsupported", fact) if _one_language(fact.text, own) else None


def _one_language(text: str, said: str) -> bool:
    """Return whether a text's words could be found in what was said: a translation shares none of them."""
    if _UNSPACED.search(text) or _UNSPACED.search(said):
        return False
    short, of_said = (set(_SHORT.findall(one.casefold())) for one in (text, said))
    shared = short & of_said
    return len(shared) >= SHARED_SHORT and 2 * len(shared) >= len(short)
