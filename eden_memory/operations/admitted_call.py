"""One admitted call: who asks, and the agent, session and user whose memory it is about."""

from dataclasses import dataclass
from typing import Any

from eden_memory.access.admission_store import Caller, Refused, Right, demand_operator
from eden_memory.access.visible import Asker
from eden_memory.errors import Invalid
from eden_memory.mongo.ids import typed, typed_or_none
from eden_memory.operations.audit_calls import AuditCalls
from eden_memory.operations.operator_calls import SharingCalls, StreamCalls, UndoCalls
from eden_memory.operations.reach import SessionReach
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.unpoison.attack_rules import CauseKind


class AgentCalls(StreamCalls, SharingCalls, UndoCalls, AuditCalls):
    """All calls on the memory of one agent."""


@dataclass(frozen=True, slots=True)
class AdmittedCall:
    """A call that a door has admitted; `session` and `user` as the application has their ids."""

    caller: Caller
    service: AgentCalls
    reach: SessionReach
    session: Any = None
    user: Any = None

    @property
    def named(self) -> dict[str, Any]:
        """Return session and user as arguments of the service's calls."""
        return {"session": self.session, "user": self.user}

    @property
    def asked(self) -> Asker:
        """Return the asker; ids typed."""
        session, user = typed_or_none(self.session, "session"), typed_or_none(self.user, "user")
        return Asker(self.service.agent_id, session, user)

    async def demand(self, right: Right, session: Any = None, *, new: bool = False) -> None:
        """Raise Refused unless the caller may do this here, or (`session`) in another session.

        `new`: as :class:`SessionReach`.
        """
        named = self.session if session is None else session
        asked = None if named is None else typed(named, "session")
        user = typed_or_none(self.user, "user")
        await self.reach.demand(self.caller, right, self.service.agent_id, asked, user, new=new)

    async def demand_offered(self) -> None:
        """Raise Refused if the agent's model is not to search."""
        if not await self.service.offers_search_tool():
            raise Refused("the search tool of this agent is off", "Its stream says so: `search_tool`.")

    async def forget_target(self, what: Forgettable, target: str) -> Any:
        """Return what is to be forgotten as the service takes it; Refused if it may belong to somebody else."""
        if what == "user":
            raise Invalid("a user belongs to all agents", "DELETE /v1/users/{user} forgets one.")
        if self.caller.is_bound and self.session is None and self.user is None:
            raise Refused(
                "this key is bound, and the request names no session or user",
                "Name the session or user whose memory it is.",
            )
        if what in ("fact", "reflection", "blob"):
            return target
        found = await self.service.memory.ids.read(what, target, certain=True)
        if what == "session":
            await self.demand("write", found)
        elif self.caller.is_bound and self.session is None:
            raise Refused(
                "this key is bound, and the request names no session",
                "Name the session that the message is in.",
            )
        return found

    async def undo_target(self, cause: CauseKind, target: str) -> Any:
        """Return what caused an attack as the service takes it; Refused if it may belong to somebody else."""
        if cause in ("message", "session"):
            return await self.forget_target(cause, target)
        demand_operator(self.caller, f"an undo of a whole {cause}")
        return await self.service.memory.ids.read(cause, target, certain=True) if cause == "user" else target
