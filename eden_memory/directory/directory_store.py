"""Read the application's sessions, agents, users, groups and their names; what is not mapped is derived."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, cast

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory.participants import (
    DEFAULT_AGENT,
    NO_AUTHORS,
    Audiences,
    Missing,
    Off,
    SessionFacts,
    whose,
)
from eden_memory.directory.session_document_store import SessionDocuments, is_switched_off, listed_users
from eden_memory.directory.stream_store import streams_in
from eden_memory.directory.tree_store import ConversationTrees
from eden_memory.limits import sharing_of
from eden_memory.mongo.changes import Unreadable
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.lenient_decoding import documents_by_id, found_documents
from eden_memory.names import Names
from eden_memory.schemas.documents import SessionState, Snapshot, Stream
from eden_memory.schemas.ids import NoId
from eden_memory.schemas.scopes import FORMED_KINDS, FormedKind, SharedSessions, SharingMode
from eden_memory.settings import AgentsSettings, GroupsSettings, Remembered, Settings

Row = Mapping[str, Any]
NO_MEMBERS = frozenset[str]()


class SessionDocument(NamedTuple):
    """The fields of a session's document."""

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
        self._documents = SessionDocuments(database, settings.sessions)
        self._trees = ConversationTrees(database[settings.messages.collection], settings.messages)
        self._users, self._groups = settings.users, settings.groups
        chosen = settings.memory.without_users
        self._without_users = settings.users.collection is None if chosen is None else chosen
        self._mode: SharingMode = settings.memory.sharing or "private"
        self._shared_sessions: SharedSessions = settings.memory.shared_sessions
        self._settings = settings

    async def look_up(
        self,
        session_ids: Iterable[str],
        authors: Mapping[str, Collection[str]] = NO_AUTHORS,
        branches_of: Collection[str] = (),
    ) -> dict[str, SessionFacts | Missing]:
        """Return, for every session asked for, its facts, or which document is missing or not usable."""
        wanted = list(session_ids)
        if not wanted:
            return {}
        rows = await self._documents.by_id(wanted)
        documents = {name: self._session(name, rows.get(name)) for name in wanted}
        usable = [session for session in documents.values() if isinstance(session, SessionDocument)]
        agents = await self._read(self._agents.collection, [session.agent_id for session in usable])
        known = {
            name: tuple(dict.fromkeys((*(session.users or ()), *authors.get(name, ()))))
            for name, session in documents.items()
            if isinstance(session, SessionDocument)
        }
        users = await self._read(self._users.collection, [user for named in known.values() for user in named])
        streams = await self._streams_of({session.agent_id for session in usable})
        named = (session.group_id for session in usable if session.group_id is not None)
        groups = await self._read(self._groups.collection, named)
        replaced = await self._trees.replaced(name for name in known if name in branches_of)
        return {
            name: self._facts(document, known[name], agents, users, groups, streams, replaced.get(name))
            if isinstance(document, SessionDocument)
            else document
            for name, document in documents.items()
        }

    @property
    def switches(self) -> bool:
        """Return whether sessions or users are mapped, so that they can be switched off."""
        return self._sessions.collection is not None or self._users.collection is not None

    async def off(self, authors: Mapping[str, Collection[str]], others: Collection[str]) -> Off:
        """Return which of the sessions (with who wrote in them), of all their users and of `others` are off."""
        rows = await self._documents.by_id(authors)
        users = {name: self._users_of(rows.get(name)) or tuple(named) for name, named in authors.items()}
        everybody = {user for named in (*users.values(), *authors.values(), others) for user in named}
        gone = frozenset(
            name
            for name, row in (await self._read(self._users.collection, everybody)).items()
            if getter(self._users.memory)(row) is False or isinstance(row, Unreadable)
        )
        off = {
            name
            for name, row in rows.items()
            if isinstance(row, Unreadable) or is_switched_off(self._sessions, row)
        }
        return Off(
            frozenset(off | {name for name, named in users.items() if named and gone >= set(named)}), gone
        )

    async def tier_of(self, users: Sequence[str], session_id: str | None = None) -> int:
        """Return the highest tier among users; 0 if users are not mapped or have none.

        `session_id`: where no users are named, those whom the session's document lists.
        """
        if not users and session_id is not None:
            facts = (await self.look_up([session_id]))[session_id]
            return facts.tier if isinstance(facts, SessionFacts) else 0
        return self._highest((await self._read(self._users.collection, users)).values())

    def _highest(self, users: Iterable[Row]) -> int:
        return max((_tier(getter(self._users.tier)(row)) for row in users), default=0)

    def _users_of(self, row: Row | None) -> tuple[str, ...]:
        """Return the users that a session's document names, as far as they are ids."""
        try:
            return tuple(map(encode_id, (row and listed_users(self._sessions, row)) or ()))
        except TypeError:
            return ()

    def _session(self, session_id: str, row: Row | None) -> SessionDocument | Missing:
        """Return what a session's document says; where sessions are not mapped, nothing. Our own have none."""
        if (own := whose(session_id)) is not None:
            return SessionDocument(
                own.agent_id, () if own.user_id is None else (own.user_id,), None, own=True
            )
        if self._sessions.collection is None:
            return SessionDocument(DEFAULT_AGENT, None, None)
        if row is None:
            return Missing(f"no document {session_id} in {self._sessions.collection}")
        if isinstance(row, Unreadable):
            return Missing(f"the document {session_id} in {self._sessions.collection}: {row.reason}")
        paths, field = self._sessions, ""
        try:
            field, agent = paths.agent_id, getter(paths.agent_id)(row)
            agent_id = DEFAULT_AGENT if agent is None else encode_id(agent)
            field, users = paths.users, listed_users(paths, row)
            named = None if users is None else tuple(dict.fromkeys(map(encode_id, users)))
            field, group = paths.group_id, getter(paths.group_id)(row)
            return SessionDocument(agent_id, named, None if group is None else encode_id(group))
        except NoId as error:
            return Missing(f"{field} of the document {session_id} in {paths.collection} is no id: {error}")

    async def _read(self, collection: str | None, ids: Iterable[str]) -> dict[str, Row]:
        """Return documents by typed id; none where the collection is not mapped."""
        return {} if collection is None else await documents_by_id(self._database[collection], ids)

    async def _streams_of(self, agents: Iterable[str]) -> dict[str, Mapping[str, Stream]]:
        """Return the shards of agents, scopes switched off, and streams that say how an agent shares."""
        wanted: Row = {"$or": [{"scope": "shard"}, {"active": False}, {"sharing": {"$ne": None}}]}
        rows: list[Row] = await self._streams.find({"agent_id": {"$in": list(agents)}, **wanted}).to_list()
        by_agent = groupby(sorted(rows, key=_agent), _agent)
        return {agent: streams_in(own) for agent, own in by_agent}

    def _facts(
        self,
        session: SessionDocument,
        named: Sequence[str],
        agents: Mapping[str, Row],
        users: Mapping[str, Row],
        groups: Mapping[str, Row],
        streams: Mapping[str, Mapping[str, Stream]],
        replaced: frozenset[str] | None,
    ) -> SessionFacts | Missing:
        agent = agents.get(session.agent_id)
        if self._agents.collection is not None and (agent is None or isinstance(agent, Unreadable)):
            return Missing(f"no document {session.agent_id} in {self._agents.collection} that can be read")
        known = [(user, users[user]) for user in named if user in users]
        own = streams.get(session.agent_id, {})
        shards = sorted(stream.shard for stream in own.values() if stream.shard is not None and stream.active)
        learns = getter(self._agents.agent_memory_enabled)(agent or {}) is True
        mode: SharingMode = (
            "private" if session.own else self._mode
        )  # what is added for a user is that user's alone
        sharing = sharing_of("agent", own, mode, learns=learns)
        return SessionFacts(
            agent_id=session.agent_id,
            users=session.users,
            group_id=session.group_id,
            group_members=group_of(self._groups, groups.get(session.group_id or "")).members,
            tier=self._highest(row for user, row in known if session.users is None or user in session.users),
            private_users=tuple(
                user for user, row in known if getter(self._users.memory_private)(row) is True
            ),
            user_memory=_switch(agent, self._agents, "user_memory_enabled"),
            agent_memory=_switch(agent, self._agents, "agent_memory_enabled"),
            without_users=session.own or self._without_users,
            names=self._names(session.agent_id, agent, known),
            sharing=sharing,
            shared_sessions=self._shared_sessions,
            shards=tuple(shards),
            team_shards=tuple(
                name for name in shards if sharing_of(f"shard:{name}", own, mode, learns=learns) == "team"
            ),
            off=frozenset(
                stream.scope for stream in own.values() if stream.shard is None and not stream.active
            ),
            forms=remembered(self._settings, agent or {}, ("form", "on")),
            replaced=replaced or frozenset(),
        )

    def _names(self, agent_id: str, agent: Row | None, users: list[tuple[str, Row]]) -> dict[str, str]:
        named = [(user, getter(self._users.name)(row)) for user, row in users]
        if agent is not None:
            named.append((agent_id, getter(self._agents.name)(agent)))
        return {identity: name for identity, name in named if isinstance(name, str) and name}


def _agent(row: Row) -> str:
    return str(row["agent_id"])


def _tier(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _switch(agent: Row | None, paths: AgentsSettings, name: str) -> bool:
    return agent is None or getter(getattr(paths, name))(agent) is not False


def remembered(
    settings: Settings, agent: Mapping[str, Any], states: Collection[Remembered]
) -> tuple[FormedKind, ...]:
    """Return the kinds of memory in one of these states for an agent: by its document (or {}), else by settings."""

    def state(path: str, otherwise: Remembered) -> str:
        given = getter(path)(agent)
        return given if given in ("off", "form", "on") else otherwise

    memory, paths = settings.memory, settings.agents
    found = {
        "facts": state(paths.facts, memory.facts),
        "reflections": state(paths.reflections, memory.reflections),
    }
    return tuple(kind for kind in FORMED_KINDS if found[kind] in states)


class UserGroup(NamedTuple):
    """The name and the members of a group, if the application gives them."""

    name: str | None = None
    members: frozenset[str] | None = None
    """Typed ids; None: nothing lists them, so whoever is in a session of the group counts."""


def group_of(paths: GroupsSettings, row: Mapping[str, Any] | None) -> UserGroup:
    """Return the group of a document; where groups are mapped and it is missing or not readable, nobody is in it."""
    if paths.collection is None:
        return UserGroup()
    if row is None:
        return UserGroup(members=NO_MEMBERS)
    listed = getter(paths.members)(row)
    return UserGroup(text_of(getter(paths.name)(row)), None if listed is None else _members(listed))


def text_of(value: Any) -> str | None:
    """Return a name or title; None for anything but text."""
    return value if isinstance(value, str) and value.strip() else None


def _members(listed: Any) -> frozenset[str]:
    if not isinstance(listed, list):
        return NO_MEMBERS
    try:
        return frozenset(map(encode_id, cast("list[Any]", listed)))
    except TypeError:
        return NO_MEMBERS


Labelled = Literal["agent", "user", "session", "group"]


class Labels:
    """Reads the application's documents, where they are mapped."""

    def __init__(self, source: AsyncDatabase[dict[str, Any]], settings: Settings) -> None:
        self._source, self._settings = source, settings
        self._ids = {"session": settings.sessions.id}
        self._paths = {
            "agent": (settings.agents.collection, settings.agents.name),
            "user": (settings.users.collection, settings.users.name),
            "session": (settings.sessions.collection, settings.sessions.title),
            "group": (settings.groups.collection, settings.groups.name),
        }

    async def of(self, kind: Labelled, ids: Collection[str]) -> dict[str, str]:
        """Return the names by typed id, of those that have one."""
        collection, path = self._paths[kind]
        if collection is None or not ids:
            return {}
        wanted, key = [decode_id(typed) for typed in ids], self._ids.get(kind, "_id")
        fields = dict.fromkeys((key, path), 1)
        rows = await found_documents("directory", self._source[collection], {key: {"$in": wanted}}, fields)
        named = ((_first_id([getter(key)(row)]), text_of(getter(path)(row))) for row in rows)
        return {identity: name for identity, name in named if identity is not None and name is not None}

    async def member_of(self, group_id: str) -> str | None:
        """Return a user whom a group lists; None where nothing lists any."""
        paths = self._settings.groups
        if paths.collection is None:
            return None
        row = await self._source[paths.collection].find_one({"_id": decode_id(group_id)}, {paths.members: 1})
        listed: Any = None if row is None else getter(paths.members)(row)
        return _first_id(listed)

    async def session_of(self, group_id: str) -> str | None:
        """Return a session of a group; None where sessions are not mapped, or none names it."""
        paths = self._settings.sessions
        if paths.collection is None:
            return None
        of_group = {paths.group_id: decode_id(group_id)}
        row = await self._source[paths.collection].find_one(of_group, {paths.id: 1})
        return None if row is None else _first_id([getter(paths.id)(row)])


def _first_id(listed: Any) -> str | None:
    try:
        return encode_id(listed[0]) if isinstance(listed, list) and listed else None
    except NoId:
        return None


PAGE = 100
"""Sessions whose audiences are read together."""
KEPT = {"audience_changes": 1}


class MongoAudiences:
    """`database` is our own."""

    def __init__(self, database: AsyncDatabase[dict[str, Any]], names: Names) -> None:
        self._sessions = database[names[SessionState.COLLECTION]]
        self._snapshots = database[names[Snapshot.COLLECTION]]

    async def of(self, session_ids: Collection[str]) -> dict[str, Audiences]:
        """Return the audiences by session; sessions without one are left out."""
        if not session_ids:
            return {}
        found = self._sessions.find({"_id": {"$in": list(session_ids)}}, KEPT)
        return {row["_id"]: Audiences.of_row(row) async for row in found}

    async def heard_by(self, user_id: str | None) -> dict[str, str]:
        """Return scope key → session of the large audiences with the user; None: nobody in particular."""
        if user_id is None:
            return {}
        large = await self._snapshots.distinct("session_id", {"audience": {"$type": "object"}})
        found: dict[str, str] = {}
        for start in range(0, len(large), PAGE):
            some = {"_id": {"$in": large[start : start + PAGE]}, "audience_changes.joined": user_id}
            async for row in self._sessions.find(some, KEPT):
                session = row["_id"]
                for number in Audiences.of_row(row).heard_by(user_id):
                    found[f"session:{session}" + (f":{number}" if number > 1 else "")] = session
        return found


async def agents_that_say(
    source: AsyncDatabase[dict[str, Any]], settings: Settings, most: int = 0
) -> set[str]:
    """Return the agents whose own document says that they learn from their users; `most`: 0 for all."""
    agents = settings.agents
    if agents.collection is None:
        return set()
    rows = source[agents.collection].find({agents.agent_memory_enabled: True}, {"_id": 1}, limit=most)
    return {encode_id(row["_id"]) async for row in rows}
