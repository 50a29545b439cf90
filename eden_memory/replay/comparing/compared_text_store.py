"""The texts in the memory of one namespace: read as it is stored, by a few fields, page by page."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from re import escape
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.memory.fact_hash import fact_hash
from eden_memory.mongo.documents import packed_of
from eden_memory.names import Names
from eden_memory.replay.comparing.differing import MemoryText, ScopeSeen, ScopeTexts
from eden_memory.schemas.documents import Consolidated, Fact, Reflection, Snapshot
from eden_memory.schemas.scopes import LargeAudience

Row = dict[str, Any]
AT_ONCE = 1_000
OF_A_SCOPE = ("agent_id", "audience", "active_facts")


class MongoComparedMemory:
    """eden_memory.replay.comparing.differing.Telling over the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        majority = ReadConcern("majority")
        self._snapshots, self._facts, self._reflections, self._blobs = (
            database.get_collection(names[kind.COLLECTION], read_concern=majority)
            for kind in (Snapshot, Fact, Reflection, Consolidated)
        )

    async def scopes(self, beginnings: Sequence[str]) -> AsyncGenerator[ScopeSeen]:
        """By their snapshots, in the order of their keys."""
        query: Row = (
            {"$or": [{"_id": {"$regex": f"^{escape(beginning)}"}} for beginning in beginnings]}
            if beginnings
            else {}
        )
        async for row in self._snapshots.find(query, OF_A_SCOPE, batch_size=AT_ONCE).sort("_id"):
            told = row.get("audience", ())
            audience = LargeAudience.model_validate(told) if isinstance(told, dict) else tuple(told)
            yield ScopeSeen(row["_id"], row["agent_id"], audience, row.get("active_facts", 0))

    async def facts(self, scope_keys: Sequence[str]) -> Mapping[str, ScopeTexts]:
        """Active ones, by scope key and hash."""
        query = {"scope_key": {"$in": list(scope_keys)}, "active": True}
        fields = ("scope_key", "hash", "content", "embedding_model")
        found: defaultdict[str, ScopeTexts] = defaultdict(ScopeTexts)
        async for row in self._facts.find(query, fields, batch_size=AT_ONCE):
            texts = found[row["scope_key"]]
            texts.by_key[_unused(texts, row["hash"])] = MemoryText(row["_id"], row["content"])
            texts.models.add(row.get("embedding_model"))
        return found

    async def reflections(self, scope_keys: Sequence[str]) -> Mapping[str, ScopeTexts]:
        """All of them, by scope key and hash of their text."""
        query = {"scope_key": {"$in": list(scope_keys)}}
        found: defaultdict[str, ScopeTexts] = defaultdict(ScopeTexts)
        async for row in self._reflections.find(query, ("scope_key", "content"), batch_size=AT_ONCE):
            texts = found[row["scope_key"]]
            texts.by_key[_unused(texts, fact_hash(row["content"]))] = MemoryText(row["_id"], row["content"])
        return found

    async def blobs(self, scope_keys: Sequence[str]) -> Mapping[str, str]:
        """By scope key."""
        rows = self._blobs.find({"_id": {"$in": list(scope_keys)}}, ("content",), batch_size=AT_ONCE)
        return {row["_id"]: row["content"] async for row in rows}

    async def vectors(self, fact_ids: Sequence[str]) -> AsyncGenerator[tuple[str, bytes]]:
        """A page of ids at a time."""
        for start in range(0, len(fact_ids), AT_ONCE):
            page = fact_ids[start : start + AT_ONCE]
            async for row in self._facts.find({"_id": {"$in": page}}, ("embedding",), batch_size=AT_ONCE):
                if (packed := packed_of(row.get("embedding"))) is not None:
                    yield row["_id"], packed


def _unused(texts: ScopeTexts, text_hash: str) -> str:
    """A text that is told twice counts twice."""
    key, times = text_hash, 1
    while key in texts.by_key:
        times += 1
        key = f"{text_hash}/{times}"
    return key
