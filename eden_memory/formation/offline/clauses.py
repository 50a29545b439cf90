"""Split sentences into clauses, classify them, and tell whether one stands alone as a statement."""

import re
from collections.abc import Iterator
from typing import Literal

from eden_memory.formation.offline.sentence_words import content, dates, numbers, pattern, says

Kind = Literal["fact", "rule", "way", "context", "nothing"]
"""Context is kept only beside a statement that needs it."""
_OWN = re.compile(r"\b(?:I|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself)\b")


def kind_of(sentence: str, lead: str, speakers: frozenset[str], named: frozenset[str]) -> Kind:
    """Classify a sentence behind its `lead` (`One rule for you:`); `named` are the conversation's names."""
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


_NAME = r"(?-i:[A-Z])[\w.-]+(?: (?-i:[A-Z])[\w-]+)*"
_SPLIT = (
    r"(?:[,;] (?:(?:and|but|because|so) )?| (?:and|but) )"
    r"(?=(?:I|he|she|it|they|we)(?:'\w+)? |(?:his|hers|theirs) is )"
    r"|, (?:and )?(?=(?:ask|bring|tell|please|whatever|everybody|nobody|there)\b|the (?:\w+ ){1,3}(?:is|are) )"
    r"|, so (?!that)"
)
_CALLED = rf"^(?:she|he|it) is called ({_NAME}), (?=an? )"
_ROLE = rf", (?:the )?(owner|builder|author|manager|landlord|teacher|captain) is (?={_NAME})"


def clauses(sentence: str) -> Iterator[str]:
    """Yield the clauses of a sentence, without who reports it and without what only fills it."""
    named = pattern(_CALLED).sub(lambda m: f"{m[1]} is ", sentence)
    named = pattern(rf"^({_NAME}) is the (?:one|person) who ").sub(r"\1 ", named)
    named = pattern(rf"^{_NAME} (?:wrote|writes|said|says): ?").sub("", named)
    named = pattern(r" here(?: now)?(?=[,.!]|$)|,? (?:also|too)(?=[,.]|$)| of us\b").sub("", named)
    return (clause[0].upper() + clause[1:] for clause in _pieces(named))


def _pieces(sentence: str) -> Iterator[str]:
    if pattern("^(?:when|if) ").match(sentence) and not pattern("^if [^,]*, (?:my|the|i)").match(sentence):
        yield sentence
        return
    head, *roles = pattern(_ROLE).split(sentence)
    yield from _cut(head)
    name = re.match(_NAME.replace("(?-i:", "(?:"), head)
    for role, holder in zip(roles[::2], roles[1::2], strict=True):
        if name:
            yield f"{name[0]}'s {role} is {holder}"


def _cut(sentence: str) -> Iterator[str]:
    """Split where a new subject begins, unless the part before it has no verb: `Last Friday, I left`."""
    start = 0
    for found in pattern(_SPLIT).finditer(sentence):
        if says(sentence[start : found.start()], "verb"):
            yield sentence[start : found.start()].strip(" ,;")
            start = found.end()
    if sentence[start:].strip(" .,;!"):
        yield sentence[start:].strip(" ,;")


def _unexplained(text: str) -> bool:
    """Return whether a pronoun stands so early that nothing in the clause can be what it means."""
    found = pattern("{pronoun}").search(text)
    return found is not None and len(text[: found.start()].split()) < 6


def complete(text: str, kind: Kind, *, first: bool) -> bool:
    """Return whether a clause reads as a statement of its own: subject, verb, and nothing in it that points outside.

    `first`: whether it opens its message; a later one with a bare subject (`the course`) leans on the one before.
    """
    said = pattern("^if there is [^,]*, ").sub("", text)
    if kind == "way":
        return not pattern("^(?:he|she|it|they|this|that)\\b|{vague}").search(said)
    if pattern("{outside}|{vague}").search(said) or _unexplained(said):
        return False
    if kind == "rule" and pattern("^(?:{order}|{everybody}|for )").match(said):
        return True
    if not first and pattern(r"^the [\w-]+ {finite}").match(said):
        return False
    opening = re.match(r"[\w-]+(?='s |[ ,])", said)
    is_name = bool(
        opening and content(opening[0]) and not (numbers(opening[0]) or says(opening[0], "months"))
    )
    name = _NAME + r"(?:'s [\w ]{2,30}?)?" if is_name else "(?!)"
    subject = rf"(?:my [\w' ]{{2,40}}?|the [\w' -]{{2,60}}?|{{everybody}}|{{plural}}|{{bare}}|{name})"
    rest = r"(?:I (?:{adverbs} )*[a-z]|" + subject + r",?(?: {adverbs})* {finite})"
    return bool(pattern(r"^(?:{intro},? )?" + rest).match(said))
