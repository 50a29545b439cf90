"""The messages that bring memory into a chat: what stays from turn to turn, and what this turn adds. Pure.

Both say in their first line that all of it is data (eden_memory.context.context_xml.NOTICE).
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from eden_memory.context.context_xml import FactLine, Showing, context_xml, one_line

FACTS, END = "\n  <Facts>\n", "\n  </Facts>"
OPENING, CLOSING = "<MemoryContext>\n", "\n</MemoryContext>"


class MemoryText(NamedTuple):
    """`stable`: blobs and reflections. `changing`: facts with their ages, and what was found for this turn."""

    stable: str
    changing: str


def memory_text(context: str, found: Sequence[FactLine], now: datetime) -> MemoryText:
    """Of a context without recalled facts; `found` that it shows already are not said twice."""
    lines = [one for one in found if f"] {one_line(one.content)} (" not in context]
    stable, facts = parted(context)
    retrieved = context_xml((), now, Showing(), lines)
    if not facts or not retrieved:
        return MemoryText(stable, facts or retrieved)
    return MemoryText(stable, facts.removesuffix(CLOSING) + _inside(retrieved) + CLOSING)


def parted(context: str) -> tuple[str, str]:
    """(a context without its facts, its facts alone); markup inside memories is escaped, so the marks are its own."""
    start = context.find(FACTS)
    if start < 0:
        return context, ""
    end = context.index(END, start) + len(END)
    notice = context[: context.find("\n", len(OPENING))]
    rest = context[:start] + context[end:]
    return ("" if rest == notice + CLOSING else rest), notice + context[start:end] + CLOSING


def in_one(text: MemoryText) -> str:
    """Both in one, what is stable first."""
    if not text.stable or not text.changing:
        return text.stable or text.changing
    return text.stable.removesuffix(CLOSING) + _inside(text.changing) + CLOSING


def _inside(context: str) -> str:
    """The elements behind the first line, with the line break before them."""
    return context[context.index("\n", len(OPENING)) :].removesuffix(CLOSING)
