"""Lists that each search reads from MongoDB: facts of a point in time, retired ones, and reflections.

They are few beside facts, and have no stored vectors and no index: what formation writes is the same whether or not
anybody searches them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any

from pymongo import DESCENDING
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.memory.scope_matrix import matrix_of
from eden_memory.memory.snapshot_store import without
from eden_memory.models.question import Asking, Embedder
from eden_memory.mongo.lenient_decoding import readable
from eden_memory.names import Names
from eden_memory.schemas.documents import Reflection
from eden_memory.search.fact_candidates import KEPT, FactCandidate, Ranked, When, candidate, checked
from eden_memory.search.text_index import AskedWord, TextIndex, asked_words

Candidates = Mapping[str, FactCandidate]

MOST_EMBEDDED = 500
"""Most texts without a stored vector that one search embeds, newest first; others are found by their words."""

MOST_VECTORS = 5_000
"""Vectors cached for the next search."""

READING = 4
"""Lists made at the same time; each holds all candidates of its scopes."""


class UnindexedTexts:
    """Ranks candidates by id; `embedder` None: those without a vector are found by their words alone."""

    def __init__(self, embedder: Embedder | None) -> None:
        self._embedder = embedder
        self._vectors: OrderedDict[bytes, bytes] = OrderedDict()
        self.reading = asyncio.Semaphore(READING)
        """Hold this while candidates are read and ranked."""

    async def semantic(
        self, known: Candidates, vectors: Sequence[bytes], most: int, least: float
    ) -> list[list[Ranked]]:
        """Return the nearest of the candidates with a vector to each vector, exact; scores (1 + cosine) / 2."""
        pairs = [
            (name, candidate.vector) for name, candidate in known.items() if candidate.vector is not None
        ]
        matrix = await asyncio.to_thread(matrix_of, pairs, len(vectors[0]) // 4)
        hits = await asyncio.to_thread(matrix.nearest, vectors, most, least)
        return [[Ranked(known[hit.fact_id], hit.similarity) for hit in near] for near in hits]

    async def textual(
        self, known: Candidates, asked: Sequence[Sequence[AskedWord]], most: int, least: float
    ) -> list[list[Ranked]]:
        """Return each query's candidates by BM25; word rarity is counted over the candidates."""
        index = await asyncio.to_thread(_index, list(known.values()))
        found = [index.search(words, index.rarity(words), most) if words else [] for words in asked]
        return [[Ranked(known[name], score) for name, score in hits if score >= least] for hits in found]

    async def with_vectors(self, known: Candidates, asking: Asking | None) -> Candidates:
        """Return the candidates with vectors; `asking`: on whose behalf the embedder is asked for missing ones."""
        bare = [candidate for candidate in known.values() if candidate.vector is None]
        newest = sorted(bare, key=lambda candidate: candidate.valid_from, reverse=True)[:MOST_EMBEDDED]
        await self._embed(
            {text for candidate in newest if _hash(text := candidate.text) not in self._vectors}, asking
        )
        pairs = [(candidate, self._vectors.get(_hash(candidate.text))) for candidate in bare]
        given = {
            candidate.fact_id: replace(candidate, vector=vector)
            for candidate, vector in pairs
            if vector is not None
        }
        while len(self._vectors) > MOST_VECTORS:
            self._vectors.popitem(last=False)
        return {**known, **given}

    async def _embed(self, texts: set[str], asking: Asking | None) -> None:
        if self._embedder is None or not texts:
            return
        named = sorted(texts)
        for text, made in zip(named, await self._embedder.embed(named, asking), strict=True):
            self._vectors[_hash(text)] = made.vector


def _hash(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _index(candidates: Sequence[FactCandidate]) -> TextIndex:
    index = TextIndex()
    for known in candidates:
        index.put(known.fact_id, known.text)
    index.write(index.take())
    return index


Row = dict[str, Any]

FACT_FIELDS = {
    **dict.fromkeys(KEPT, 1),
    **dict.fromkeys(
        ("history.version", "history.content", "history.valid_from", "history.decision", "sources.said_at"),
        1,
    ),
}

AT_ONCE = 500

RETIRING = ("DELETE", "RETIRE")
"""Decisions after which a fact does not hold, unless it is a fact's first version: the successor's."""


class PointInTimeLists:
    """Not the warm path: each search reads the scopes. `embedder` gives texts of then vectors, which are cached."""

    def __init__(
        self, database: AsyncDatabase[Row], names: Names, model: str, embedder: Embedder | None
    ) -> None:
        self._facts = database.get_collection(names["facts"], read_concern=ReadConcern("majority"))
        self._model, self._texts = model, UnindexedTexts(embedder)

    async def semantic(
        self,
        scope_keys: Sequence[str],
        vectors: Sequence[bytes],
        most: int,
        least: float,
        when: When,
        asking: Asking | None = None,
    ) -> list[list[Ranked]]:
        """Return each vector's nearest facts of that time, exact."""
        async with self._texts.reading:
            known = await self._texts.with_vectors(await self._known(scope_keys, when), asking)
            return await self._texts.semantic(known, vectors, most, least)

    async def textual(
        self,
        scope_keys: Sequence[str],
        asked: Sequence[Sequence[AskedWord]],
        most: int,
        least: float,
        when: When,
    ) -> list[list[Ranked]]:
        """Return each query's facts of that time by BM25; word rarity is counted over these scopes."""
        async with self._texts.reading:
            return await self._texts.textual(await self._known(scope_keys, when), asked, most, least)

    async def _known(self, scope_keys: Sequence[str], when: When) -> dict[str, FactCandidate]:
        asked: Row = {"scope_key": {"$in": list(scope_keys)}}
        if when.is_now:
            asked["active"] = True
        if when.occurred:
            asked["occurred_at"] = when.occurred
        if when.as_of is not None:
            asked["$or"] = [{name: {"$lte": when.as_of}} for name in ("said_at", "sources.said_at")]
        known = dict[str, FactCandidate]()
        earlier, contradicting = set[str](), set[str | None]()
        async for row in self._facts.find(asked, FACT_FIELDS, batch_size=AT_ONCE):
            for fact, since, then in readable("fact", [row], partial(self._then, when=when)):
                if then is None or then.is_hidden(when):
                    continue
                if since is None:
                    known[then.fact_id] = then
                    contradicting.add(fact.replaced_by)
                else:
                    known[then.fact_id] = replace(then, valid_from=since)
                    earlier.add(then.fact_id)
        return {fact_id: known[fact_id] for fact_id in known if fact_id not in earlier & contradicting}

    def _then(self, row: Row, when: When) -> tuple[FactCandidate, datetime | None, FactCandidate | None]:
        """Return a fact as it was known then, and since when if it was stated earlier."""
        if row.get("embedding_model") != self._model:
            row["embedding"] = None
        fact, since = candidate(row), stated_earlier(row, when.as_of)
        began = fact if since is None else replace(fact, said_at=since)
        return fact, since, as_known(began, row["active"], row.get("history", []), when)


def stated_earlier(row: Mapping[str, Any], as_of: datetime | None) -> datetime | None:
    """Return since when a fact was said, if that was by `as_of` and before the statement that began it; else None.

    An older statement that was read in late joins a fact and changes no time of it. Only a fact that never had
    another text tells what such a statement said. Of a session, its newest message counts.
    """
    versions, began = row.get("history", []), row["said_at"]
    if as_of is None or began <= as_of or len(versions) + 1 != row["version"]:
        return None
    if any(version["content"] != row["content"] for version in versions):
        return None
    newest: dict[str, datetime] = {}
    for source in row.get("sources", ()):
        said = source["said_at"]
        newest[source["session_id"]] = max(said, newest.get(source["session_id"], said))
    return min((said for said in newest.values() if said <= as_of), default=None)


def as_known(
    fact: FactCandidate, active: bool, history: Sequence[Mapping[str, Any]], when: When
) -> FactCandidate | None:
    """The version that `when` asks for; None if nothing of the fact was known, it did not hold, or told of no time.

    `fact` is the newest version, `history` the earlier ones, newest first (version, content, valid_from, decision).
    A fact that is neither active nor retired repeats an older one, and is never shown. Where history is cut off,
    its oldest version stands for those before.
    """
    if not active and fact.retired_at is None:
        return None
    if when.as_of is not None and when.as_of < fact.said_at:
        return None
    then = fact if when.as_of is None else _as_of(fact, history, when.as_of)
    if then.retired_at is not None and not when.include_retired:
        return None
    return None if when.occurred and then.occurred_at is None else then


def _as_of(fact: FactCandidate, history: Sequence[Mapping[str, Any]], as_of: datetime) -> FactCandidate:
    """The last version that holds since then or earlier: `valid_from` goes back only where a version was undone."""
    if fact.valid_from > as_of:
        return _earlier(fact, history, as_of)
    if fact.retired_at is not None and fact.retired_at > as_of:
        return replace(fact, retired_at=None, replaced_by=None)
    return fact


def _earlier(fact: FactCandidate, history: Sequence[Mapping[str, Any]], as_of: datetime) -> FactCandidate:
    before = [version for version in history if version["valid_from"] <= as_of] or list(history[-1:])
    if not before:
        return replace(fact, retired_at=None, replaced_by=None)
    then = before[0]
    gone = then["decision"] in RETIRING and then["version"] > 1
    return replace(
        fact,
        text=then["content"],
        valid_from=then["valid_from"],
        version=then["version"],
        retired_at=then["valid_from"] if gone else None,
        replaced_by=fact.replaced_by if gone else None,
        vector=fact.vector if then["content"] == fact.text else None,
        occurred_at=fact.occurred_at if then["content"] == fact.text else None,
    )


MOST_READ = 5_000
"""Most reflections of the searched scopes, those said last first."""

REFLECTION_FIELDS = {
    **dict.fromkeys(("scope_key", "content", "formed_at", "said_at", "version", "retired_at"), 1),
    **dict.fromkeys(("session_ids", "propagated_from", "history.version", "history.content"), 1),
    "history.said_at": 1,
}


class ReflectionLists:
    """FactLists over `reflections`, whichever store searches facts."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, embedder: Embedder | None) -> None:
        name = names[Reflection.COLLECTION]
        self._reflections = database.get_collection(name, read_concern=ReadConcern("majority"))
        self._texts = UnindexedTexts(embedder)

    async def semantic(
        self,
        scope_keys: Sequence[str],
        vectors: Sequence[bytes],
        most: int,
        least: float,
        when: When,
        asking: Asking | None = None,
    ) -> list[list[Ranked]]:
        """Return each vector's nearest reflections, exact; scores (1 + cosine) / 2."""
        async with self._texts.reading:
            known = await self._known(checked(scope_keys), when)
        known = await self._texts.with_vectors(
            known, asking
        )  # others read meanwhile: a provider may take long
        async with self._texts.reading:
            return await self._texts.semantic(known, vectors, most, least) if known else [[] for _ in vectors]

    async def textual(
        self, scope_keys: Sequence[str], queries: Sequence[str], most: int, least: float, when: When
    ) -> list[list[Ranked]]:
        """Return each query's reflections by BM25; word rarity is counted over the reflections of these scopes."""
        asked = [asked_words(query) for query in queries]
        async with self._texts.reading:
            known = await self._known(checked(scope_keys), when)
            return await self._texts.textual(known, asked, most, least)

    async def _known(self, scope_keys: Sequence[str], when: When) -> dict[str, FactCandidate]:
        """Return reflections by id; a propagated copy only if the original is not among them."""
        if when.occurred:  # reflections do not say when events happened
            return {}
        asked: Row = {"scope_key": {"$in": list(scope_keys)}, **without(when.private)}
        if when.is_now:
            asked["retired_at"] = None
        if when.as_of is not None:
            asked["$or"] = _said_by(when.as_of)
        rows = await self._reflections.find(
            asked, REFLECTION_FIELDS, sort=[("said_at", DESCENDING), ("_id", 1)], limit=MOST_READ
        ).to_list()
        then = {row["_id"]: found for row in rows if (found := as_it_was(row, when)) is not None}
        copied = {row["_id"] for row in rows if row.get("propagated_from") in then}
        return {name: found for name, found in then.items() if name not in copied}


def _said_by(as_of: datetime) -> list[Row]:
    """Return what finds reflections of which a version was said by then: what came later takes no place."""
    said = {"said_at": {"$lte": as_of}}
    return [said, {"history": {"$elemMatch": said}}]


def as_it_was(row: Mapping[str, Any], when: When) -> FactCandidate | None:
    """Return a stored reflection in the version that `when` asks for; None if there was none, or it was retired."""
    version = _version(row, when.as_of)
    retired_at = row.get("retired_at")
    if retired_at is not None and when.as_of is not None and retired_at > when.as_of:
        retired_at = None
    if version is None or (retired_at is not None and not when.include_retired):
        return None
    return FactCandidate(
        kind="reflection",
        fact_id=row["_id"],
        scope_key=row["scope_key"],
        text=version["content"],
        formed_at=row["formed_at"],
        valid_from=version["said_at"],
        version=version["version"],
        said_at=version["said_at"],
        retired_at=retired_at,
        session_ids=tuple(row.get("session_ids", ())),
    )


def _version(row: Mapping[str, Any], as_of: datetime | None) -> Mapping[str, Any] | None:
    """Return the newest version that was said by then."""
    versions = (row, *row.get("history", ()))
    return next((version for version in versions if as_of is None or version["said_at"] <= as_of), None)
