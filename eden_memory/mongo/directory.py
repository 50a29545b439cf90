"""What the application's sessions, agents, users and groups say; collections that are not mapped are derived."""

from collections.abc import Iterable, Mapping
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.domain.message_fields import getter
from eden_memory.domain.participants import DEFAULT_AGENT, Missing, SessionFacts
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.settings import AgentsSettings, Settings

Row = Mapping[str, Any]


class MongoDirectory:
    """`database` is the application's; `streams` the collection of `memory_streams`."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], streams: Any, settings: Settings) -> None:
        self._database, self._streams = database, streams
        self._sessions, self._agents = settings.sessions, settings.agents
        self._users, self._groups = settings.users, settings.groups

    async def look_up(self, session_ids: Iterable[str]) -> dict[str, SessionFacts | Missing]:
        """For every session asked for: what is known, or which document is missing."""
        wanted = list(session_ids)
        if not wanted:
            return {}
        sessions = await self._read(self._sessions.collection, wanted)
        agents = await self._read(self._agents.collection, [self._agent_of(row) for row in sessions.values()])
        users = await self._read(
            self._users.collection, [user for row in sessions.values() for user in self._users_of(row) or ()]
        )
        shards = await self._shards(agents if self._agents.collection else {DEFAULT_AGENT: {}})
        return {one: self._facts(one, sessions, agents, users, shards) for one in wanted}

    async def _read(self, collection: str | None, ids: Iterable[str]) -> dict[str, Row]:
        """Documents by typed id; none where the collection is not mapped."""
        wanted = list(dict.fromkeys(ids))
        if collection is None or not wanted:
            return {}
        found = (
            await self._database[collection]
            .find({"_id": {"$in": [decode_id(one) for one in wanted]}})
            .to_list()
        )
        return {encode_id(row["_id"]): row for row in found}

    async def _shards(self, agents: Iterable[str]) -> dict[str, list[str]]:
        named = self._streams.find(
            {"agent_id": {"$in": list(agents)}, "scope": "shard", "active": {"$ne": False}},
            {"agent_id": 1, "name": 1},
        )
        shards: dict[str, list[str]] = {}
        async for row in named:
            shards.setdefault(row["agent_id"], []).append(row["name"])
        return {agent: sorted(names) for agent, names in shards.items()}

    def _facts(
        self,
        session_id: str,
        sessions: Mapping[str, Row],
        agents: Mapping[str, Row],
        users: Mapping[str, Row],
        shards: Mapping[str, list[str]],
    ) -> SessionFacts | Missing:
        session = sessions.get(session_id)
        if self._sessions.collection is not None and session is None:
            return Missing(f"no document {session_id} in {self._sessions.collection}")
        agent_id = self._agent_of(session or {})
        agent = agents.get(agent_id)
        if self._agents.collection is not None and agent is None:
            return Missing(f"no document {agent_id} in {self._agents.collection}")
        members = None if session is None else self._users_of(session)
        known = [(one, users[one]) for one in members or () if one in users]
        group = None if session is None else getter(self._sessions.group_id)(session)
        return SessionFacts(
            agent_id=agent_id,
            users=members,
            group_id=None if group is None else encode_id(group),
            tier=max((_tier(getter(self._users.tier)(row)) for _, row in known), default=0),
            private_users=tuple(one for one, row in known if getter(self._users.memory_private)(row) is True),
            user_memory=_switch(agent, self._agents, "user_memory_enabled"),
            agent_memory=_switch(agent, self._agents, "agent_memory_enabled"),
            names=self._names(agent_id, agent, known),
            shards=tuple(shards.get(agent_id, ())),
        )

    def _names(self, agent_id: str, agent: Row | None, users: list[tuple[str, Row]]) -> dict[str, str]:
        named = [(one, getter(self._users.name)(row)) for one, row in users]
        if agent is not None:
            named.append((agent_id, getter(self._agents.name)(agent)))
        return {one: name for one, name in named if isinstance(name, str) and name}

    def _agent_of(self, session: Row) -> str:
        agent = getter(self._sessions.agent_id)(session)
        return DEFAULT_AGENT if agent is None else encode_id(agent)

    def _users_of(self, session: Row) -> tuple[str, ...] | None:
        users = getter(self._sessions.users)(session)
        return tuple(dict.fromkeys(encode_id(one) for one in users)) if isinstance(users, list) else None


def _tier(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _switch(agent: Row | None, paths: AgentsSettings, name: str) -> bool:
    return agent is None or getter(getattr(paths, name))(agent) is not False
