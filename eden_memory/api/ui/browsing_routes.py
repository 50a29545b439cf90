"""`/ui/agents`, `/ui/agent`: who is remembered; `/ui/events` tells an open page that memory has changed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from eden_memory.access.admission_store import Caller, Refused
from eden_memory.access.visible import Asker
from eden_memory.api.http.doors import Doors, Where, doors_of
from eden_memory.api.http.events import EventStream, ServerSentEvent, memory_events, server_sent
from eden_memory.api.ui.inspector_route import AdmittedPage
from eden_memory.api.ui.pages import render
from eden_memory.api.ui.visiting import ViewPlace, Visit, address, demand_to_read_all, visit
from eden_memory.directory.directory_store import Labels
from eden_memory.memory.browsing_store import ListedScope, ScopeLists, ScopeQuery
from eden_memory.memory.memory_views import Page
from eden_memory.mongo.ids import TYPED
from eden_memory.operations.memory_changes import seen_by
from eden_memory.operations.parameters import Cursor, IdText
from eden_memory.schemas.ids import encode, split
from eden_memory.schemas.scopes import Scope

router = APIRouter(prefix="/ui", route_class=AdmittedPage)
LISTED = ("user", "session", "group", "shard")
PAGE = 50


class AgentPlace(ViewPlace):
    """A page of an agent's scopes of one kind."""

    kind: Literal["user", "session", "group", "shard"] = "user"
    find: Annotated[str, Field(max_length=1_024)] = ""
    """How the id begins."""
    cursor: Cursor = None


@router.get("/agents")
async def agents(request: Request) -> Response:
    """Show the agents that the caller may read."""
    doors = doors_of(request)
    caller: Caller = request.state.caller
    caller.demand_right("read")
    readers = await doors.memory.current()
    if caller.agents is None:
        found = await ScopeLists(doors.memory.database, readers.settings.names).agents()
    else:
        found = sorted(caller.agents)
    labels = await Labels(doors.memory.source, readers.settings).of("agent", found)
    rows = [(agent, labels.get(agent, ""), address("agent", agent=agent)) for agent in found]
    return render(request, "agents.html", agents=rows)


@router.get("/agent")
async def agent(request: Request, place: Annotated[AgentPlace, Query()]) -> Response:
    """Show an agent: what it remembers for everybody, and the scopes of one kind that the caller may see."""
    caller: Caller = request.state.caller
    if caller.users is not None and place.user is None and len(caller.users) > 1:
        place = place.model_copy(update={"user": min(caller.users)})
    here = await visit(request, place)
    page = await _page(here, place)
    await here.names.learn_of(item.scope for item in page.items)
    rows = [(item, await _link(here, item.scope)) for item in page.items]
    return here.render(
        "agent.html",
        kinds=LISTED,
        kind=place.kind,
        find=place.find,
        rows=rows,
        cursor=page.cursor,
    )


async def _page(here: Visit, place: AgentPlace) -> Page[ListedScope]:
    """Return the page; as seen by a user, or by a caller that is bound to users, only what is theirs."""
    bound = here.caller.users
    users = bound if place.kind == "user" else frozenset((here.user,)) if here.user is not None else None
    if place.kind in ("group", "shard"):
        users = None
        if bound is not None or here.user is not None or here.session is not None:
            return _of_view(here, place)
    query = ScopeQuery(here.agent, place.kind, _beginning(place), users, place.cursor, PAGE)
    page = await ScopeLists(here.doors.memory.database, here.readers.settings.names).scopes(query)
    if bound is None or place.kind != "session":
        return page
    return Page(tuple([item for item in page.items if await _reaches(here, item.scope)]), page.cursor)


def _beginning(place: AgentPlace) -> str:
    """Return what the visitor searches for as keys hold it: typed, and percent-encoded."""
    find = place.find
    if not find:
        return ""
    if place.kind == "shard":
        return quote(find, safe="")
    if not TYPED.match(find):
        return encode(find)
    return encode(split(find)[1]) if find.startswith("s.") else find


def _of_view(here: Visit, place: AgentPlace) -> Page[ListedScope]:
    """Return the groups or shards that may be seen as the page's user, in its session."""
    shown = [visible for visible in here.view.shown if visible.scope.kind == place.kind]
    return Page(
        tuple(
            ListedScope(
                visible.scope,
                visible.snapshot.active_facts,
                len(visible.snapshot.buffer),
                visible.snapshot.blob_version,
                visible.snapshot.changed_at,
            )
            for visible in shown
        )
    )


async def _reaches(here: Visit, scope: Scope) -> bool:
    try:
        await here.doors.reach.demand(here.caller, "read", here.agent, scope.session_id, here.user)
    except Refused:
        return False
    return True


async def _link(here: Visit, scope: Scope) -> str:
    """Return the address of a scope's page; a group's memory is seen as one of its members sees it."""
    if scope.kind == "user":
        return here.scope_link(scope, "person")
    if scope.kind != "group" or here.user is not None or here.session is not None:
        return here.scope_link(scope)
    asker = await asker_of(scope, here.names.labels)
    return here.scope_link(scope, user=asker.user_id, session=asker.session_id)


async def asker_of(scope: Scope, labels: Labels) -> Asker:
    """Return somebody who sees the scope: its user, its session, or a member or session of its group."""
    if scope.group_id is None:
        return Asker(scope.agent_id, scope.session_id, scope.user_id)
    if (member := await labels.member_of(scope.group_id)) is not None:
        return Asker(scope.agent_id, None, member)
    return Asker(scope.agent_id, await labels.session_of(scope.group_id))


PAUSE_SECONDS = 2.0
"""A page that shows all memory is not refreshed more often."""


class LivePlace(Where):
    """Whose changes; without an agent, those of all memory."""

    agent: IdText | None = None
    after: Annotated[str | None, Field(max_length=65_536)] = None
    """Since when: changes from then on are told first."""


@router.get("/events", response_class=StreamingResponse)
async def events(request: Request, place: Annotated[LivePlace, Query()]) -> StreamingResponse:
    """Stream the event `memory` for what the page shows; it ends when the caller may no longer see it."""
    doors, caller = doors_of(request), request.state.caller
    if place.agent is None:
        demand_to_read_all(caller)
        return EventStream(doors, caller, _everything(doors, request))
    if place.after is not None:
        seen_by(place.after)  # refused here: in the stream it could only end it
    here = await visit(request, ViewPlace(agent=place.agent, session=place.session, user=place.user))
    return EventStream(doors, caller, memory_events(doors, request, here.call, place.after, _changed))


def _changed(change: object) -> ServerSentEvent:
    del change
    return ServerSentEvent("", "memory", "")


async def _everything(doors: Doors, request: Request) -> AsyncGenerator[bytes]:
    async def check_access() -> None:
        await doors.admission.still(request.scope["headers"])

    sent = server_sent(
        _changes(doors), _changed, doors.settings.heartbeat_seconds, doors.stopping, check_access
    )
    async with aclosing(sent):
        async for chunk in sent:
            yield chunk


async def _changes(doors: Doors) -> AsyncGenerator[None]:
    """Yield whenever any memory has changed, at most every two seconds."""
    changed = asyncio.Event()
    contexts = (await doors.memory.current()).contexts
    with contexts.told(lambda _: changed.set()):
        await contexts.ready()
        while True:
            await changed.wait()
            changed.clear()
            yield
            await asyncio.sleep(PAUSE_SECONDS)
