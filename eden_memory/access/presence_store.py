"""The users of a session now, and what is switched off: from the application's documents, or the authors seen."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.visible import UNNAMED, Asker, Present
from eden_memory.directory.author_store import MessageAuthors
from eden_memory.directory.directory_store import group_of, remembered, text_of
from eden_memory.directory.participants import whose
from eden_memory.directory.session_document_store import SessionDocuments, is_switched_off, listed_users
from eden_memory.mongo.changes import Unreadable
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.mongo.lenient_decoding import documents_by_id, found_documents
from eden_memory.schemas.documents import SessionState
from eden_memory.settings import Settings

Row = Mapping[str, Any]
MOST_GROUPS = 10
"""Of one user in one context."""
Rows = dict[str, Row]


class MongoPresence:
    """`source` is the application's database, `memory` our own; `settings` say what is mapped."""

    def __init__(
        self, source: AsyncDatabase[dict[str, Any]], memory: AsyncDatabase[dict[str, Any]], settings: Settings
    ) -> None:
        self._source, self._settings = source, settings
        self._documents = SessionDocuments(source, settings.sessions)
        self._states = memory[settings.names[SessionState.COLLECTION]]
        self._written = MessageAuthors(source, memory, settings)

    async def look_up(self, asked: Sequence[Asker]) -> dict[Asker, Present]:
        """Return who is present, for each asker; reads all collections concurrently."""
        mapped = self._settings
        seen, agents, users = await asyncio.gather(
            self._sessions(asked),
            self._read(mapped.agents.collection, (asker.agent_id for asker in asked)),
            self._read(
                mapped.users.collection, (asker.user_id for asker in asked if asker.user_id is not None)
            ),
        )
        named = (self._group_id(row) for row in seen.rows.values())
        groups, shared = await asyncio.gather(
            self._read(mapped.groups.collection, (group_id for group_id in named if group_id is not None)),
            self._shared_groups(
                {present for asker in asked if (present := self._without_group(asker, seen))}
            ),
        )
        return {asker: self._present(asker, seen, agents, users, groups, shared) for asker in asked}

    def _without_group(self, asker: Asker, seen: "_Seen") -> frozenset[str] | None:
        """Return the users of a session that names no group, where the asker is one of them."""
        users, _ = self._now(asker, seen)
        named = self._group_id(seen.rows.get(asker.session_id or "", {})) is not None
        known = users is not None and UNNAMED not in users and asker.user_id in users
        return users if known and not named else None

    async def _shared_groups(
        self, together: Set[frozenset[str]]
    ) -> dict[frozenset[str], dict[str, str | None]]:
        """Return the names of the groups that list all users of each set, by their ids; the first of too many."""
        paths = self._settings.groups
        if paths.collection is None or not together:
            return {}
        listed = [{paths.members: {"$all": [decode_id(user) for user in users]}} for users in together]
        rows = await found_documents(
            "directory",
            self._source[paths.collection],
            {"$or": listed},
            {paths.members: 1, paths.name: 1},
            sort=[("_id", 1)],
            limit=MOST_GROUPS * len(together),
        )
        groups = {name: group_of(paths, row) for row in rows if (name := _id(row["_id"])) is not None}
        shared = {
            users: [name for name, group in groups.items() if users <= (group.members or frozenset())]
            for users in together
        }
        return {
            users: {name: groups[name].name for name in names[:MOST_GROUPS]}
            for users, names in shared.items()
        }

    def _group_id(self, session: Row) -> str | None:
        return _id(getter(self._settings.sessions.group_id)(session))

    async def users(self, asked: Sequence[Asker]) -> dict[Asker, frozenset[str] | None]:
        """Return the users of each session at this moment, UNNAMED among them; None: they cannot be known."""
        seen = await self._sessions(asked)
        return {asker: self._now(asker, seen)[0] for asker in asked}

    async def is_alone(self, asked: Asker) -> bool:
        """Tell whether the asker is the session's only user at this moment."""
        users = (await self.users([asked]))[asked]
        return users is not None and set(users) == {asked.user_id}

    async def _sessions(self, asked: Sequence[Asker]) -> "_Seen":
        """The sessions' documents, and the authors of those whose document lists no users."""
        names = [
            asker.session_id
            for asker in asked
            if asker.session_id is not None and not whose(asker.session_id)
        ]
        rows = await self._documents.by_id(names)
        unlisted = [name for name in names if self._by_authors(name, rows)]
        lists = {name: self._users(row) for name, row in rows.items()}
        listed = {name: _ids(users) for name, users in lists.items() if users is not None}
        return _Seen(rows, listed, await self._authors(unlisted))

    def _by_authors(self, session_id: str, rows: Rows) -> bool:
        """Whether a session's users are its authors: it is not mapped, or its document lists none."""
        if self._settings.sessions.collection is None:
            return True
        return session_id in rows and self._users(rows[session_id]) is None

    async def _read(self, collection: str | None, typed_ids: Iterable[str]) -> Rows:
        return {} if collection is None else await documents_by_id(self._source[collection], typed_ids)

    async def _authors(self, sessions: Iterable[str]) -> dict[str, frozenset[str] | None]:
        """Return the authors by session, UNNAMED and those of messages deleted or changed since among them."""
        wanted = list(dict.fromkeys(sessions))
        if not wanted:
            return {}
        rows = self._states.find({"_id": {"$in": wanted}}, {"users": 1})
        written, stored = await asyncio.gather(self._written.of(wanted), rows.to_list())
        remembered = {row["_id"]: frozenset(row.get("users", ())) for row in stored}
        return {
            name: None if now is None else _with_unnamed(now) | remembered.get(name, frozenset())
            for name, now in written.items()
        }

    def _users(self, session: Row) -> list[Any] | None:
        return listed_users(self._settings.sessions, session)

    def _present(
        self,
        asked: Asker,
        seen: "_Seen",
        agents: Rows,
        users: Rows,
        groups: Rows,
        shared: Mapping[frozenset[str], Mapping[str, str | None]],
    ) -> Present:
        session = seen.rows.get(asked.session_id or "", {})
        agent, user = agents.get(asked.agent_id, {}), users.get(asked.user_id or "", {})
        paths, switches = self._settings.agents, self._settings.sessions
        opted_out = isinstance(user, Unreadable) or getter(self._settings.users.memory)(user) is False
        on = not isinstance(agent, Unreadable)
        quiet = is_switched_off(switches, session)
        now, by_authors = self._now(asked, seen)
        group_id = self._group_id(session)
        group = group_of(self._settings.groups, groups.get(group_id or ""))
        return Present(
            users=None if now is None else now - {UNNAMED},
            group_id=group_id,
            user_memory=on and not opted_out and getter(paths.user_memory_enabled)(agent) is not False,
            agent_memory=on and getter(paths.agent_memory_enabled)(agent) is not False,
            learns=on and getter(paths.agent_memory_enabled)(agent) is True,
            off=quiet or isinstance(session, Unreadable),
            by_authors=by_authors,
            unnamed=now is not None and UNNAMED in now,
            group_name=group.name,
            group_members=group.members,
            shared_groups=shared.get(self._without_group(asked, seen) or frozenset(), {}),
            title=text_of(getter(switches.title)(session)),
            shows=frozenset(
                remembered(self._settings, {} if isinstance(agent, Unreadable) else agent, ("on",))
            ),
        )

    def _now(self, asked: Asker, seen: "_Seen") -> tuple[frozenset[str] | None, bool]:
        """Its users (None: they cannot be known, or the mapped document is missing), and whether by its authors."""
        asks = frozenset((asked.user_id,) if asked.user_id is not None else ())
        if asked.session_id is None:
            return asks, False
        if (own := whose(asked.session_id)) is not None:
            return frozenset((own.user_id,) if own.user_id is not None else ()), False
        if self._by_authors(asked.session_id, seen.rows):
            authors = seen.authors[asked.session_id]
            return (authors if authors is None or asks <= authors else asks | authors), True
        return seen.listed.get(asked.session_id), False


class _Seen(NamedTuple):
    """Stored data of some sessions."""

    rows: Rows
    listed: Mapping[str, frozenset[str] | None]
    """The users that documents list: one set for all who are asked about in a session."""
    authors: Mapping[str, frozenset[str] | None]


def _with_unnamed(authors: Iterable[str | None]) -> frozenset[str]:
    return frozenset(UNNAMED if author is None else author for author in authors)


def _ids(values: list[Any]) -> frozenset[str] | None:
    """Typed ids; None where one of them is none, as we then do not know who else is there."""
    try:
        return frozenset(map(encode_id, values))
    except TypeError:
        return None


def _id(value: Any) -> str | None:
    try:
        return None if value is None else encode_id(value)
    except TypeError:
        return None
