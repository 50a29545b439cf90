"""Ranks facts as they were at a point in time, or retired ones too: read from MongoDB, compared in this process."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.models.question import Asking, Embedder
from eden_memory.mongo.readable import readable
from eden_memory.names import Names
from eden_memory.search.fact_candidates import FactCandidate, Ranked, When
from eden_memory.search.search_documents import KEPT, candidate
from eden_memory.search.text_index import AskedWord
from eden_memory.search.unindexed import UnindexedTexts

Row = dict[str, Any]
FIELDS = {
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
        """For each vector the nearest facts of then, exact."""
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
        """For each query the facts of then by BM25; how rare a word is is counted over these scopes."""
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
        async for row in self._facts.find(asked, FIELDS, batch_size=AT_ONCE):
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
        """Return a fact, since when it was stated earlier, and what was known of it then."""
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
