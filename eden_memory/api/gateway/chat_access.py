"""Find the agent, session and user of a chat: those that the request names and the key allows."""

import asyncio
from dataclasses import dataclass
from typing import Any

from eden_memory.access.admission_store import LOCAL, Caller, only_id
from eden_memory.api.gateway.chat_request import MemoryOptions
from eden_memory.directory.id_reader_store import DEFAULT, IdKind, IdReader
from eden_memory.directory.participants import BEGINS, is_reserved
from eden_memory.errors import EdenError, NotAnId
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import GATEWAY_DEGRADED, GATEWAY_TURNS
from eden_memory.mongo.ids import TYPED, encode_id, raw, typed, typed_or_none
from eden_memory.operations.reach import SessionReach
from eden_memory.schemas.scopes import ScopeKind
from eden_memory.settings import GatewaySettings

log = LibraryLogger()
ISOLATED: tuple[ScopeKind, ...] = ("user", "session")
"""The memory of an isolated chat: the agent's, groups' and shards' may hold what other chats said."""
GLOBAL = "global"
"""The `memory_id` whose memory all isolated chats read."""


@dataclass(frozen=True, slots=True)
class ChatAccess:
    """The agent, session and user of a chat, as the application has their ids; None: not named."""

    agent: Any
    session: Any = None
    user: Any = None
    shows: bool = True
    """Memory may be shown in the chat."""
    keeps: bool = True
    """Its turns become messages."""
    scopes: tuple[ScopeKind, ...] | None = None
    """Only memory in scopes of these kinds is read; None: all that is visible."""
    reads_global: bool = False
    """The memory of the `memory_id` `global` is read, too."""

    @property
    def of_global(self) -> "ChatAccess":
        """The access that reads the memory of `global`, from outside of its session."""
        return ChatAccess(self.agent, None, isolated_user(GLOBAL), scopes=("user",))


class ChatAccessRules:
    """Decides the access of chats; `reach` also reads the messages, since a new session has nothing else."""

    def __init__(self, settings: GatewaySettings, reach: SessionReach, ids: IdReader) -> None:
        self._settings, self._reach, self._ids = settings, reach, ids

    async def of(self, caller: Caller, asked: MemoryOptions) -> ChatAccess | None:
        """Return the chat's access; None for a chat without memory, which also one has whose session cannot be read.

        Raises Refused, NotAnId.
        """
        try:
            async with asyncio.timeout(self._settings.memory_seconds):
                session, user = await self._session(asked, caller), await self._user(caller, asked)
                if session is None and user is None:
                    return None
                if session == GLOBAL and user is not None:
                    raise NotAnId(
                        f"the memory_id `{GLOBAL}` is nobody's: every isolated chat reads it", "Name no user."
                    )
                isolated = user is None and caller.users is None and await self._is_nobodys(session)
                if isolated:
                    user = isolated_user(session)
                agent = await self._agent(caller)
                await self._demand(caller, agent, session, user)
        except EdenError:
            raise
        except Exception as error:  # noqa: BLE001 - no chat fails for its memory
            GATEWAY_DEGRADED.labels("session", "failed").inc()
            if self._settings.store and asked.memory_id is not None:
                GATEWAY_TURNS.labels("lost").inc()
            log.warning("a chat goes on without memory", part="session", reason=type(error).__name__)
            return None
        keeps = self._settings.store and session is not None and caller.may("write")
        return ChatAccess(
            agent,
            session,
            user,
            shows=caller.may("read"),
            keeps=keeps,
            scopes=ISOLATED if isolated else None,
            reads_global=isolated and session != GLOBAL,
        )

    async def _is_nobodys(self, session: Any) -> bool:
        """Tell whether nobody is known to be in the session, but for the user in whose name it is remembered."""
        known = await self._reach.known(typed(session, "session"))
        return known is None or (known.users or frozenset()) <= {encode_id(isolated_user(session))}

    async def _session(self, asked: MemoryOptions, caller: Caller) -> Any:
        """Return the session; of a request that names neither it nor a user, the one that the settings name."""
        named = asked.memory_id
        if named is None and asked.user is None and caller.users is None:
            named = self._settings.default_id
        session = await self._read("session", named)
        if session is not None and is_reserved(typed(session, "session")):
            raise NotAnId(f"no session's id may begin with {BEGINS}", "Give the id of a chat of yours.")
        return session

    async def _agent(self, caller: Caller) -> Any:
        only = only_id(caller.agents)
        return await self._ids.read("agent", DEFAULT) if only is None else raw(only, "agent")

    async def _user(self, caller: Caller, asked: MemoryOptions) -> Any:
        if asked.user is not None:
            return await self._read("user", asked.user)
        if caller is LOCAL:
            return await self._read("user", self._settings.single_user)
        only = only_id(caller.users)
        return None if only is None or asked.memory_id is None else raw(only, "user")

    async def _read(self, kind: IdKind, given: str | int | None) -> Any:
        """Return the id as the application has it: text by its field's type, also text that looks typed; a number."""
        if isinstance(given, str):
            return await self._ids.read(kind, f"s.{given}" if TYPED.match(given) else given)
        if given is not None:
            typed(given, kind)
        return given

    async def _demand(self, caller: Caller, agent: Any, session: Any, user: Any) -> None:
        right = "read" if caller.may("read") else "write"
        session_id = typed_or_none(session, "session")
        user_id = typed_or_none(user, "user")
        await self._reach.demand(caller, right, typed(agent, "agent"), session_id, user_id, new=True)


def isolated_user(session: Any) -> str:
    """Return the user in whose name a session without one is remembered; no two sessions share one."""
    return f"memory_id:{typed(session, 'session')}"
