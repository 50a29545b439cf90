"""What kind of statement a sentence is: a fact, a rule for all, a way to treat its speaker, or nothing to keep."""

import re
from typing import Literal

from eden_memory.formation.offline.sentence_words import content, dates, numbers, pattern, says

Kind = Literal["fact", "rule", "way", "context", "nothing"]
"""Context is kept only beside a statement that needs it."""
_OWN = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself)\b")


def kind_of(sentence: str, lead: str, speakers: frozenset[str], named: frozenset[str]) -> Kind:
    """Of one sentence behind its `lead` (`One rule for you:`); `named` are the names that the conversation holds."""
    asks = sentence.rstrip("\"') ").endswith("?") or pattern("^{asks}(?!.*,)").match(sentence)
    if asks or says(sentence, "never"):
        return "nothing"
    ruling = says(sentence, "rule") or pattern("^{everybody}.*{obliged}").match(sentence)
    if (ruling and not _OWN.search(sentence)) or pattern(r"\b(?:rules?|polic(?:y|ies))\b").search(lead):
        return "rule"
    meaning = content(sentence) - content(" ".join(speakers))
    order = pattern("^(?:(?:please|just|kindly) )*{order}").match(sentence)
    if says(sentence, "way") or (order and says(sentence, "lasting")):
        return "way" if meaning and (len(meaning) > 1 or _OWN.search(sentence)) else "nothing"
    passing = says(sentence, "passing") and not says(sentence, "event")
    if passing or order or re.search(r"\byou(?:r|rs)?\b", sentence, re.I):
        return "nothing"
    specific = named & set(re.findall(r"[\w-]+", sentence)) or numbers(sentence) or dates(sentence)
    lasts = says(sentence, "lasts") or pattern(r"\b(?:i|we) {did}.*{ago}|{ago},? (?:i|we)\b").search(sentence)
    named_so = meaning and says(sentence, "naming")
    return "fact" if named_so or (len(meaning) > 1 and (specific or lasts)) else "context"


def personal(clause: str, said: str) -> int:
    """Tell whose a clause is.

    2: its speaker's own life, or somebody's health, family or address; 0: `said` for all, and it names no person;
    1: anything else.
    """
    if _OWN.search(clause) or says(clause, "personal"):
        return 2
    return int(not says(said, "shared") or bool(pattern("{person}").search(clause)))
