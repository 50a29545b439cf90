"""Compare live memory with a rebuilt one, document by document in the order of their ids; little is held at a time.

Left out is what tells how a document came about and not what it says (docs/replay.md has the reasons).
"""

from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import itemgetter
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.replay.namespaces.namespace_store import KINDS
from eden_memory.schemas.documents import Consolidated, Snapshot

Shown = Mapping[str, Any]


NOT_CONTENT = frozenset({"revision", "reset_revision", "changed_at", "applied"})
"""How often, when and in what batches the writer wrote; and up to where the ledger need not be read."""

LONGEST = 200
DIGEST_BYTES = 16


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


def digest(row: Shown) -> int:
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


Row = dict[str, Any]

Pair = tuple[int | None, int | None]
"""Hashes of a document in live and rebuilt memory; None: it is not there."""

PAGE = 500

ONE_A_SCOPE = frozenset({Consolidated.COLLECTION, Snapshot.COLLECTION})
"""Their ids are scope keys."""

MOST_DIFFERENT = 10_000
"""Documents that differ and are looked at again; beyond it they are only counted."""


@dataclass(slots=True)
class Sums:
    """Documents of one collection, or of one scope in it, in both."""

    live: DigestSum = field(default_factory=DigestSum)
    rebuilt: DigestSum = field(default_factory=DigestSum)

    @property
    def equal(self) -> bool:
        """Whether both hold the same."""
        return self.live == self.rebuilt


@dataclass(slots=True)
class ComparedMemories:
    """The result of one pass over both memories. Equal scopes leave nothing behind: there may be any number."""

    sums: dict[str, Sums] = field(default_factory=dict[str, Sums])
    """By collection."""
    scopes: dict[str, int] = field(default_factory=dict[str, int])
    """How many scopes have documents in live memory, by collection."""
    differing: dict[tuple[str, str], tuple[str, Pair]] = field(
        default_factory=dict[tuple[str, str], tuple[str, Pair]]
    )
    """By collection and id: scope key, hashes."""
    beyond: int = 0
    """Documents that differ and are not in `differing`."""

    def of(self, collection: str) -> Sums:
        """A whole collection."""
        return self.sums.get(collection, Sums())

    def take(self, collection: str, name: str, scope: str, pair: Pair) -> None:
        """A document for the first time."""
        sums = self.sums.setdefault(collection, Sums())
        sums.live.add(pair[0])
        sums.rebuilt.add(pair[1])
        if pair[0] == pair[1]:
            return
        if len(self.differing) < MOST_DIFFERENT:
            self.differing[collection, name] = scope, pair
        else:
            self.beyond += 1

    def again(self, collection: str, name: str, pair: Pair) -> None:
        """A differing document, read once more."""
        scope, before = self.differing[collection, name]
        sums = self.sums[collection]
        for total, old, new in ((sums.live, before[0], pair[0]), (sums.rebuilt, before[1], pair[1])):
            total.take(old)
            total.add(new)
        if pair[0] == pair[1]:
            del self.differing[collection, name]
        else:
            self.differing[collection, name] = scope, pair


class MemoryComparison:
    """Compares the collections under two prefixes of one database."""

    def __init__(self, database: AsyncDatabase[Row], live: str, rebuilt: str) -> None:
        self._database, self._prefixes = database, (live, rebuilt)

    async def whole(self) -> ComparedMemories:
        """One pass over everything."""
        compared = ComparedMemories()
        for kind in KINDS:
            async for name, live, rebuilt in self._pairs(kind.COLLECTION):
                row = live if live is not None else rebuilt
                assert row is not None
                pair = _hashes(live, rebuilt)
                compared.take(kind.COLLECTION, name, str(row.get("scope_key", name)), pair)
            compared.scopes[kind.COLLECTION] = await self._scopes(kind.COLLECTION, compared)
        return compared

    async def _scopes(self, collection: str, compared: ComparedMemories) -> int:
        if collection in ONE_A_SCOPE:
            return compared.of(collection).live.count
        steps: list[Row] = [{"$group": {"_id": "$scope_key"}}, {"$count": "scopes"}]
        found = await self._of(self._prefixes[0] + collection).aggregate(steps, allowDiskUse=True)
        return sum([row["scopes"] async for row in found])

    async def again(self, compared: ComparedMemories) -> bool:
        """Read once more what differs; whether anything of it has changed since."""
        before = dict(compared.differing)
        for collection, names in _by_collection(before).items():
            for start in range(0, len(names), PAGE):
                page = names[start : start + PAGE]
                live, rebuilt = [await self._named(prefix + collection, page) for prefix in self._prefixes]
                for name in page:
                    pair = _hashes(live.get(name), rebuilt.get(name))
                    compared.again(collection, name, pair)
        return compared.differing != before

    async def named(self, compared: ComparedMemories, most: int) -> list[DocumentDifference]:
        """The first `most` differences, field by field."""
        found: list[DocumentDifference] = []
        for collection, name in sorted(compared.differing)[:most]:
            live, rebuilt = [await self._named(prefix + collection, [name]) for prefix in self._prefixes]
            differs = difference(collection, name, live.get(name), rebuilt.get(name))
            found += [differs] if differs is not None else []
        return found

    async def scopes(self, compared: ComparedMemories, most: int) -> list[tuple[str, str, Sums]]:
        """Collection, scope key and sums of the first `most` scopes in which something differs."""
        keys = sorted({(collection, scope) for (collection, _), (scope, _) in compared.differing.items()})
        return [
            (collection, scope, await self._of_scope(collection, scope)) for collection, scope in keys[:most]
        ]

    async def _of_scope(self, collection: str, scope: str) -> Sums:
        sums, query = Sums(), {"_id" if collection in ONE_A_SCOPE else "scope_key": scope}
        for prefix, total in zip(self._prefixes, (sums.live, sums.rebuilt), strict=True):
            async for row in self._of(prefix + collection).find(query).batch_size(PAGE):
                if says_something(row):
                    total.add(_hash(row))
        return sums

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


def _hashes(live: Row | None, rebuilt: Row | None) -> Pair:
    return _hash(live), _hash(rebuilt)


def _hash(row: Row | None) -> int | None:
    return None if row is None else digest(row)


def _by_collection(differing: Mapping[tuple[str, str], Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for collection, name in differing:
        found.setdefault(collection, []).append(name)
    return found
