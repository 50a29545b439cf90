"""The agent, user and session of an MCP connection, from its key and its host's configuration."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcp.server.context import ServerRequestContext

from eden_memory.access.admission_store import Caller, Right, only_id
from eden_memory.api.service import Memory
from eden_memory.directory.id_reader_store import DEFAULT, IdKind, IdReader
from eden_memory.errors import Invalid
from eden_memory.mongo.ids import decode_id, typed
from eden_memory.operations.admitted_call import AdmittedCall
from eden_memory.operations.empty_because import OneAtATime
from eden_memory.operations.reach import SessionReach

HEADERS: Mapping[IdKind, str] = {"agent": "x-eden-agent", "user": "x-eden-user", "session": "x-eden-session"}


@dataclass(frozen=True, slots=True)
class Connection:
    """The caller, and the agent, user and session that the host has fixed; ids typed (schemas.ids)."""

    caller: Caller
    agent: str
    user: str | None = None
    session: str | None = None

    @classmethod
    async def of(cls, caller: Caller, fixed: Mapping[IdKind, str], ids: IdReader) -> "Connection":
        """`fixed`: what the host says by name (agent, user, session); what is missing the key decides, where it
        is bound to one only."""
        named = {name: await ids.typed(name, text) for name, text in fixed.items()}
        return cls(
            caller,
            named.get("agent") or only_id(caller.agents) or await ids.typed("agent", DEFAULT),
            named.get("user") or only_id(caller.users),
            named.get("session"),
        )

    async def about(self, session: str | None, user: str | None, ids: IdReader) -> tuple[Any, Any]:
        """Session and user of one call, as the application has them: the fixed ones, or else those given.

        Invalid where a call names another than the host has fixed: nothing that a model reads moves it.
        """
        return (
            await _settled("session", self.session, session, ids),
            await _settled("user", self.user, user, ids),
        )


ConnectionOf = Callable[[ServerRequestContext[Any, Any]], Awaitable[Connection]]
"""Whose request this is; an EdenError where nobody is let in."""


class Door:
    """Opens the memory that a connection may reach: its agent's, for the sessions and users of its key."""

    def __init__(self, memory: Memory, who: ConnectionOf) -> None:
        self._memory, self._who = memory, who
        self._reach, self.reasons = SessionReach(memory), OneAtATime()

    async def open(
        self,
        request: ServerRequestContext[Any, Any],
        right: Right,
        session: str | None,
        user: str | None,
        *,
        new: bool = False,
    ) -> AdmittedCall:
        """The agent's memory for one call ("" names nothing). Refused for what the key does not reach; `new`: as
        SessionReach."""
        connection = await self._who(request)
        about_session, about_user = await connection.about(session or None, user or None, self._memory.ids)
        caller = connection.caller
        service = self._memory.agent(
            decode_id(connection.agent),
            asked_by=f"mcp:{caller.name}"[:256],
            changes_shared=caller.changes_shared,
        )
        call = AdmittedCall(caller, service, self._reach, about_session, about_user)
        await call.demand(right, new=new)
        return call

    async def offers_search_tool(self, request: ServerRequestContext[Any, Any]) -> bool:
        """Tell whether the connection's agent is offered the search tool."""
        connection = await self._who(request)
        return await self._memory.agent(decode_id(connection.agent)).offers_search_tool()

    async def caller(self, request: ServerRequestContext[Any, Any]) -> Caller:
        """Return who asks; an EdenError once they are not let in any more."""
        return (await self._who(request)).caller


async def _settled(name: IdKind, fixed: str | None, given: str | None, ids: IdReader) -> Any:
    if given is None:
        return None if fixed is None else decode_id(fixed)
    found = await ids.read(name, given)
    if fixed is not None and typed(found, name) != fixed:
        raise Invalid(f"the {name} of this connection is fixed", f"Leave {name} out.")
    return found
