"""The id of a request to undo an attack, from which the ids of all its requests to forget follow. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from eden_memory.schemas.ids import encode, split

LONGEST = 600
"""With a longer name the ids of the requests would not fit into an event."""
NAMED = ("import", "call")
"""Causes that no request to forget names."""
WHOLE = re.compile("undo/([a-z]+)/([0-9]{1,7})/([0-9a-f]+)/(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class UndoRequest:
    """One undo: `parts` requests to forget, the first of the message, session or user that caused it."""

    cause: str
    parts: int
    token: str
    """Unique."""
    name: str = ""
    """Of an import or a call; "": the first request names what caused it."""

    @classmethod
    def of(cls, cause: str, name: str, token: str, parts: int) -> "UndoRequest":
        """Return a new request; an import or call of a very long name stays without it, and gets no receipt."""
        named = cause in NAMED and len(encode(name)) <= LONGEST
        return cls(cause, parts, token, name if named else "")

    @classmethod
    def read(cls, request_id: str) -> "UndoRequest | None":
        """Return the request of a typed id; None if the id is of another kind of request."""
        try:
            kind, text = split(request_id)
        except ValueError:
            return None
        found = WHOLE.fullmatch(text) if kind == "s" else None
        return None if found is None else cls(found[1], int(found[2]), found[3], found[4])

    @property
    def is_nameless(self) -> bool:
        """Whether nothing says what caused it."""
        return self.cause in NAMED and not self.name

    @property
    def request_id(self) -> str:
        """The typed id of the whole."""
        return encode(self._text)

    @property
    def inbox_ids(self) -> list[str]:
        """The `_id` of each request in `memory_inbox`."""
        return list(self.each_inbox_id())

    def each_inbox_id(self) -> Iterator[str]:
        """Make them while they are read: whoever writes an id chooses how many there are."""
        return (f"{self._text}#{number}" for number in range(self.parts))

    @property
    def _text(self) -> str:
        return f"undo/{self.cause}/{self.parts}/{self.token}/{self.name}"


def requests_of(request_id: str) -> Iterator[str]:
    """Make the typed ids of the requests to forget that a request consists of, while they are read."""
    undo = UndoRequest.read(request_id)
    return iter((request_id,)) if undo is None else map(encode, undo.each_inbox_id())
