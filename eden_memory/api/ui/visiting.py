"""An admitted request for pages about an agent, and links that stay with its agent, session and user."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from eden_memory.access.admission_store import Caller, Refused, Right, only_id
from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.api.http.doors import Doors, Where, doors_of
from eden_memory.api.ui.pages import plain_id, render
from eden_memory.app.readers import Readers
from eden_memory.directory.directory_store import Labelled, Labels
from eden_memory.operations.admitted_call import AdmittedCall, AgentCalls
from eden_memory.operations.memory_changes import position_of
from eden_memory.operations.parameters import IdText
from eden_memory.schemas.scopes import Scope

DOOR = "ui"
"""Requests are recorded as asked by `ui:` and the key's name."""


class ViewPlace(Where):
    """Whose memory a page shows: of an agent, as a user sees it in a session, or outside of any."""

    agent: IdText
    asked: Annotated[str | None, Field(max_length=1_100)] = None
    """The request that a form has just led to."""


class KnownNames:
    """The application's names of agents, users, sessions and groups, as far as a page has looked them up."""

    def __init__(self, doors: Doors, readers: Readers) -> None:
        self.labels = Labels(doors.memory.source, readers.settings)
        self._found: dict[tuple[str, str], str] = {}

    async def learn(self, kind: Labelled, ids: Iterable[str | None]) -> None:
        """Look up the names of these, where the application's collection of them is mapped; ids typed."""
        wanted = {typed for typed in ids if typed is not None and (kind, typed) not in self._found}
        found = await self.labels.of(kind, wanted)
        self._found |= {(kind, typed): name for typed, name in found.items()}

    async def learn_of(self, scopes: Iterable[Scope]) -> None:
        """Look up the names of those whose scopes these are."""
        scopes = tuple(scopes)
        await asyncio.gather(
            self.learn("agent", (scope.agent_id for scope in scopes)),
            self.learn("group", (scope.group_id for scope in scopes)),
            self.learn("user", (scope.user_id for scope in scopes)),
            self.learn("session", (scope.session_id for scope in scopes)),
        )

    def of(self, kind: str, typed: str | None) -> str:
        """Return a name; the id as the application writes it, if none is known."""
        return self._found.get((kind, typed or "")) or plain_id(typed)

    def of_scope(self, scope: Scope) -> str:
        """Return the name of a scope's user, session, group, shard or agent."""
        typed = scope.user_id or scope.session_id or scope.group_id or scope.agent_id
        return scope.shard or self.of(scope.kind, typed)


@dataclass(frozen=True, slots=True)
class Visit:
    """An admitted request; ids typed."""

    request: Request
    call: AdmittedCall
    agent: str
    session: str | None
    user: str | None
    view: VisibleMemory
    """The memory that may be seen here, as it was stored when the request came."""
    readers: Readers
    names: KnownNames
    asked: str | None = None

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return self.call.caller

    @property
    def service(self) -> AgentCalls:
        """The agent's memory."""
        return self.call.service

    @property
    def doors(self) -> Doors:
        """The app's doors."""
        return doors_of(self.request)

    @property
    def where(self) -> dict[str, Any]:
        """Session and user as arguments of the service's calls."""
        return self.call.named

    @property
    def asker(self) -> Asker:
        """Agent, session and user."""
        return Asker(self.agent, self.session, self.user)

    @property
    def events(self) -> str:
        """The address of the events that say that memory has changed since this page was made."""
        return self.link("events", after=position_of(self.view))

    def may_change(self, scope: Scope) -> bool:
        """Return whether to offer changes of a scope; what is asked for is checked again, and more closely."""
        own = scope.kind in ("user", "session") or self.caller.changes_shared is not False
        return self.caller.may("write") and own

    @property
    def may_forget_users(self) -> bool:
        """Return whether to offer that a user is forgotten, with all agents."""
        return self.caller.may("admin") and self.caller.agents is None

    def link(self, page: str, **query: Any) -> str:
        """Return a page's address; session and user stay as they are unless the query names them."""
        stay = {"agent": self.agent, "session": self.session, "user": self.user}
        return address(page, **(stay | query))

    def scope_link(self, scope: Scope, page: str = "scope", **query: Any) -> str:
        """Return the address of a scope's page, where its memory can be seen."""
        if scope.kind == "user":
            query |= {"user": scope.user_id, "session": None}
        elif scope.kind == "session":
            query |= {"session": scope.session_id}
        return self.link(page, key=scope.key, **query)

    def render(self, template: str, **values: Any) -> HTMLResponse:
        """Return a page of this visit."""
        return render(self.request, template, visit=self, names=self.names, **values)


def demand_to_read_all(caller: Caller) -> None:
    """Raise Refused for a caller that may not read, or is bound to agents or users."""
    caller.demand_right("read")
    if caller.is_bound:
        raise Refused(
            "this page shows all memory", "This key is for some agents or users: start at its agents."
        )


def address(page: str, **query: Any) -> str:
    """Return the address of a page; a value of None is left out."""
    given = {name: value for name, value in query.items() if value is not None}
    return f"/ui/{page}" + (f"?{urlencode(given)}" if given else "")


async def visit(request: Request, place: ViewPlace, right: Right = "read", *, new: bool = False) -> Visit:
    """Return the admitted request; Refused as :meth:`Doors.enter`. A key's only user need not be named."""
    doors = doors_of(request)
    caller: Caller = request.state.caller
    where = Where(session=place.session, user=place.user or only_id(caller.users))
    call = await doors.enter(request, right, place.agent, where, DOOR, new=new)
    asked, readers = call.asked, await doors.memory.current()
    names = KnownNames(doors, readers)
    view, *_ = await asyncio.gather(
        readers.contexts.view(asked),
        names.learn("agent", [asked.agent_id]),
        names.learn("session", [asked.session_id]),
        names.learn("user", [asked.user_id]),
    )
    return Visit(
        request, call, asked.agent_id, asked.session_id, asked.user_id, view, readers, names, place.asked
    )
