"""Lists of agents and of their scopes, page by page in the order of keys, for whoever browses all memory."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.memory.results import Page
from eden_memory.names import Names
from eden_memory.schemas.documents import Snapshot
from eden_memory.schemas.scopes import Scope, ScopeKind

Row = dict[str, Any]
FIELDS: Row = {
    "agent_id": 1,
    "active_facts": 1,
    "blob_version": 1,
    "changed_at": 1,
    "audience": 1,
    "buffered": {"$size": "$buffer"},
}
LAST = "\uffff"
"""Sorts after every key with the same beginning."""


@dataclass(frozen=True, slots=True)
class ListedScope:
    """A scope that has stored memory, in numbers."""

    scope: Scope
    facts: int
    """Active ones."""
    buffered: int
    """Reflections that no blob has absorbed."""
    blob_version: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ScopeQuery:
    """Which scopes of one agent are listed; ids typed."""

    agent_id: str
    kind: ScopeKind
    beginning: str = ""
    """Of the typed id of the user, group or session, or of the shard's name, encoded as in the key."""
    users: Collection[str] | None = None
    """Only these users' own scopes, or sessions that these users were in; None: all."""
    after: str | None = None
    """The last key of the page before."""
    limit: int = 50


class ScopeLists:
    """Reads the snapshots of one namespace by their keys, so a page costs the same however many there are."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._snapshots = database[names[Snapshot.COLLECTION]]

    async def agents(self) -> list[str]:
        """Return the typed ids of the agents that remember anything."""
        found: list[str] = await self._snapshots.distinct("agent_id")
        return sorted(found)

    async def scopes(self, wanted: ScopeQuery) -> Page[ListedScope]:
        """Return a page; its cursor is the last key."""
        rows = await self._rows(wanted)
        page = [_listed(row) for row in rows[: wanted.limit]]
        return Page(tuple(page), page[-1].scope.key if len(rows) > wanted.limit else None)

    async def _rows(self, wanted: ScopeQuery) -> Sequence[Row]:
        within = f"{wanted.kind}:" if wanted.kind == "session" else f"{wanted.kind}:{wanted.agent_id}:"
        if wanted.kind == "agent":
            within = f"agent:{wanted.agent_id}"
        first = within + wanted.beginning
        bounds: Row = {"$gte": first, "$lt": first + LAST}
        if wanted.after is not None:
            bounds["$gt"] = wanted.after
        query: Row = {"_id": bounds, "scope": wanted.kind, "agent_id": wanted.agent_id}
        if wanted.users is not None:
            query["audience" if wanted.kind == "session" else "user_id"] = {"$in": sorted(wanted.users)}
        found = self._snapshots.find(query, FIELDS).sort("_id").limit(wanted.limit + 1)
        return await found.hint("_id_").to_list()


def _listed(row: Row) -> ListedScope:
    return ListedScope(
        Scope.of_key(row["_id"], row["agent_id"]),
        row.get("active_facts", 0),
        row.get("buffered", 0),
        row.get("blob_version", 0),
        row["changed_at"],
    )
