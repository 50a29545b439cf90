"""Facts that memory would be better without, found by the checks of formation itself. Pure.

Two facts of one scope are compared where they share enough words, as the sharing checks do (`mostly_in`); what a fact
rests on is compared with the messages' own words, without memory that an application or a tool put into them. The
checks go by words: they find nothing in writing without spaces, and `nobody` knows English alone.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from eden_memory.formation.shareable import adds_little, beginnings, contradicts, mostly_in
from eden_memory.formation.transcript import NUMBERED, without_memory
from eden_memory.formation.unnamed_sources import share_said

JunkKind = Literal["duplicate", "near_duplicate", "contradicted", "expired", "quote", "unsupported", "nobody"]
"""duplicate: the same words as an older fact; near_duplicate: two thirds of the words, and near by meaning.
contradicted: a newer fact says it with other numbers, or the other way round. expired: its time is over. quote: only
our own context says it, or the agent alone repeats an older fact. unsupported: its messages have none of its words.
nobody: it does not say whom it is about."""
LEAST_SAID = 0.1
"""Share of a fact's telling words that its messages have: less counts as none."""
MOST_ALIKE = 30
"""Facts that one word leads to; it is one of a fact's rarest."""
_NOBODY = re.compile(r"\W*(?:he|she|they|it|someone|somebody|anyone|anybody|nobody)\b", re.IGNORECASE)


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


def repeats(pairs: Iterable[Alike], similar: Mapping[tuple[str, str], float], least: float) -> Iterator[Junk]:
    """Yield the facts that another one makes needless; `similar`: (1 + cosine) / 2 of a pair, by its ids.

    Of a duplicate the older fact stays, of near duplicates the one that says more. What happened at two times does
    not contradict itself.
    """
    for older, newer in pairs:
        of_older, of_newer = beginnings(older.text), beginnings(newer.text)
        if similar.get((older.fact_id, newer.fact_id), 0.0) < least:
            continue
        if contradicts(newer.text, older.text):
            if None in (older.occurred_at, newer.occurred_at) or older.occurred_at == newer.occurred_at:
                yield Junk("contradicted", older, newer)
        elif of_older == of_newer:
            yield Junk("duplicate", newer, older)
        elif mostly_in(of_older, of_newer) and mostly_in(of_newer, of_older):
            less, more = (older, newer) if len(of_older) < len(of_newer) else (newer, older)
            yield Junk("near_duplicate", less, more)


def by_itself(fact: AuditedFact, now: datetime) -> JunkKind | None:
    """Return what a fact's own fields and text say."""
    if fact.expires_at is not None and fact.expires_at <= now:
        return "expired"
    return "nobody" if _NOBODY.match(fact.text) or NUMBERED.search(fact.text) else None


def by_messages(
    fact: AuditedFact, messages: Sequence[tuple[str, str]], older: Iterable[AuditedFact] = ()
) -> Junk | None:
    """Return what a fact's messages, (role, text), say of it; None: it rests on them.

    `older`: facts of its scope with mostly its words, said before.
    """
    own = " ".join(without_memory(text, role) for role, text in messages)
    if share_said(fact.text, own) >= LEAST_SAID:
        repeated = None
        if {role for role, _ in messages} <= {"assistant", "tool"}:
            repeated = next((known for known in older if adds_little(fact.text, known.text)), None)
        return None if repeated is None else Junk("quote", fact, repeated)
    whole = " ".join(text for _, text in messages)
    return Junk("quote" if share_said(fact.text, whole) >= LEAST_SAID else "unsupported", fact)
