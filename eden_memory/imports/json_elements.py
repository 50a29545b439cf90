"""The elements of a JSON file one by one, whatever its size: JSON lines, or one array, bare or in an object."""

import re
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Iterator, Mapping
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import orjson

from eden_memory.errors import Invalid, NotFound

PART, LONGEST = 1_000_000, 64_000_000
"""Characters read at once; bytes of one line or element, at most."""
LONG_NUMBER = 100
TOO_LONG = f"it is longer than {LONGEST:,} bytes"
ARRAY = re.compile(r'\s*(\{\s*"[A-Za-z_]+"\s*:\s*)?\[')
BLANK = re.compile(r"[\s,]*")
MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
OPENING, CLOSING = ("[", "{"), ("]", "}")


class Element(NamedTuple):
    """One element; `why` it cannot be read, or None."""

    where: str
    value: Any
    why: str | None = None

    @property
    def fields(self) -> Mapping[str, Any] | None:
        """The element if it is an object."""
        value: object = self.value
        return cast("Mapping[str, Any]", value) if isinstance(value, dict) else None


def elements(path: Path) -> Iterator[Element]:
    """Yield the elements of a file; an element that cannot be read says why."""
    with opened(path) as file:
        begin = file.read(PART).decode("utf-8-sig", errors="replace")
        file.seek(0)
        if (array := ARRAY.match(begin)) is not None:
            yield from _of_array(file, array.end())
        else:
            yield from _of_lines(file)


def opened(path: Path) -> BinaryIO:
    """Open a file to be read; NotFound or Invalid."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}") from None


def bounded_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines of a file; None for one that is too long to be read."""
    while line := file.readline(LONGEST):
        too_long = len(line) == LONGEST and not line.endswith(b"\n")
        while too_long and (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
            continue
        yield None if too_long else line


def _of_lines(file: BinaryIO) -> Iterator[Element]:
    for number, line in enumerate(bounded_lines(file), 1):
        where = f"line {number}"
        if line is None:
            yield Element(where, None, TOO_LONG)
        elif line.strip():
            yield _parsed(where, line)


def _parsed(where: str, line: bytes) -> Element:
    try:
        return Element(where, orjson.loads(line.removeprefix(BOM_UTF8)))
    except orjson.JSONDecodeError:
        return Element(where, None, "it is not valid JSON")


def _of_array(file: BinaryIO, begin: int) -> Iterator[Element]:
    """Yield the elements of an array; after a broken one nothing can be read."""
    decoder, number = JSONDecoder(parse_int=_number), 0
    text = _Text(file, begin)
    while (character := text.next_character()) != "]":
        number += 1
        found: Element | None = None
        while character and found is None:
            try:
                element, text.at = decoder.raw_decode(text.read, text.at)
                found = Element(f"item {number}", element)
            except RecursionError:
                if (end := _end_of(text.read, text.at)) is not None:
                    found, text.at = Element(f"item {number}", None, "it is nested too deeply"), end
                elif len(text.read) - text.at > LONGEST or not text.more():
                    break
            except JSONDecodeError:
                if len(text.read) - text.at > LONGEST or not text.more():
                    break
        if found is None:
            yield Element(f"item {number}", None, "it is not valid JSON, and what follows cannot be read")
            return
        yield found


def _end_of(text: str, at: int) -> int | None:
    """Return where a list or an object ends that is nested too deeply to be read; None behind the text."""
    depth = 0
    for mark in MARKS.finditer(text, at):
        depth += (mark.group() in OPENING) - (mark.group() in CLOSING)
        if depth == 0 and mark.group() in CLOSING:
            return mark.end()
    return None


def _number(digits: str) -> int | float:
    """Return a number as orjson does: int() refuses thousands of digits."""
    return int(digits) if len(digits) < LONG_NUMBER else float(digits)


class _Text:
    """A part of a file, as text, and the place in it."""

    def __init__(self, file: BinaryIO, at: int) -> None:
        self._file, self._decoder = file, getincrementaldecoder("utf-8-sig")(errors="replace")
        self.read, self.at = self._next(PART), at

    def _next(self, size: int) -> str:
        found = self._file.read(size)
        return self._decoder.decode(found, final=not found)

    def more(self) -> bool:
        """Read on, at least as much as is left to parse; False at the end of the file."""
        found = self._next(max(PART, len(self.read) - self.at))
        self.read, self.at = self.read[self.at :] + found, 0
        return bool(found)

    def next_character(self) -> str:
        """Move to what is neither blank nor a comma; return it, "" at the end of the file."""
        while True:
            blank = BLANK.match(self.read, self.at)
            self.at = blank.end() if blank is not None else self.at
            if self.at < len(self.read):
                return self.read[self.at]
            if not self.more():
                return ""
