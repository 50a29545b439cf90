"""The content of a stored document, its hash, and the differences between two documents. Pure.

Left out is what tells how a document came about and not what it says (docs/replay.md has the reasons).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter
from typing import Any

Row = Mapping[str, Any]

NOT_CONTENT = frozenset({"revision", "reset_revision", "changed_at", "applied"})
"""How often, when and in what batches the writer wrote; and up to where the ledger need not be read."""
LONGEST = 200
DIGEST_BYTES = 16


EMPTY: Row = {
    "blob": None,
    "blob_version": 0,
    "buffer": [],
    "recent_facts": [],
    "active_facts": 0,
}
"""Of a snapshot that says nothing: everything of its scope was forgotten, also when its session ended. The numbers
of forgotten blob versions are documents of their own, which are compared."""


def says_something(row: Row) -> bool:
    """Whether a document has content: a snapshot may be left without any, or not have been made at all."""
    return "recent_facts" not in row or any(row.get(name, value) != value for name, value in EMPTY.items())


def content_of(row: Row) -> dict[str, Any]:
    """The document without what is not content, nulls included: an absent field and a null one are equal."""
    content = {name: value for name, value in row.items() if name not in NOT_CONTENT and value is not None}
    if "recent_facts" in content:
        content["recent_facts"] = sorted(map(_undated, content["recent_facts"]), key=itemgetter("fact_id"))
    return content


def _undated(fact: Row) -> dict[str, Any]:
    """A recent fact of a snapshot: its date, and its place in the list, follow from the fact's own document."""
    return {name: value for name, value in fact.items() if name != "valid_from"}


def digest(row: Row) -> int:
    """A hash of a document's content, whatever the order of its fields."""
    said = _said(content_of(row)).encode()
    return int.from_bytes(blake2b(said, digest_size=DIGEST_BYTES).digest())


def _said(value: Any) -> str:
    """The same for values of the same type that say the same: 1 and 1.0 are two in BSON."""
    return repr(_ordered(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        said = ((name, part) for name, part in value.items() if part is not None)  # pyright: ignore
        return [(name, _ordered(part)) for name, part in sorted(said)]  # pyright: ignore
    if isinstance(value, list | tuple):
        return [_ordered(part) for part in value]  # pyright: ignore
    return value


@dataclass(frozen=True, slots=True)
class Field:
    """One field that is not the same, shortened for a terminal."""

    name: str
    live: str
    rebuilt: str


@dataclass(frozen=True, slots=True)
class DocumentDifference:
    """One document that is missing in the rebuilt memory, extra there, or other."""

    collection: str
    id: str
    what: str
    """`missing`, `extra` or `other`."""
    fields: tuple[Field, ...] = ()

    def __str__(self) -> str:
        """As a terminal shows it."""
        named = "; ".join(
            f"{field.name}: live {field.live}, rebuilt {field.rebuilt}" for field in self.fields
        )
        return f"{self.what} {self.collection} {self.id}" + (f": {named}" if named else "")


def difference(
    collection: str, name: str, live: Row | None, rebuilt: Row | None
) -> DocumentDifference | None:
    """None where both say the same."""
    if live is None or rebuilt is None:
        if live is None and rebuilt is None:
            return None
        return DocumentDifference(collection, name, "extra" if live is None else "missing")
    fields = tuple(_fields(content_of(live), content_of(rebuilt)))
    return DocumentDifference(collection, name, "other", fields) if fields else None


def _fields(live: Row, rebuilt: Row) -> Iterable[Field]:
    for name in sorted({*live, *rebuilt}):
        ours, theirs = live.get(name), rebuilt.get(name)
        if (name in live) != (name in rebuilt) or _said(ours) != _said(theirs):
            yield Field(name, _short(ours), _short(theirs))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass(slots=True)
class DigestSum:
    """Count and hash of several documents, in any order: sums modulo 2^128."""

    count: int = 0
    hash: int = 0

    def add(self, digest: int | None) -> None:
        """One document more; None: none."""
        if digest is not None:
            self.count += 1
            self.hash = (self.hash + digest) % (1 << 8 * DIGEST_BYTES)

    def take(self, digest: int | None) -> None:
        """One document less."""
        if digest is not None:
            self.count -= 1
            self.hash = (self.hash - digest) % (1 << 8 * DIGEST_BYTES)

    def __str__(self) -> str:
        """The hash as it is shown."""
        return f"{self.hash:0{2 * DIGEST_BYTES}x}"
