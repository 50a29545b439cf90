"""What a causal chain is read from: messages, windows, counted calls, facts, reflections, contexts."""

from collections.abc import Iterable
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.mongo.money import plain
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    Consolidated,
    Context,
    CountedCall,
    Fact,
    Message,
    Reflection,
    SessionState,
    StoredBlob,
    WindowTexts,
)

Row = dict[str, Any]


class MongoChain:
    """Every read is by id; an operator's tool, so it asks nobody whose it is."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._of = {
            one: database[names[one.COLLECTION]]
            for one in (
                Consolidated,
                Context,
                CountedCall,
                Fact,
                Message,
                Reflection,
                SessionState,
                StoredBlob,
                WindowTexts,
            )
        }

    async def one(self, document: Any, name: str) -> Row | None:
        """A document by its id."""
        return await self._of[document].find_one({"_id": name})

    async def windows(self, formation_ids: Iterable[str | None]) -> dict[str, Row]:
        """Closed windows, without their texts, each with what its session waits for."""
        rows = await self._by_id(WindowTexts, formation_ids, {"messages.text": 0})
        unasked = [row["session_id"] for row in rows.values() if row["requested"] is None]
        waiting = await self._by_id(SessionState, unasked, {"waits_for": 1})
        for row in rows.values():
            row["waits_for"] = waiting.get(row["session_id"], {}).get("waits_for")
        return rows

    async def messages(self, message_ids: Iterable[str]) -> dict[str, Row]:
        """Messages as formation-trigger knows them; of one that is formed, its text while the window has it."""
        rows = await self._by_id(Message, message_ids)
        formations = [row["formation_id"] for row in rows.values()]
        for window in (await self._by_id(WindowTexts, formations, {"messages": 1})).values():
            for one in window["messages"]:
                if one["message_id"] in rows:
                    rows[one["message_id"]]["text"] = one["text"]
        return rows

    async def calls(self, formation_ids: Iterable[str], call_ids: Iterable[str]) -> dict[str, Row]:
        """Counted calls: all of these formations, and those named."""
        either = [{"formation_id": {"$in": list(formation_ids)}}, {"_id": {"$in": list(call_ids)}}]
        rows = await self._of[CountedCall].find({"$or": either}).to_list()
        for row in rows:
            row["cost_usd"] = None if row["cost_usd"] is None else f"{plain(row['cost_usd']):f}"
        return {row["_id"]: row for row in rows}

    async def contexts(self, scope_keys: Iterable[str]) -> list[Row]:
        """Ready contexts that show any of these scopes."""
        wanted = {"scope_keys": {"$in": list(scope_keys)}}
        return await self._of[Context].find(wanted, sort=[("_id", 1)], limit=100).to_list()

    async def _by_id(
        self, document: Any, names: Iterable[str | None], fields: Row | None = None
    ) -> dict[str, Row]:
        wanted = [name for name in dict.fromkeys(names) if name is not None]
        rows = await self._of[document].find({"_id": {"$in": wanted}}, fields).to_list() if wanted else []
        return {row["_id"]: row for row in rows}
