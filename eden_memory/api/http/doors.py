"""Admit HTTP requests: identify the caller, and check that it may reach the memory that it names."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Path, Request, Response
from fastapi.routing import APIRoute

from eden_memory.access.admission import RequestAdmission, TooMany
from eden_memory.access.callers import Caller, Refused, Right, demand_operator
from eden_memory.access.visible import Asker
from eden_memory.api.http.http_requests import Where
from eden_memory.api.reach import SessionReach
from eden_memory.api.service import Memory, MemoryService
from eden_memory.errors import Invalid
from eden_memory.metrics import HTTP_STREAMS
from eden_memory.mongo.application_ids import id_of, typed, typed_or_none
from eden_memory.schemas.events.forgetting import Forgettable
from eden_memory.unpoison.attack_rules import CauseKind

AGENT_WORDS = "The agent's id: plain text, or typed (`s.TEXT`, `i.5`, `u.UUID`, `o.OBJECTID`)."
AgentId = Annotated[str, Path(min_length=1, max_length=1_024, description=AGENT_WORDS, examples=["default"])]
REPEATABLE = frozenset(("scope",))


@dataclass(frozen=True, slots=True)
class Inside:
    """An admitted request; ids as the application has them."""

    caller: Caller
    service: MemoryService
    agent: Any
    session: Any
    user: Any

    @property
    def where(self) -> dict[str, Any]:
        """Return session and user as arguments of the service's calls."""
        return {"session": self.session, "user": self.user}

    @property
    def asked(self) -> Asker:
        """Return the asker; ids typed."""
        session, user = typed_or_none(self.session, "session"), typed_or_none(self.user, "user")
        return Asker(self.service.agent_id, session, user)


class Doors:
    """State that all requests of one app share."""

    def __init__(self, memory: Memory, admission: RequestAdmission, *, operator: bool = False) -> None:
        self.memory, self.admission = memory, admission
        self.operator = operator
        """Whether operators' pages are served, which read Kafka."""
        self.settings = memory.settings.serve
        self.reach = SessionReach(memory)
        self.stopping = asyncio.Event()
        """Set when the process drains: event streams end."""
        self._streams: Counter[str] = Counter()

    async def admit(self, request: Request) -> Caller:
        """Return the caller; Turned if it is not admitted."""
        return await self.admission.admit(request.scope["headers"])

    async def enter(
        self,
        request: Request,
        right: Right,
        agent: str,
        where: Where,
        door: str = "http",
        *,
        new: bool = False,
    ) -> Inside:
        """Return the admitted request; Refused unless the caller may do this with this agent, session and user.

        What it asks for is recorded as asked by `door` and the caller's name. `new`: as SessionReach.
        """
        caller: Caller = request.state.caller
        inside = Inside(
            caller,
            self.memory.agent(
                agent_id := id_of(agent, "agent"),
                asked_by=f"{door}:{caller.name}"[:256],
                changes_shared=caller.changes_shared,
            ),
            agent_id,
            None if where.session is None else id_of(where.session, "session"),
            None if where.user is None else id_of(where.user, "user"),
        )
        await self.still_within(inside, right, new=new)
        return inside

    async def still_within(
        self, inside: Inside, right: Right, session: Any = None, *, new: bool = False
    ) -> None:
        """Check the caller's right again, or (`session`) for another session."""
        asked = inside.session if session is None else session
        await self.reach.demand(
            inside.caller,
            right,
            typed(inside.agent, "agent"),
            None if asked is None else typed(asked, "session"),
            None if inside.user is None else typed(inside.user, "user"),
            new=new,
        )

    @asynccontextmanager
    async def streaming(self, caller: Caller) -> AsyncGenerator[None]:
        """Count a caller's event streams; TooMany beyond the limit."""
        if self._streams[caller.name] >= self.settings.subscriptions:
            raise TooMany(self.settings.heartbeat_seconds)
        self._streams[caller.name] += 1
        HTTP_STREAMS.inc()
        try:
            yield
        finally:
            HTTP_STREAMS.dec()
            self._streams[caller.name] -= 1
            if not self._streams[caller.name]:
                del self._streams[caller.name]


class AdmittedRoute(APIRoute):
    """A route that identifies the caller before it reads a body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a handler that admits the caller before FastAPI's own."""
        handle = super().get_route_handler()

        async def admitted(request: Request) -> Response:
            request.state.caller = await doors_of(request).admit(request)
            self.demand(request)
            return await handle(request)

        return admitted

    def demand(self, request: Request) -> None:
        """Raise an EdenError for a request that is turned away without reading its body."""
        _demand_single(request)


def doors_of(request: Request) -> Doors:
    """Return the app's doors."""
    doors: Doors = request.app.state.doors
    return doors


def demand_everywhere(caller: Caller, user: str) -> None:
    """Raise Refused unless the caller administers all agents, and this user."""
    if not caller.may("admin") or caller.agents is not None:
        raise Refused(
            "this request concerns all agents", "Use a key with the right `admin` that is bound to no agent."
        )
    if caller.users is not None and user not in caller.users:
        raise Refused("this key is not for this user", "Name a user that it is bound to.")


async def undo_target(doors: Doors, inside: Inside, cause: CauseKind, target: str) -> Any:
    """Return what caused an attack as the service takes it; Refused if it may belong to somebody else."""
    if cause in ("message", "session"):
        return await forget_target(doors, inside, cause, target)
    demand_operator(inside.caller, f"an undo of a whole {cause}")
    return id_of(target, cause) if cause == "user" else target


async def forget_target(doors: Doors, inside: Inside, what: Forgettable, target: str) -> Any:
    """Return what is to be forgotten as the service takes it; Refused if it may belong to somebody else."""
    if what == "user":
        raise Invalid("a user belongs to all agents", "DELETE /v1/users/{user} forgets one.")
    bound = inside.caller.is_bound
    if what in ("fact", "reflection", "blob"):
        if bound and inside.session is None and inside.user is None:
            raise Refused(
                "this key is bound, and the request names no session or user",
                "Name the session or user whose memory it is.",
            )
        return target
    found = id_of(target, what)
    if what == "session":
        await doors.still_within(inside, "write", session=found)
    elif bound and inside.session is None:
        raise Refused(
            "this key is bound, and the request names no session", "Name the session that the message is in."
        )
    return found


def _demand_single(request: Request) -> None:
    """Raise Invalid for a repeated parameter: the check could read one value and the query the other."""
    names = [name for name, _ in request.query_params.multi_items() if name not in REPEATABLE]
    if len(names) != len(set(names)):
        raise Invalid("a parameter is given twice", "Name each once.")
