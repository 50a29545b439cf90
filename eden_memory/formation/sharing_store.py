"""What shared memory is checked by: names of users, what the operator gave, what was taken back, trials of models."""

import re
import time
from asyncio import gather
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.directory_store import agents_that_say
from eden_memory.directory.session_document_store import SessionDocuments
from eden_memory.directory.stream_store import StreamStore
from eden_memory.formation.sharing_trial import SharingTrial, lacking
from eden_memory.formation.window_question import SharedKnowledge, TakenBack
from eden_memory.memory.snapshot_store import GIVEN_TO_ALL
from eden_memory.memory.user_memory_store import TAKEN_BACK
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.lenient_decoding import documents_by_id
from eden_memory.names import Names
from eden_memory.schemas.documents import Consolidated, Fact, Reflection, SessionState, Snapshot, Stream
from eden_memory.schemas.ids import split
from eden_memory.schemas.provenance import Call
from eden_memory.schemas.scopes import Scope, SharingMode
from eden_memory.settings import Settings

Database = AsyncDatabase[dict[str, Any]]
Row = Mapping[str, Any]
MOST_USERS = 10_000
"""Users of an agent whose names are looked for, those with the most facts."""
MOST_GIVEN = 500
MOST_TAKEN_BACK = 50
MOST_AGENTS, MOST_NAMED = 1_000, 8
MOST_ROOMS = 1_000
"""Sessions that are looked at, at most."""
TRIAL = "sharing_trial"


class MongoSharing:
    """`source`: the application's database, `memory`: our own; what is read is kept for `keep_seconds`."""

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
            *await gather(self._names_of_users(agent_id), self._given(agent_id), self._taken_back(agent_id))
        )
        if len(self._known) >= MOST_AGENTS:
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
        """Return the names in the users' documents; of those without one, ids that are made of letters alone."""
        query: Row = {"agent_id": agent_id, "scope": "user"}
        order = [("active_facts", -1)]  # as an index has them
        most = self._of(Snapshot.COLLECTION).find(query, {"_id": 1}, sort=order, limit=MOST_USERS)
        users = [user async for row in most if (user := Scope.of_key(row["_id"], agent_id).user_id)]
        collection = self._users.collection
        rows = (
            {}
            if collection is None
            else await documents_by_id(self._source[collection], users, {self._users.name: 1})
        )
        name_of = getter(self._users.name)
        named = {user: name_of(rows.get(user, {})) for user in users}
        return frozenset(filter(None, (_called(user, name) for user, name in named.items())))

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
        """Return what a person took out of the agent's memory, newest first; it is forgotten with its messages."""
        shards = re.compile(f"^shard:{re.escape(agent_id)}:")
        key, found = {"$in": [Scope.of_agent(agent_id).key, shards]}, list[Row]()
        for kind, reason in ((Fact, "reason"), (Reflection, "command.reason")):
            query: Row = {"scope_key": key, reason: TAKEN_BACK, "retired_at": {"$ne": None}}
            fields = {"content": 1, "sources.user_id": 1, "retired_at": 1}
            rows = self._of(kind.COLLECTION).find(
                query, fields, sort=[("retired_at", -1)], limit=MOST_TAKEN_BACK
            )
            found += await rows.to_list()
        found.sort(key=_retired_at, reverse=True)
        return tuple(TakenBack(row["content"], _users_of(row)) for row in found[:MOST_TAKEN_BACK])

    def _of(self, collection: str) -> Any:
        return self._memory[self._names[collection]]


def _called(user: str, name: object) -> str | None:
    if isinstance(name, str) and name.strip():
        return name
    own = split(user)[1]
    return own if re.fullmatch(r"(?:[^\W\d_]+[._ -]?)+", own) else None


def _retired_at(row: Row) -> datetime:
    return row["retired_at"]


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


@dataclass(frozen=True, slots=True)
class Learning:
    """Which agents learn from what their users say, in one line, and why their models share nothing of it yet."""

    mode: SharingMode
    says: str
    lacking: tuple[str, ...] = ()


async def learning(source: Database, memory: Database, settings: Settings, mode: SharingMode) -> Learning:
    """Return which agents learn with a mode, or would with `agents` where it is private."""
    chosen, refused = await _agents_chosen(source, memory, settings)
    listed = (
        _listed(chosen)
        or "none yet (`agent_memory_enabled: true` in an agent's document, or its stream, says so)"
    )
    if mode == "private":
        return Learning(
            mode, f"private: no agent learns from what its users say; with `agents` would learn: {listed}"
        )
    said = f"agents: from what their users say learn: {listed}"
    if mode == "team":
        but = f", but for {_listed(refused)}" if refused else ""
        said = f"team: every agent learns from what its users say{but}, and all of its users see that"
    streams = await StreamStore(memory, settings).list()
    lacks = lacking(settings, await stored_trials(memory, settings.names), streams)
    return Learning(mode, said, tuple(lacks) if mode == "team" or chosen else ())


async def _agents_chosen(
    source: Database, memory: Database, settings: Settings
) -> tuple[list[str], list[str]]:
    """Return the agents whose stream or document says that they learn, and those whose stream says the opposite."""
    say = dict.fromkeys(await agents_that_say(source, settings, MOST_AGENTS), True)
    query = {"scope": "agent", "sharing": {"$in": ["team", "private"]}}
    streams = memory[settings.names[Stream.COLLECTION]].find(
        query, {"agent_id": 1, "sharing": 1}, limit=MOST_AGENTS
    )
    say |= {row["agent_id"]: row["sharing"] == "team" async for row in streams}
    return sorted(name for name, on in say.items() if on), sorted(name for name, on in say.items() if not on)


def _listed(agents: Sequence[str]) -> str:
    named = ", ".join(split(agent)[1] for agent in agents[:MOST_NAMED])
    return f"{named} and {len(agents) - MOST_NAMED} more" if len(agents) > MOST_NAMED else named


async def rooms_without_facts(
    source: AsyncDatabase[dict[str, Any]],
    memory: AsyncDatabase[dict[str, Any]],
    settings: Settings,
    mode: SharingMode,
) -> int:
    """Count the sessions of several authors that keep no facts, up to MOST_ROOMS; 0 where a setting decides it."""
    if "shared_sessions" in settings.memory.model_fields_set or mode != "private":
        return 0
    states = memory[settings.names[SessionState.COLLECTION]]
    names = [
        row["_id"] async for row in states.find({"users.1": {"$exists": True}}, {"_id": 1}, limit=MOST_ROOMS)
    ]
    mapped = settings.sessions
    if mapped.collection is None or not names:
        return len(names)
    group = getter(mapped.group_id)
    rows = await SessionDocuments(source, mapped).by_id(names)
    return sum(group(rows.get(name, {})) is None for name in names)
