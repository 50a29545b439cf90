"""Ranks reflections, those that a blob has absorbed too: read from MongoDB by each search, compared in this process.

They are few beside facts, and have no stored vectors and no index: what formation writes is the same whether or not
anybody searches them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pymongo import DESCENDING
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.memory.snapshot_store import without
from eden_memory.models.question import Asking, Embedder
from eden_memory.names import Names
from eden_memory.schemas.documents import Reflection
from eden_memory.search.fact_candidates import FactCandidate, Ranked, When
from eden_memory.search.search_documents import checked
from eden_memory.search.text_index import asked_words
from eden_memory.search.unindexed import UnindexedTexts

Row = dict[str, Any]
MOST_READ = 5_000
"""Reflections of the searched scopes, those said last before the others."""
FIELDS = {
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
        """Return reflections by id; a copy that was propagated only where the original is not among them."""
        if when.occurred:  # reflections tell of no time apart from when they were said
            return {}
        asked: Row = {"scope_key": {"$in": list(scope_keys)}, **without(when.private)}
        if when.is_now:
            asked["retired_at"] = None
        if when.as_of is not None:
            asked["$or"] = _said_by(when.as_of)
        rows = await self._reflections.find(
            asked, FIELDS, sort=[("said_at", DESCENDING), ("_id", 1)], limit=MOST_READ
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
