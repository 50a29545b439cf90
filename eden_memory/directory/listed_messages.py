"""Messages that stand as elements of a list in one document: which element is which message, and what changed. Pure.

Every element becomes a document of its own, as if the application had stored it so: the fields of its document, with
the element in place of the list. Its id is made from the document's id and the element's own id, else from a number
that counts the elements of the document and a keyed hash of what it first said. A list is compared with itself as it
was seen last, so that a trimmed list shifts nothing and an edit keeps its id.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from eden_memory.directory.branches import BRANCH_FIELDS, shown_elements
from eden_memory.mongo.changes import Document, Unreadable
from eden_memory.mongo.document_fields import (
    Getter,
    Unusable,
    as_json,
    beside,
    beside_content,
    getter,
    is_json,
    paths_of,
    stored_path,
    without_json,
)
from eden_memory.mongo.ids import as_bytes, encode_id
from eden_memory.settings import SAID, SPEAKER, MessagesSettings

OWN_IDS = ("_id", "id", "message_id", "messageId", "uuid")
"""Fields of an element that hold its own id; the first one that does counts."""
DOCUMENT = "_document"
"""The field of an element's document that holds the id of the document that lists it."""
BETWEEN = "/"
"""Between both parts of a message's id: no typed id holds it."""
MARK = struct.Struct(">8sIIIB")
"""Of an element: its digest, and its version as three numbers (the last counts from 1), and whether it was edited."""
FORGOTTEN = bytes(8)
"""In the place of a digest: what the element says is forgotten, and only its place is known."""


def place_in_document(path: str) -> str:
    """Return a mapped path as it is read from a listed message: `_id` is the id of the document that lists it."""
    name, dot, rest = path.partition(".")
    return f"{DOCUMENT}{dot}{rest}" if name == "_id" else path


def document_of(message_id: Any) -> str | None:
    """Return the typed id of the document that lists a message (its id as the application would have it)."""
    if not isinstance(message_id, str):
        return None
    document, between, _ = message_id.partition(BETWEEN)
    return document if between else None


@dataclass(slots=True)
class Listed:
    """A message of a list: its name in the document, what it says, and the change that told it last."""

    name: str
    digest: bytes
    version: str
    edited: bool = False


@dataclass(slots=True)
class ListState:
    """The list of a document as it was seen last."""

    version: str = ""
    """Of the newest change that it holds."""
    following: int = 0
    """The number that the next element without an id gets."""
    entries: list[Listed] = field(default_factory=list[Listed])
    gone: list[Listed] = field(default_factory=list[Listed])
    """Those that were removed, until that is final; `version` is that of the removal."""
    outer: bytes = b""
    """Digest of the fields beside the list."""
    reads: bytes = b""
    """Which fields were read: other fields have other digests."""


class Compared(NamedTuple):
    """A list compared with its state: `matches` has, for each element, its entry there, or None if it is new."""

    elements: Sequence[Document]
    matches: Sequence[Listed | None]
    digests: Sequence[bytes]
    names: Sequence[str | None]
    """The names that elements have by their own ids."""
    removed: Sequence[Listed]

    def rows(self) -> Iterator[tuple[Document, Listed | None, bytes, str | None]]:
        """Yield each element with its entry, its digest, and the name of its own id."""
        yield from zip(self.elements, self.matches, self.digests, self.names, strict=True)


class MessageList:
    """Reads the messages that documents list; `key` makes digests of what they say."""

    def __init__(self, messages: MessagesSettings, key: bytes = b"") -> None:
        self.path = path = messages.list or ""
        content = messages.contents[0]
        mapped = (
            messages.session_id,
            messages.role,
            *messages.contents,
            messages.user_id,
            messages.created_at,
        )
        more = (
            *beside_content(content, mapped),
            beside(content, "tool_calls"),
            beside(content, "attachments"),
        )
        paths = dict.fromkeys((*mapped, *paths_of(messages.unread), *more))
        inner = [name.removeprefix(f"{path}.") for name in paths if name.startswith(f"{path}.")]
        outer = [place_in_document(name) for name in paths if not name.startswith(f"{path}.")]
        holder = beside(content, "").removeprefix(f"{path}.")
        holder = "" if is_json(holder) else holder
        own = dict.fromkeys((*OWN_IDS, *(f"{holder}{name}" for name in OWN_IDS)))
        read = dict.fromkeys((*own, *BRANCH_FIELDS))
        self.listed = messages.speakers or (path,)
        """Where the messages stand in a document."""
        whole = bool(messages.speakers) or is_json(path)
        self.read_paths = [*map(stored_path, self.listed)] if whole else [f"{path}.{name}" for name in read]
        """Paths of a document that are read beside the mapped ones."""
        self._speakers = {name: getter(name) for name in messages.speakers}
        self._read, self._key, self._parts = getter(path), key[:32], path.split(".")
        self._inner, self._outer = ([getter(stored_path(name)) for name in names] for names in (inner, outer))
        self._own_ids = [*map(getter, own)] if not messages.speakers else [getter(SPEAKER)]
        self.reads = self._digest("\n".join(sorted(paths)).encode())

    def elements(self, document: Document) -> list[Document]:
        """Return the elements of a document's list that are shown; Unusable if something else stands there.

        What is no document is left out.
        """
        elements: list[Document] = [
            element for element in self._listed(document) if isinstance(element, Mapping)
        ]
        return shown_elements(elements)

    def left_out(self, document: Document) -> int:
        """Return how many elements of a document's list are no documents; Unusable as above."""
        return sum(not isinstance(element, Mapping) for element in self._listed(document))

    def _listed(self, document: Document) -> list[Any]:
        if isinstance(document, Unreadable):
            raise Unusable(document.reason)
        if self._speakers:
            said = ((name, read(document)) for name, read in self._speakers.items())
            return [{SPEAKER: name, SAID: text} for name, text in said if text not in (None, "")]
        listed = self._read(document)
        if listed is None or listed == "":
            return []
        if not isinstance(listed, list):
            raise Unusable(f"{self.path} is {type(listed).__name__}, not a list of messages")
        return cast("list[Any]", listed)

    def message(self, document: Document, element: Any, name: str) -> dict[str, Any]:
        """Return a listed message as a document of its own."""
        identity = document["_id"]
        message = {**document, "_id": f"{encode_id(identity)}{BETWEEN}{name}", DOCUMENT: identity}
        inner: dict[str, Any] = message
        for part in self._parts[:-1]:
            below = as_json(inner.get(without_json(part)), part)
            inner[without_json(part)] = inner = {**below} if isinstance(below, Mapping) else {}
        inner[without_json(self._parts[-1])] = element
        return message

    def compared(self, document: Document, state: ListState) -> Compared:
        """Compare a document's list with its state; Unusable if it has none."""
        elements = self.elements(document)
        digests = [self._digest(_canonical(self._inner, element)) for element in elements]
        names = self._own_names(elements)
        known = {entry.name: entry for entry in state.entries}
        stale = state.reads != self.reads
        unnamed = [number for number, name in enumerate(names) if name is None]
        numbered = [entry for entry in state.entries if entry.name[:1].isdigit()]
        matches: list[Listed | None] = [None if name is None else known.get(name) for name in names]
        found = aligned(
            [FORGOTTEN if stale else entry.digest for entry in numbered], [digests[n] for n in unnamed]
        )
        for number, at in zip(unnamed, found, strict=True):
            matches[number] = None if at is None else numbered[at]
        met = {entry.name for entry in matches if entry is not None}
        removed = [entry for entry in state.entries if entry.name not in met]
        return Compared(elements, matches, digests, names, removed)

    def outer(self, document: Document) -> bytes:
        """Return the digest of the fields beside the list."""
        return self._digest(_canonical(self._outer, {**document, DOCUMENT: document["_id"]}))

    def numbered(self, number: int, digest: bytes) -> str:
        """Return the name of an element without an id of its own."""
        return f"{number}.{digest[:4].hex()}"

    def identified(self, document: Document, state: ListState) -> list[tuple[dict[str, Any], str | None]]:
        """Return a document's messages, each with the version at which it was told last; None if it is new.

        The names are those that the tailer gives, or has given.
        """
        compared, following = self.compared(document, state), state.following
        found: list[tuple[dict[str, Any], str | None]] = []
        for element, entry, digest, own in compared.rows():
            name = own or self.numbered(following, digest) if entry is None else entry.name
            following += entry is None and own is None
            found.append((self.message(document, element, name), entry and entry.version))
        return found

    def _own_names(self, elements: Sequence[Document]) -> list[str | None]:
        """Return the names that elements have by their own ids; of two with one id, the second has none."""
        names: list[str | None] = []
        given = set[str]()
        for element in elements:
            name = _own_name(element, self._own_ids)
            names.append(None if name in given else name)
            given.update(filter(None, (name,)))
        return names

    def _digest(self, said: bytes) -> bytes:
        found = blake2b(said, key=self._key, digest_size=8).digest()
        return found if found != FORGOTTEN else found[:-1] + b"\x01"


def _canonical(reads: Sequence[Getter], document: Document) -> bytes:
    """Return the values at some paths as bytes."""
    return as_bytes([read(document) for read in reads])


OWN_READS = tuple(map(getter, OWN_IDS))


def other_branches(listed: Any) -> set[str]:
    """Return the names of the elements of a list that are on other branches than the shown one."""
    elements = cast("list[Any]", listed) if isinstance(listed, list) else []
    documents: list[Document] = [element for element in elements if isinstance(element, Mapping)]
    shown = shown_elements(documents)
    return _names(documents) - _names(shown) if len(shown) < len(documents) else set()


def _names(elements: Iterable[Document]) -> set[str]:
    return set(filter(None, (_own_name(element, OWN_READS) for element in elements)))


def _own_name(element: Document, reads: Iterable[Getter]) -> str | None:
    """Return the name that an element has by the first of its own ids that is one."""
    return next(filter(None, (_typed(read(element)) for read in reads)), None)


def _typed(value: Any) -> str | None:
    try:
        return encode_id(value) if value not in (None, "") else None
    except TypeError:
        return None


def aligned(old: Sequence[bytes], new: Sequence[bytes]) -> list[int | None]:
    """Return for each digest of `new` the place of the same element in `old`; None for a new element.

    What is equal at both ends is the same; in between, digests that are unique on both sides and in one order are.
    Between two of these, as many elements as before were edited in place, and so were the last of a list that grew;
    otherwise the old ones were removed and the others are new. What is forgotten keeps its place, if there is one.
    """
    found: list[int | None] = [None] * len(new)
    begin, end = 0, 0
    most = min(len(old), len(new))
    while begin < most and old[begin] == new[begin]:
        found[begin] = begin
        begin += 1
    while end < most - begin and old[-1 - end] == new[-1 - end]:
        found[len(new) - 1 - end] = len(old) - 1 - end
        end += 1
    old_end, new_end = len(old) - end, len(new) - end
    anchors = _anchors(old, new, range(begin, old_end), range(begin, new_end))
    if len(old) > 1 and not (begin or end or anchors or all(digest == FORGOTTEN for digest in old)):
        return found  # nothing is left of the old list
    at_old, at_new = begin, begin
    for old_place, new_place in (*anchors, (old_end, new_end)):
        _pair(old, found, range(at_old, old_place), range(at_new, new_place), last=new_place == len(new))
        if new_place < new_end:
            found[new_place] = old_place
        at_old, at_new = old_place + 1, new_place + 1
    return found


def _pair(old: Sequence[bytes], found: list[int | None], before: range, now: range, *, last: bool) -> None:
    """Match what stands between two elements that are the same."""
    forgotten = all(old[place] == FORGOTTEN for place in before)
    if len(before) != len(now) and not forgotten and not (last and len(now) > len(before)):
        return
    if forgotten and (not last or len(before) > len(now)):  # the first ones were trimmed away
        pairs = zip(reversed(before), reversed(now), strict=False)
    else:
        pairs = zip(before, now, strict=False)
    for old_place, new_place in pairs:
        found[new_place] = old_place


def _anchors(old: Sequence[bytes], new: Sequence[bytes], before: range, now: range) -> list[tuple[int, int]]:
    """Return the places of elements that are unique on both sides, the most of them that are in one order."""
    places = _unique(old, before)
    pairs = sorted((place, places[digest]) for digest, place in _unique(new, now).items() if digest in places)
    tops: list[int] = []
    chains: list[int] = []
    behind: list[int] = []
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(tops, place)
        behind.append(chains[at - 1] if at else -1)
        tops[at : at + 1] = [place]
        chains[at : at + 1] = [number]
    longest: list[tuple[int, int]] = []
    number = chains[-1] if chains else -1
    while number >= 0:
        new_place, old_place = pairs[number]
        longest.append((old_place, new_place))
        number = behind[number]
    return longest[::-1]


def _unique(digests: Sequence[bytes], places: range) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for place in places:
        digest = digests[place]
        found[digest] = -1 if digest in found or digest == FORGOTTEN else place
    return {digest: place for digest, place in found.items() if place >= 0}


def packed(entries: Sequence[Listed]) -> tuple[str, bytes]:
    """Return entries as they are stored: their names, a line each, and their marks."""
    marks = b"".join(MARK.pack(entry.digest, *_numbers(entry.version), entry.edited) for entry in entries)
    return "\n".join(entry.name for entry in entries), marks


def unpacked(names: str, marks: bytes) -> list[Listed]:
    """Return the entries of :func:`packed`."""
    said = MARK.iter_unpack(marks)
    return [
        Listed(name, digest, _version(seconds, counter, place), bool(edited))
        for name, (digest, seconds, counter, place, edited) in zip(
            names.split("\n") if marks else [], said, strict=True
        )
    ]


def _numbers(version: str) -> tuple[int, int, int]:
    return int(version[:8], 16), int(version[8:16], 16), int(version[17:], 16) + 1 if len(version) > 16 else 0


def _version(seconds: int, counter: int, place: int) -> str:
    version = f"{seconds:08x}{counter:08x}"
    return version if not place else f"{version}.{place - 1:08x}"
