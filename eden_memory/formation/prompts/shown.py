"""Content as prompts show it: nobody's text or name can look like a line of the prompt's own."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache

from eden_memory.formation.prompt_material import TranscriptLine

NAME_CHARACTERS = 40
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MARKS = {"assistant": " (agent)", "tool": " (tool)", "system": " (system)", "other": " (other)"}
_UNSEEN = re.compile(
    "[\u0000-\u0008\u000e-\u001b\u007f-\u0084\u0086-\u009f"  # control characters, but for those that end a line
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff"  # direction marks, and what has no width
    "\U000e0000-\U000e007f]"  # tags
)
"""What a person who reads the text would not see."""
_NOT_IN_NAMES = re.compile(r"[^\w .,'’&/+-]+")  # noqa: RUF001 - names hold it


@lru_cache(maxsize=4_096)
def name(text: str) -> str:
    """A name in one line of at most 40 characters, without what marks a line: brackets and colons."""
    return (
        " ".join(_NOT_IN_NAMES.sub(" ", _UNSEEN.sub("", text)).split())[:NAME_CHARACTERS].strip() or "Someone"
    )


def one_line(text: str) -> str:
    """A text in one line."""
    return " ".join(_UNSEEN.sub("", text).split())


def plain(text: str, fence: str) -> str:
    """Content in one line, without the fence."""
    return one_line(one_line(text).replace(fence, " "))


def moment(time: datetime) -> str:
    """A time as `2026-03-02 14:05` (UTC), to the minute."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"


def indented(text: str, fence: str) -> str:
    """A text whose lines are all indented, so that none of them can pass for a line of the prompt."""
    return "\n".join(f"  {line}" for line in _lines(text, fence) or [""])


def messages(lines: tuple[TranscriptLine, ...], fence: str) -> str:
    """Messages as `[number] HH:MM Name: text` (UTC), a line with the date before the first of each day."""
    return "\n".join(_numbered(lines, fence))


def _numbered(lines: tuple[TranscriptLine, ...], fence: str) -> Iterator[str]:
    day = None
    for number, line in enumerate(lines, 1):
        if (date := line.time.date()) != day:
            day = date
            yield _day(line.time)
        first, *rest = _lines(line.text, fence) or [""]
        yield f"[{number}] {line.time:%H:%M} {name(line.speaker)}{_MARKS.get(line.role, '')}: {first}"
        for continued in rest:
            yield f"  {continued}"


def _day(time: datetime) -> str:
    return f"{time:%Y-%m-%d} {_WEEKDAYS[time.weekday()]}"


def _lines(text: str, fence: str) -> list[str]:
    """The lines that are not blank, whatever separates them (also U+2028 and the like), without the fence."""
    seen = _UNSEEN.sub("", text).replace(fence, " ")
    return [" ".join(line.split()) for line in seen.splitlines() if line.strip()]
