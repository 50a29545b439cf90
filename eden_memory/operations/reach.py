"""Checks which sessions a caller may reach: those of its agents with all users among its own."""

from dataclasses import dataclass
from typing import Any

from eden_memory.access.admission_store import Caller, Refused, Right
from eden_memory.app.memory import ProcessMemory
from eden_memory.directory.author_store import MessageAuthors
from eden_memory.directory.participants import DEFAULT_AGENT, whose
from eden_memory.directory.session_document_store import SessionDocuments, listed_users
from eden_memory.mongo.document_fields import getter
from eden_memory.mongo.ids import encode_id
from eden_memory.schemas.documents import SessionState


@dataclass(frozen=True, slots=True)
class KnownSession:
    """A session; None: unknown, nobody, or not usable."""

    agent_id: str | None
    users: frozenset[str] | None
    listed: bool = True
    """Whether the application lists its users; else they are the authors that were seen."""


class SessionReach:
    """Checks a caller against the application's documents and the live namespace."""

    def __init__(self, memory: ProcessMemory) -> None:
        settings = memory.settings
        self._memory, self._mapped = memory, settings.sessions
        self._documents = SessionDocuments(memory.source, settings.sessions)
        self._written = MessageAuthors(memory.source, memory.database, settings)

    async def demand(
        self,
        caller: Caller,
        right: Right,
        agent_id: str,
        session_id: str | None,
        user_id: str | None,
        *,
        new: bool = False,
    ) -> None:
        """Raise Refused unless the caller may do this with agent, user and session (ids typed).

        `new`: the session may be one that the application does not have yet, which the caller is about to make.
        """
        caller.demand(right, agent_id, user_id)
        if session_id is None or (caller.agents is None and caller.users is None):
            return
        known = await self.known(session_id)
        if known is None:
            if not new:
                raise _refused()
        elif not _within(caller, agent_id, known):
            raise _refused()
        if caller.users is not None and (known is None or not known.listed):
            await self._demand_no_other_author(session_id, caller.users)

    async def is_open_to(self, agent_id: str, session_id: str, user_id: str | None) -> bool:
        """Return whether the session is new, or this agent's and lists the user, if it lists users; None: anybody.

        Where sessions are not mapped, nothing says whose a session is.
        """
        known = await self.known(session_id)
        if known is None:
            return True
        if known.listed and user_id is not None and user_id not in (known.users or ()):
            return False
        return known.agent_id == agent_id or not (known.listed or self._mapped.collection)

    async def known(self, session_id: str) -> KnownSession | None:
        """Return what is known of a session; None if it does not exist (where sessions are mapped).

        Where sessions are not mapped, a session comes to be by its first message: there it is never None.
        """
        if (own := whose(session_id)) is not None:
            return KnownSession(own.agent_id, None if own.user_id is None else frozenset((own.user_id,)))
        if self._mapped.collection is None:
            return KnownSession(DEFAULT_AGENT, await self._authors(session_id), listed=False)
        row = await self._documents.one(session_id)
        if row is None:
            return None
        listed, agent = listed_users(self._mapped, row), getter(self._mapped.agent_id)(row)
        agent_id = DEFAULT_AGENT if agent is None else _id(agent)
        if listed is None:
            return KnownSession(agent_id, await self._authors(session_id), listed=False)
        return KnownSession(agent_id, _ids(listed))

    async def _authors(self, session_id: str) -> frozenset[str] | None:
        """Return the authors that formation-trigger has seen: empty for a new session, None if it knows none."""
        names = (await self._memory.current()).settings.names
        states = self._memory.database[names[SessionState.COLLECTION]]
        row = await states.find_one({"_id": session_id}, {"users": 1})
        return frozenset[str]() if row is None else frozenset(row.get("users", ())) or None

    async def _demand_no_other_author(self, session_id: str, users: frozenset[str]) -> None:
        """Raise Refused if the newest messages, which no state holds yet, have another author."""
        authors = (await self._written.of([session_id]))[session_id]
        if authors is None:
            raise Refused(
                "the owner of this session cannot be determined", "The log says why; so does `eden doctor`."
            )
        if not authors - {None} <= users:
            raise _refused()


def _within(caller: Caller, agent_id: str, session: KnownSession) -> bool:
    if caller.agents is not None and (session.agent_id != agent_id or agent_id not in caller.agents):
        return False
    return caller.users is None or (session.users is not None and session.users <= caller.users)


def _refused() -> Refused:
    return Refused("this key does not reach this session", "Its agent and all its users must be the key's.")


def _ids(values: list[Any]) -> frozenset[str] | None:
    found = [_id(value) for value in values]
    return None if None in found else frozenset(user_id for user_id in found if user_id is not None) or None


def _id(value: Any) -> str | None:
    try:
        return encode_id(value)
    except TypeError:
        return None
