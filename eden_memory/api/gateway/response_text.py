"""Reads the assistant's text from a response's bytes as they pass, and inserts `memory_hits`. Pure."""

from typing import Any, cast

import orjson

EVENT = b"data:"
MOST_BYTES = 8_000_000
"""Of a response's text that is kept for storing."""


class StreamedAnswer:
    """Server-sent events as they pass: only lines that hold content are read."""

    def __init__(self) -> None:
        self._rest = b""
        self._texts: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        """Some more bytes, cut anywhere."""
        if b"\n" not in chunk:
            self._rest += chunk
            return
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if b'"content"' in line and line.startswith(EVENT):
                self._read(line)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def _read(self, line: bytes) -> None:
        text = _content(line[len(EVENT) :], "delta")
        self._size += len(text)
        if text and self._size <= MOST_BYTES:
            self._texts.append(text)


def answer_of(body: bytes) -> str:
    """Return the text of a whole response; "" if there is none."""
    return _content(body, "message")


class Announced:
    """Puts `memory_hits` into the first object of a response, as its first member; nothing else is touched."""

    def __init__(self, hits: bytes, *, streamed: bool) -> None:
        self._member, self._streamed = b'"memory_hits":' + hits, streamed
        self._waiting: bytes | None = b""

    def put(self, chunk: bytes) -> bytes:
        """The bytes to send on for these; b"" while it cannot be said yet where the object begins."""
        if self._waiting is None:
            return chunk
        seen = self._waiting + chunk
        at = _object_in(seen, streamed=self._streamed)
        if at is None and len(seen) < 65_536:
            self._waiting = seen
            return b""
        self._waiting = None
        if at is None or at < 0:
            return seen
        rest = seen[at + 1 :]
        comma = b"" if rest.lstrip().startswith(b"}") else b","
        return seen[: at + 1] + self._member + comma + rest

    def end(self) -> bytes:
        """Return the bytes that were held back until now."""
        left, self._waiting = self._waiting or b"", None
        return left


def _object_in(seen: bytes, *, streamed: bool) -> int | None:
    """Return where the first object begins; -1: there is none; None: more bytes are needed to tell."""
    at = 0
    if streamed:
        at = _first_event(seen)
        if at < 0:
            return None
    rest = seen[at:].lstrip()
    if not rest:
        return None
    start = len(seen) - len(rest)
    if not rest.startswith(b"{"):
        return -1
    return start if rest[1:].strip() else None


def _first_event(seen: bytes) -> int:
    """The place behind the first `data:` that begins a line, -1 for none."""
    if seen.startswith(EVENT):
        return len(EVENT)
    found = seen.find(b"\n" + EVENT)
    return -1 if found < 0 else found + 1 + len(EVENT)


def _content(data: bytes, part: str) -> str:
    """The content of the first choice."""
    try:
        choices = cast("list[dict[str, Any]]", orjson.loads(data)["choices"])
        first = next(choice for choice in choices if choice.get("index", 0) == 0)
        content: Any = first[part].get("content")
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return ""
    return content if isinstance(content, str) else ""
