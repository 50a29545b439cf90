"""Word limits: words are counted by whitespace, and a text over its limit is cut at a sentence's end. Pure."""

import re

_WORD = re.compile(r"\S+")
_SENTENCE_END = re.compile("[.!?\u2026\u3002\uff01\uff1f][\"')\\]\u00bb\u201d\u2019]*$")
"""Also an ellipsis and the full-width marks; closing quotes and brackets may follow."""

CHARACTERS_OF_A_WORD = 24
"""More than words of any language have on average, so that only a text without spaces meets this bound."""


def words_of(text: str) -> int:
    """Count the words of a text."""
    return len(text.split())


def cut_at_sentence(text: str, limit: int) -> str:
    """The whole sentences that fit into `limit` words (at least 1); where not even one does, its first words.

    The line structure of what stays is kept.
    """
    words = list(_WORD.finditer(text))
    if len(words) <= limit:
        return text.strip()
    for last in range(limit - 1, -1, -1):
        if _ends(text, words[last], words[last + 1]):
            return text[: words[last].end()].strip()
    return text[: words[limit - 1].end()].strip()


def fitted(text: str, limit: int) -> str:
    """One item within `limit` words, of 24 characters a word: text that has no spaces is bounded too.

    Whole sentences are kept where they fill at least half of the limit, else the first words.
    """
    short = cut_at_sentence(text, limit)
    if short != text.strip() and 2 * words_of(short) < limit:
        short = " ".join(text.split()[:limit])
    return short[: limit * CHARACTERS_OF_A_WORD].rstrip()


def _ends(text: str, word: re.Match[str], following: re.Match[str]) -> bool:
    """Whether a sentence, or a line, ends with this word."""
    return bool(_SENTENCE_END.search(word.group())) or "\n" in text[word.end() : following.start()]
