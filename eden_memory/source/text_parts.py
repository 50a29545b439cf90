"""A long text in parts that each fit into one message: cut where its sense is least broken."""

from collections.abc import Iterator

ENDS = ("\n\n", "\n", ". ", " ")
"""Where a text is best cut, the best first."""


def parts_of(text: str, limit: int) -> Iterator[str]:
    """Parts of at most `limit` characters, none of them blank; together all of the text but blanks between them."""
    rest = text.strip()
    while len(rest) > limit:
        at = _cut(rest, limit)
        yield rest[:at].strip()
        rest = rest[at:].strip()
    if rest:
        yield rest


def _cut(text: str, limit: int) -> int:
    """Behind the last good end in the second half of what fits; anywhere if there is none."""
    for end in ENDS:
        found = text.rfind(end, limit // 2, limit)
        if found > 0:
            return found + len(end)
    return limit
