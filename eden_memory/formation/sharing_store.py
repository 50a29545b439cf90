"""What shared memory is checked by: names of an agent's users, what the operator gave, what was taken back, trials."""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.formation.sharing_trial import SharingTrial
from eden_memory.formation.window_question import SharedKnowledge, TakenBack
from eden_memory.memory.snapshot_store import GIVEN_TO_ALL
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.readable import documents_by_id
from eden_memory.names import Names
from eden_memory.schemas.documents import Consolidated, Fact, Reflection, Snapshot
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings

Database = AsyncDatabase[dict[str, Any]]
Row = Mapping[str, Any]
MOST_USERS = 10_000
"""Users of an agent whose names are looked for, those with the newest memory."""
MOST_GIVEN = 500
MOST_TAKEN_BACK = 50
TAKEN_BACK = "taken out of shared memory: it belongs to its user"
"""The reason of a retirement by which a person corrects where an item belongs."""
TRIAL = "sharing_trial"


class MongoSharing:
    """`source` is the application's database, `memory` our own; what is read of an agent is kept for `keep_seconds`."""

    def __init__(
        self,
        source: Database,
        memory: Database,
        settings: Settings,
        *,
        keep_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._memory, self._names = source, memory, settings.names
        self._users, self._most = settings.users, settings.memory.sharing_mistakes
        self._keep_seconds, self._clock = keep_seconds, clock
        self._known: dict[str, tuple[float, SharedKnowledge]] = {}
        self._tried: tuple[float, Mapping[tuple[str, str, str], int]] | None = None

    async def known(self, agent_id: str) -> SharedKnowledge:
        """Return what an agent's shared memory is checked by."""
        kept = self._known.get(agent_id)
        if kept is not None and self._clock() - kept[0] < self._keep_seconds:
            return kept[1]
        at = self._clock()
        found = SharedKnowledge(
            await self._names_of_users(agent_id),
            await self._given(agent_id),
            await self._taken_back(agent_id),
        )
        if len(self._known) >= MOST_USERS:
            self._known.clear()
        self._known[agent_id] = at, found
        return found

    async def may_judge(self, provider: str | None, call: Call) -> bool:
        """Return whether the model of a call passed `eden models check` with the prompt of the call."""
        if self._tried is None or self._clock() - self._tried[0] >= self._keep_seconds:
            self._tried = self._clock(), await stored_trials(self._memory, self._names)
        shared = self._tried[1].get((provider or "", call.model, call.prompt))
        return shared is not None and shared <= self._most

    async def _names_of_users(self, agent_id: str) -> frozenset[str]:
        if self._users.collection is None:
            return frozenset()
        query: Row = {"agent_id": agent_id, "scope": "user"}
        newest = self._of(Snapshot.COLLECTION).find(query, {"_id": 1}, sort=[("_id", 1)], limit=MOST_USERS)
        users = [Scope.of_key(row["_id"], agent_id).user_id async for row in newest]
        rows = await documents_by_id(self._source[self._users.collection], [user for user in users if user])
        named = (getter(self._users.name)(row) for row in rows.values())
        return frozenset(name for name in named if isinstance(name, str) and name.strip())

    async def _given(self, agent_id: str) -> tuple[str, ...]:
        """Return texts of the agent's scope that were added for all, and the sentences that are pinned there."""
        key, given = Scope.of_agent(agent_id).key, list[str]()
        query: Row = {"scope_key": key, "sources.session_id": GIVEN_TO_ALL}
        for kind, standing in ((Fact, {"active": True}), (Reflection, {"retired_at": None})):
            found = self._of(kind.COLLECTION).find({**query, **standing}, {"content": 1}, limit=MOST_GIVEN)
            given += [row["content"] async for row in found]
        blob: Row = await self._of(Consolidated.COLLECTION).find_one({"_id": key}, {"pins": 1}) or {}
        return (*given, *blob.get("pins", ()))

    async def _taken_back(self, agent_id: str) -> tuple[TakenBack, ...]:
        """Return what a person took out of the agent's memory, the newest first; it is forgotten with its messages."""
        shards = re.compile(f"^shard:{re.escape(agent_id)}:")
        key, found = {"$in": [Scope.of_agent(agent_id).key, shards]}, list[Row]()
        for kind, reason in ((Fact, "reason"), (Reflection, "command.reason")):
            query: Row = {"scope_key": key, reason: TAKEN_BACK, "retired_at": {"$ne": None}}
            fields = {"content": 1, "sources.user_id": 1, "retired_at": 1}
            rows = self._of(kind.COLLECTION).find(
                query, fields, sort=[("retired_at", -1)], limit=MOST_TAKEN_BACK
            )
            found += await rows.to_list()
        found.sort(key=lambda row: row["retired_at"], reverse=True)
        return tuple(TakenBack(row["content"], _users_of(row)) for row in found[:MOST_TAKEN_BACK])

    def _of(self, collection: str) -> Any:
        return self._memory[self._names[collection]]


def _users_of(row: Row) -> frozenset[str]:
    return frozenset(source["user_id"] for source in row.get("sources", ()) if source.get("user_id"))


async def store_trials(memory: Database, names: Names, trials: Sequence[SharingTrial]) -> None:
    """Store the results of `eden models check`; a later one of the same model and prompt replaces the earlier."""
    for trial in trials:
        fields = {name: value for name, value in asdict(trial).items() if name != "shared"}
        await memory[names["versions"]].replace_one(
            {"_id": f"{TRIAL}/{trial.provider}/{trial.model}/{trial.prompt}"},
            {"kind": TRIAL, **fields, "at": datetime.now(UTC)},
            upsert=True,
        )


async def stored_trials(memory: Database, names: Names) -> Mapping[tuple[str, str, str], int]:
    """Return how many personal statements each tried model shared, by provider, model and prompt."""
    rows = memory[names["versions"]].find({"kind": TRIAL})
    return {(row["provider"], row["model"], row["prompt"]): row["personal_shared"] async for row in rows}
