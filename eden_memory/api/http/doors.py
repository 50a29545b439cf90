"""Admit HTTP requests: identify the caller, and check that it may reach the memory that it names."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict

from eden_memory.access.admission_store import Caller, Refused, RequestAdmission, Right, TooMany
from eden_memory.api.service import Memory
from eden_memory.errors import Invalid
from eden_memory.metrics import HTTP_STREAMS
from eden_memory.operations.admitted_call import AdmittedCall
from eden_memory.operations.empty_because import OneAtATime
from eden_memory.operations.parameters import IdText
from eden_memory.operations.reach import SessionReach

AGENT_WORDS = (
    "The agent's id: as in the application, typed (`s.TEXT`, `i.5`, `u.UUID`, `o.OBJECTID`), or `default`."
)
AgentId = Annotated[str, Path(min_length=1, max_length=1_024, description=AGENT_WORDS, examples=["default"])]
REPEATABLE = frozenset(("scopes",))


class Where(BaseModel):
    """The session and user whose memory is used: what the user may see in this session, or outside of any."""

    model_config = ConfigDict(extra="forbid")

    session: IdText | None = None
    user: IdText | None = None


class Doors:
    """State that all requests of one app share."""

    def __init__(self, memory: Memory, admission: RequestAdmission, *, operator: bool = False) -> None:
        self.memory, self.admission = memory, admission
        self.operator = operator
        """Whether operators' pages are served, which read Kafka."""
        self.settings = memory.settings.serve
        self.reach = SessionReach(memory)
        self.reasons = OneAtATime()
        """Why answers are empty, for callers who administer everything."""
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
    ) -> AdmittedCall:
        """Return the admitted request; Refused unless the caller may do this with this agent, session and user.

        What it asks for is recorded as asked by `door` and the caller's name. `new`: as SessionReach.
        """
        caller: Caller = request.state.caller
        ids = self.memory.ids
        call = AdmittedCall(
            caller,
            self.memory.agent(
                await ids.read("agent", agent),
                asked_by=f"{door}:{caller.name}"[:256],
                changes_shared=caller.changes_shared,
            ),
            self.reach,
            None if where.session is None else await ids.read("session", where.session),
            None if where.user is None else await ids.read("user", where.user),
        )
        await call.demand(right, new=new)
        return call

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


def _demand_single(request: Request) -> None:
    """Raise Invalid for a repeated parameter: the check could read one value and the query the other."""
    names = [name for name, _ in request.query_params.multi_items() if name not in REPEATABLE]
    if len(names) != len(set(names)):
        raise Invalid("a parameter is given twice", "Name each once.")
