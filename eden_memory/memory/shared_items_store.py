"""What came from users into memory that others see, and the requests by which a person takes it back."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from bson import ObjectId
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.sharing import WIDE
from eden_memory.memory.snapshot_store import of_users
from eden_memory.names import Names
from eden_memory.schemas.documents import (
    Fact,
    InboxFactCommand,
    InboxForget,
    InboxMemoryCommand,
    Reflection,
    Snapshot,
)
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
TAKEN_BACK = "taken out of shared memory: it belongs to its user"
"""The reason of a retirement by which a person corrects where an item belongs."""


@dataclass(frozen=True, slots=True)
class SharedItem:
    """A fact or reflection of an agent, shard or group that rests on what users said."""

    kind: Literal["fact", "reflection"]
    id: str
    scope: Scope
    content: str
    said_at: datetime
    session_ids: tuple[str, ...]
    users: tuple[str, ...]
    """Whose messages it rests on; typed ids."""
    absorbed: bool = False
    """Whether a blob has taken it in."""
    sources: tuple[SourceMessage, ...] = ()


class SharedItems:
    """Of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._database, self._names = database, names

    async def newest(self, limit: int, agent_id: str | None = None) -> list[SharedItem]:
        """Return what stands of it, newest first."""
        return await self._found({}, limit, agent_id)

    async def of(self, ids: Collection[str]) -> list[SharedItem]:
        """Return those of the items that stand."""
        return await self._found({"_id": {"$in": list(ids)}}, len(ids), None)

    async def _found(self, query: Row, limit: int, agent_id: str | None) -> list[SharedItem]:
        scopes = {scope.key: scope for scope in await self._scopes(agent_id)}
        found: list[SharedItem] = []
        for kind, collection, standing in (
            ("fact", Fact.COLLECTION, {"active": True}),
            ("reflection", Reflection.COLLECTION, {"retired_at": None}),
        ):
            wanted = {"$and": [of_users(scopes), {**query, **standing}]}
            rows = self._database[self._names[collection]].find(wanted, {"embedding": 0, "history": 0})
            found += [_item(kind, row, scopes) async for row in rows.sort("said_at", -1).limit(limit)]
        return sorted(found, key=lambda item: item.said_at, reverse=True)[:limit]

    async def _scopes(self, agent_id: str | None) -> list[Scope]:
        query: Row = {"scope": {"$in": sorted(WIDE)}, **({} if agent_id is None else {"agent_id": agent_id})}
        rows = self._database[self._names[Snapshot.COLLECTION]].find(query, {"agent_id": 1})
        return [Scope.of_key(row["_id"], row["agent_id"]) async for row in rows]


def _item(kind: Any, row: Row, scopes: dict[str, Scope]) -> SharedItem:
    users = dict.fromkeys(source["user_id"] for source in row["sources"] if source.get("user_id"))
    return SharedItem(
        kind,
        row["_id"],
        scopes[row["scope_key"]],
        row["content"],
        row["said_at"],
        tuple(row.get("session_ids", ())),
        tuple(users),
        row.get("absorbed", False),
        tuple(SourceMessage(**source) for source in row["sources"]),
    )


def taken_back(item: SharedItem, by: str | None, *, move: bool) -> list[Row]:
    """Return the inbox documents that retire an item as a correction, and with `move` give it to its only user.

    A reflection that a blob has absorbed is forgotten instead, so that the blob is made anew without it.
    """
    asked = {"by": "person", "reason": TAKEN_BACK, "asked_by": by}
    facts: Row = {"kind": "fact_command", **asked}
    notes: Row = {"kind": "memory_command", **asked}
    requests: list[Any] = []
    if item.kind == "fact":
        requests.append(
            InboxFactCommand(_id=ObjectId(), scope=item.scope, action="retire", fact_id=item.id, **facts)
        )
    elif item.absorbed:
        requests.append(
            InboxForget(_id=ObjectId(), kind="forget", what="reflection", target=item.id, asked_by=by)
        )
    else:
        retire: Row = {"action": "retire_reflection", "reflection_id": item.id}
        requests.append(InboxMemoryCommand(_id=ObjectId(), scope=item.scope, **retire, **notes))
    if move:
        (user,) = item.users
        added: Row = {"text": item.content, "said_at": item.said_at, "sources": item.sources}
        own = Scope.of_user(item.scope.agent_id, user)
        requests.append(
            InboxFactCommand(_id=ObjectId(), scope=own, action="add", **added, **facts)
            if item.kind == "fact"
            else InboxMemoryCommand(_id=ObjectId(), scope=own, action="add_reflection", **added, **notes)
        )
    return [request.model_dump(exclude_none=True) for request in requests]
