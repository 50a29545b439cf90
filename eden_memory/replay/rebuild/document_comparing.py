"""Compare live memory with a rebuilt one, document by document in the order of their ids; little is held at a time.

Left out is what tells how a document came about and not what it says (docs/replay.md has the reasons).
"""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.replay.namespaces.namespace_store import KINDS

Row = dict[str, Any]
Shown = Mapping[str, Any]


NOT_CONTENT = frozenset({"revision", "reset_revision", "changed_at", "applied"})
"""How often, when and in what batches the writer wrote; and up to where the ledger need not be read."""

LONGEST = 200
PAGE = 500
MOST_DIFFERENT = 10_000
"""Documents that differ and are looked at again; beyond it they are only counted."""


EMPTY: Shown = {
    "blob": None,
    "blob_version": 0,
    "buffer": [],
    "recent_facts": [],
    "active_facts": 0,
}
"""Of a snapshot that says nothing: everything of its scope was forgotten, also when its session ended. The numbers
of forgotten blob versions are documents of their own, which are compared."""


def says_something(row: Shown) -> bool:
    """Whether a document has content: a snapshot may be left without any, or not have been made at all."""
    return "recent_facts" not in row or any(row.get(name, value) != value for name, value in EMPTY.items())


def content_of(row: Shown) -> dict[str, Any]:
    """The document without what is not content, nulls included: an absent field and a null one are equal."""
    content = {name: value for name, value in row.items() if name not in NOT_CONTENT and value is not None}
    for name in {"recent_facts", "lasting_facts"} & content.keys():
        content[name] = sorted(map(_undated, content[name]), key=itemgetter("fact_id"))
    return content


def _undated(fact: Shown) -> dict[str, Any]:
    """A fact of a snapshot: its date, and its place in the list, follow from the fact's own document."""
    return {name: value for name, value in fact.items() if name != "valid_from"}


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
    collection: str, name: str, live: Shown | None, rebuilt: Shown | None
) -> DocumentDifference | None:
    """None where both say the same."""
    if live is None or rebuilt is None:
        if live is None and rebuilt is None:
            return None
        return DocumentDifference(collection, name, "extra" if live is None else "missing")
    fields = tuple(_fields(content_of(live), content_of(rebuilt)))
    return DocumentDifference(collection, name, "other", fields) if fields else None


def _fields(live: Shown, rebuilt: Shown) -> Iterable[Field]:
    for name in sorted({*live, *rebuilt}):
        ours, theirs = live.get(name), rebuilt.get(name)
        if (name in live) != (name in rebuilt) or _said(ours) != _said(theirs):
            yield Field(name, _short(ours), _short(theirs))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass(slots=True)
class ComparedMemories:
    """The result of one pass over both memories. What is equal is only counted: there may be any number."""

    counts: Counter[str] = field(default_factory=Counter[str])
    """Documents that are in either, by collection."""
    differing: dict[tuple[str, str], DocumentDifference] = field(
        default_factory=dict[tuple[str, str], DocumentDifference]
    )
    """By collection and id."""
    beyond: Counter[str] = field(default_factory=Counter[str])
    """Documents that differ and are not in `differing`, by collection."""

    def take(self, collection: str, name: str, live: Shown | None, rebuilt: Shown | None) -> None:
        """Compare a document for the first time."""
        self.counts[collection] += 1
        found = difference(collection, name, live, rebuilt)
        if found is not None and len(self.differing) < MOST_DIFFERENT:
            self.differing[collection, name] = found
        else:
            self.beyond[collection] += found is not None

    def again(self, collection: str, name: str, live: Shown | None, rebuilt: Shown | None) -> None:
        """Compare a differing document once more."""
        found = difference(collection, name, live, rebuilt)
        if found is None:
            del self.differing[collection, name]
        else:
            self.differing[collection, name] = found


class MemoryComparison:
    """Compares the collections under two prefixes of one database."""

    def __init__(self, database: AsyncDatabase[Row], live: str, rebuilt: str) -> None:
        self._database, self._prefixes = database, (live, rebuilt)

    async def whole(self) -> ComparedMemories:
        """One pass over everything."""
        compared = ComparedMemories()
        for kind in KINDS:
            async for name, live, rebuilt in self._pairs(kind.COLLECTION):
                compared.take(kind.COLLECTION, name, live, rebuilt)
        return compared

    async def again(self, compared: ComparedMemories) -> bool:
        """Read once more what differs; whether anything of it has changed since."""
        before = dict(compared.differing)
        for kind in KINDS:
            names = [name for collection, name in before if collection == kind.COLLECTION]
            for start in range(0, len(names), PAGE):
                page = names[start : start + PAGE]
                live, rebuilt = [
                    await self._named(prefix + kind.COLLECTION, page) for prefix in self._prefixes
                ]
                for name in page:
                    compared.again(kind.COLLECTION, name, live.get(name), rebuilt.get(name))
        return compared.differing != before

    async def _named(self, collection: str, names: list[str]) -> Mapping[str, Row]:
        rows = self._of(collection).find({"_id": {"$in": names}})
        return {row["_id"]: row async for row in rows if says_something(row)}

    def _of(self, collection: str) -> Any:
        return self._database.get_collection(collection, read_concern=ReadConcern("majority"))

    async def _pairs(self, collection: str) -> AsyncGenerator[tuple[str, Row | None, Row | None]]:
        """Both collections side by side, each id once."""
        left, right = (self._rows(prefix + collection) for prefix in self._prefixes)
        live, rebuilt = await anext(left, None), await anext(right, None)
        while live is not None or rebuilt is not None:
            name = min(row["_id"] for row in (live, rebuilt) if row is not None)
            ours = live if live is not None and live["_id"] == name else None
            theirs = rebuilt if rebuilt is not None and rebuilt["_id"] == name else None
            yield name, ours, theirs
            live = await anext(left, None) if ours is not None else live
            rebuilt = await anext(right, None) if theirs is not None else rebuilt

    async def _rows(self, collection: str) -> AsyncGenerator[Row]:
        """By id, which MongoDB orders as bytes of UTF-8: so does Python its strings, by code point."""
        async for row in self._of(collection).find().sort("_id", 1).batch_size(PAGE):
            if says_something(row):
                yield row
