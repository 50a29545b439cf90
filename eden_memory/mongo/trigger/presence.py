"""Who is in a session now, and what is switched off: as the application's documents say, else the authors seen."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.domain.context.visible import Asked, Present
from eden_memory.domain.source.message_fields import getter
from eden_memory.domain.windows.own_sessions import whose
from eden_memory.mongo.ids import decode_id, encode_id
from eden_memory.settings import Settings
from schemas.documents import SessionState

Row = Mapping[str, Any]
Rows = dict[str, Row]


class MongoPresence:
    """`source` is the application's database, `memory` our own; `settings` say what is mapped."""

    def __init__(
        self, source: AsyncDatabase[dict[str, Any]], memory: AsyncDatabase[dict[str, Any]], settings: Settings
    ) -> None:
        self._source, self._settings = source, settings
        self._states = memory[settings.names[SessionState.COLLECTION]]

    async def look_up(self, asked: Sequence[Asked]) -> dict[Asked, Present]:
        """For each who is asked about; all collections are read side by side."""
        mapped, names = self._settings, [one.session_id for one in asked if one.session_id is not None]
        sessions, agents, users, authors = await asyncio.gather(
            self._read(mapped.sessions.collection, names),
            self._read(mapped.agents.collection, (one.agent_id for one in asked)),
            self._read(mapped.users.collection, (one.user_id for one in asked if one.user_id is not None)),
            self._authors(names if mapped.sessions.collection is None else ()),
        )
        unlisted = [one for one, row in sessions.items() if not isinstance(self._users(row), list)]
        authors |= await self._authors(unlisted)
        return {one: self._present(one, sessions, agents, users, authors) for one in asked}

    async def _read(self, collection: str | None, typed_ids: Iterable[str]) -> Rows:
        wanted = list(dict.fromkeys(typed_ids))
        if collection is None or not wanted:
            return {}
        rows = self._source[collection].find({"_id": {"$in": [decode_id(one) for one in wanted]}})
        return {encode_id(row["_id"]): row for row in await rows.to_list()}

    async def _authors(self, sessions: Iterable[str]) -> dict[str, Sequence[str]]:
        """Whose messages formation-trigger has seen, by session."""
        wanted = list(dict.fromkeys(sessions))
        if not wanted:
            return {}
        rows = self._states.find({"_id": {"$in": wanted}}, {"users": 1})
        return {row["_id"]: row.get("users", ()) for row in await rows.to_list()}

    def _users(self, session: Row) -> Any:
        return getter(self._settings.sessions.users)(session)

    def _present(
        self, asked: Asked, sessions: Rows, agents: Rows, users: Rows, authors: Mapping[str, Sequence[str]]
    ) -> Present:
        session = sessions.get(asked.session_id or "", {})
        agent, user = agents.get(asked.agent_id, {}), users.get(asked.user_id or "", {})
        paths, switches = self._settings.agents, self._settings.sessions
        opted_out = getter(self._settings.users.memory)(user) is False
        return Present(
            users=self._now(asked, sessions, authors),
            group_id=_id(getter(switches.group_id)(session)),
            user_memory=not opted_out and getter(paths.user_memory_enabled)(agent) is not False,
            agent_memory=getter(paths.agent_memory_enabled)(agent) is not False,
            off=getter(switches.memory)(session) is False or getter(switches.incognito)(session) is True,
        )

    def _now(
        self, asked: Asked, sessions: Rows, authors: Mapping[str, Sequence[str]]
    ) -> frozenset[str] | None:
        """Its users; None where sessions are mapped and this one has no (usable) document."""
        asks = frozenset((asked.user_id,) if asked.user_id is not None else ())
        if asked.session_id is None:
            return asks
        if (own := whose(asked.session_id)) is not None:
            return frozenset((own.user_id,) if own.user_id is not None else ())
        if self._settings.sessions.collection is not None:
            session = sessions.get(asked.session_id)
            listed = None if session is None else self._users(session)
            if session is None or isinstance(listed, list):
                return _ids(cast("list[Any] | None", listed))
        return asks | frozenset(authors.get(asked.session_id, ()))


def _ids(values: list[Any] | None) -> frozenset[str] | None:
    """Typed ids; None where one of them is none, as we then do not know who else is there."""
    if values is None:
        return None
    try:
        return frozenset(map(encode_id, values))
    except TypeError:
        return None


def _id(value: Any) -> str | None:
    try:
        return None if value is None else encode_id(value)
    except TypeError:
        return None
