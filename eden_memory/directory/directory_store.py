"""What the application's sessions, agents, users and groups say; collections that are not mapped are derived."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.own_sessions import whose
from eden_memory.directory.participants import DEFAULT_AGENT, Missing, SessionFacts
from eden_memory.directory.stream_store import streams_in
from eden_memory.directory.switched_off import Off
from eden_memory.directory.user_groups import group_of
from eden_memory.mongo.bson_ids import decode_id, encode_id
from eden_memory.mongo.document_fields import getter
from eden_memory.schemas.documents import Stream
from eden_memory.schemas.ids import NoId
from eden_memory.schemas.scopes import SharedSessions, Sharing
from eden_memory.settings import AgentsSettings, Settings

Row = Mapping[str, Any]


class Said(NamedTuple):
    """What a session's document says."""

    agent_id: str
    users: tuple[str, ...] | None
    group_id: str | None
    own: bool = False
    """It is what was added for the agent, without a chat."""


class MongoDirectory:
    """`database` is the application's; `streams` the collection of `memory_streams`."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], streams: Any, settings: Settings) -> None:
        self._database, self._streams = database, streams
        self._sessions, self._agents = settings.sessions, settings.agents
        self._users, self._groups = settings.users, settings.groups
        chosen = settings.memory.without_users
        self._without_users = settings.users.collection is None if chosen is None else chosen
        self._sharing: Sharing = settings.memory.sharing or "private"
        self._shared_sessions: SharedSessions = settings.memory.shared_sessions

    async def look_up(self, session_ids: Iterable[str]) -> dict[str, SessionFacts | Missing]:
        """For every session asked for: what is known, or which document is missing or not usable."""
        wanted = list(session_ids)
        if not wanted:
            return {}
        rows = await self._read(self._sessions.collection, wanted)
        said = {one: self._said(one, rows.get(one)) for one in wanted}
        usable = [one for one in said.values() if isinstance(one, Said)]
        agents = await self._read(self._agents.collection, [one.agent_id for one in usable])
        users = await self._read(self._users.collection, [user for one in usable for user in one.users or ()])
        streams = await self._streams_of({one.agent_id for one in usable})
        named = (one.group_id for one in usable if one.group_id is not None)
        groups = await self._read(self._groups.collection, named)
        return {
            name: self._facts(one, agents, users, groups, streams) if isinstance(one, Said) else one
            for name, one in said.items()
        }

    @property
    def switches(self) -> bool:
        """Whether sessions or users are mapped, so that one can be switched off."""
        return self._sessions.collection is not None or self._users.collection is not None

    async def off(self, authors: Mapping[str, Collection[str]]) -> Off:
        """Which of the sessions (with who wrote in them), and of all their users, are switched off."""
        rows = await self._read(self._sessions.collection, authors)
        users = {one: self._users_of(rows.get(one)) or tuple(named) for one, named in authors.items()}
        everybody = {one for named in (*users.values(), *authors.values()) for one in named}
        gone = frozenset(
            name
            for name, row in (await self._read(self._users.collection, everybody)).items()
            if getter(self._users.memory)(row) is False
        )
        paths = self._sessions
        off = {
            name
            for name, row in rows.items()
            if getter(paths.memory)(row) is False or getter(paths.incognito)(row) is True
        }
        return Off(
            frozenset(off | {one for one, named in users.items() if named and gone >= set(named)}), gone
        )

    async def tier_of(self, users: Sequence[str], session_id: str | None = None) -> int:
        """The highest tier among users; 0 where users are not mapped or have none.

        `session_id`: where no users are named, those whom the session's document lists.
        """
        if not users and session_id is not None:
            facts = (await self.look_up([session_id]))[session_id]
            return facts.tier if isinstance(facts, SessionFacts) else 0
        return self._highest((await self._read(self._users.collection, users)).values())

    def _highest(self, users: Iterable[Row]) -> int:
        return max((_tier(getter(self._users.tier)(row)) for row in users), default=0)

    def _users_of(self, row: Row | None) -> tuple[str, ...]:
        """The users that a session's document names, as far as they are ids."""
        try:
            users = getter(self._sessions.users)(row) if row is not None else None
            return tuple(map(encode_id, users)) if isinstance(users, list) else ()  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        except TypeError:
            return ()

    def _said(self, session_id: str, row: Row | None) -> "Said | Missing":
        """What a session's document says; where sessions are not mapped, nothing. Our own have none."""
        if (own := whose(session_id)) is not None:
            return Said(own.agent_id, () if own.user_id is None else (own.user_id,), None, own=True)
        if self._sessions.collection is None:
            return Said(DEFAULT_AGENT, None, None)
        if row is None:
            return Missing(f"no document {session_id} in {self._sessions.collection}")
        paths, field = self._sessions, ""
        try:
            field, agent = paths.agent_id, getter(paths.agent_id)(row)
            agent_id = DEFAULT_AGENT if agent is None else encode_id(agent)
            field, users = paths.users, getter(paths.users)(row)
            named = tuple(dict.fromkeys(map(encode_id, users))) if isinstance(users, list) else None  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
            field, group = paths.group_id, getter(paths.group_id)(row)
            return Said(agent_id, named, None if group is None else encode_id(group))
        except NoId as error:
            return Missing(f"{field} of the document {session_id} in {paths.collection} is no id: {error}")

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

    async def _streams_of(self, agents: Iterable[str]) -> dict[str, list[Stream]]:
        """Shards, what is switched off, and what says how the agent shares."""
        wanted: Row = {"$or": [{"scope": "shard"}, {"active": False}, {"sharing": {"$ne": None}}]}
        rows: list[Row] = await self._streams.find({"agent_id": {"$in": list(agents)}, **wanted}).to_list()
        by_agent = groupby(sorted(rows, key=_agent), _agent)
        return {agent: list(streams_in(own).values()) for agent, own in by_agent}

    def _facts(
        self,
        said: "Said",
        agents: Mapping[str, Row],
        users: Mapping[str, Row],
        groups: Mapping[str, Row],
        streams: Mapping[str, list[Stream]],
    ) -> SessionFacts | Missing:
        agent = agents.get(said.agent_id)
        if self._agents.collection is not None and agent is None:
            return Missing(f"no document {said.agent_id} in {self._agents.collection}")
        known = [(one, users[one]) for one in said.users or () if one in users]
        own = streams.get(said.agent_id, ())
        shards = sorted((one.shard, one.sharing) for one in own if one.shard is not None and one.active)
        sharing = self._sharing_of(said, own)
        return SessionFacts(
            agent_id=said.agent_id,
            users=said.users,
            group_id=said.group_id,
            group_members=group_of(self._groups, groups.get(said.group_id or "")).members,
            tier=self._highest(row for _, row in known),
            private_users=tuple(one for one, row in known if getter(self._users.memory_private)(row) is True),
            user_memory=_switch(agent, self._agents, "user_memory_enabled"),
            agent_memory=_switch(agent, self._agents, "agent_memory_enabled"),
            without_users=said.own or self._without_users,
            names=self._names(said.agent_id, agent, known),
            sharing=sharing,
            shared_sessions=self._shared_sessions,
            shards=tuple(name for name, _ in shards),
            team_shards=tuple(
                name for name, chosen in shards if not said.own and (chosen or sharing) == "team"
            ),
            off=frozenset(one.scope for one in own if one.shard is None and not one.active),
        )

    def _sharing_of(self, said: "Said", own: Iterable[Stream]) -> Sharing:
        """Its agent's, else the installation's; what is added for a user is that user's alone."""
        if said.own:
            return "private"
        of_agent: Sharing | None = next((one.sharing for one in own if one.scope == "agent"), None)
        return of_agent or self._sharing

    def _names(self, agent_id: str, agent: Row | None, users: list[tuple[str, Row]]) -> dict[str, str]:
        named = [(one, getter(self._users.name)(row)) for one, row in users]
        if agent is not None:
            named.append((agent_id, getter(self._agents.name)(agent)))
        return {one: name for one, name in named if isinstance(name, str) and name}


def _agent(row: Row) -> str:
    return str(row["agent_id"])


def _tier(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _switch(agent: Row | None, paths: AgentsSettings, name: str) -> bool:
    return agent is None or getter(getattr(paths, name))(agent) is not False
