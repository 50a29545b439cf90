"""Takes a sentence apart into clauses, and tells whether a clause stands alone as a statement."""

import re
from collections.abc import Iterator

from eden_memory.formation.offline.sentence_words import content, numbers, pattern, says
from eden_memory.formation.offline.statement_kinds import Kind

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
    """Where a subject of its own begins, unless what stands before it has no verb: `Last Friday, I left`."""
    start = 0
    for found in pattern(_SPLIT).finditer(sentence):
        if says(sentence[start : found.start()], "verb"):
            yield sentence[start : found.start()].strip(" ,;")
            start = found.end()
    if sentence[start:].strip(" .,;!"):
        yield sentence[start:].strip(" ,;")


def _unexplained(text: str) -> bool:
    """Whether a pronoun stands so early that nothing in the clause can be what it means."""
    found = pattern("{pronoun}").search(text)
    return found is not None and len(text[: found.start()].split()) < 6


def complete(text: str, kind: Kind, *, first: bool) -> bool:
    """Whether a clause reads as a statement of its own: subject, verb, and nothing in it that points outside.

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
