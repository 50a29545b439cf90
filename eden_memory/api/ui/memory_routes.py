"""Pages about memory: a scope with its lists, a fact with its history, the context, windows, what users shared."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from pymongo.errors import ExecutionTimeout

from eden_memory.access.admission_store import Caller, Right
from eden_memory.access.visible import UNNAMED, WIDE, VisibleMemory, VisibleScope
from eden_memory.api.http.doors import Doors, Where, doors_of
from eden_memory.api.ui.inspector_route import AdmittedPage, form_of
from eden_memory.api.ui.pages import render
from eden_memory.api.ui.visiting import DOOR, KnownNames, ViewPlace, Visit, demand_to_read_all, visit
from eden_memory.app.readers import Readers
from eden_memory.assembly.handlers import window_limits
from eden_memory.context.context_xml import LeftOut, left_out
from eden_memory.errors import Invalid, NotFound
from eden_memory.limits import MOST_LISTED, MOST_QUERY_CHARACTERS
from eden_memory.memory.browsing_store import Browsing, Filters, scopes_of
from eden_memory.memory.memory_views import BlobVersionView, BlobView
from eden_memory.observability.lineage_store import VisibleLineage
from eden_memory.operations.empty_because import empty_because
from eden_memory.operations.parameters import ContextText, Cursor, IdText, MemoryId
from eden_memory.operations.table import BY_NAME
from eden_memory.replay.comparing.report import Run, word_diff
from eden_memory.schemas.documents import Message
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_requests import SearchReport
from eden_memory.settings import MemorySettings
from eden_memory.usage.usage_store import MongoTotals
from eden_memory.windows.window_list_store import (
    NOT_COUNTED,
    ListedWindow,
    WindowLists,
    describe_pending,
    pending_messages,
    sessions_without_documents,
)

router = APIRouter(prefix="/ui", route_class=AdmittedPage)
BUFFER, PAGE = 20, 25
FOUND = 50
STATES = {"active": True, "retired": False, "all": None}
ABSORBED = {"waiting": False, "absorbed": True, "all": None}
State = Literal["active", "retired", "all"]


class ScopePlace(ViewPlace):
    """A scope, and which version of its blob is compared with the one before it."""

    key: Annotated[str, Field(min_length=1, max_length=4_096)]
    version: Annotated[int | None, Field(ge=1, le=2**31)] = None


class FactsPlace(ScopePlace):
    """A page of a scope's facts, or a search in them."""

    state: State = "active"
    since: Annotated[str, Field(max_length=10)] = ""
    until: Annotated[str, Field(max_length=10)] = ""
    q: Annotated[str, Field(max_length=MOST_QUERY_CHARACTERS)] = ""
    cursor: Cursor = None

    @model_validator(mode="after")
    def _dates(self) -> "FactsPlace":
        _ = self.begins, self.ends
        return self

    @property
    def begins(self) -> datetime | None:
        """The beginning of the first day."""
        return _day(self.since)

    @property
    def ends(self) -> datetime | None:
        """The beginning of the day behind the last."""
        return _day(self.until)


class ReflectionsPlace(ScopePlace):
    """A page of a scope's reflections."""

    state: Literal["waiting", "absorbed", "all"] = "all"
    cursor: Cursor = None


@dataclass(frozen=True, slots=True)
class OpenScope:
    """A scope that the visitor may see; the view is narrowed to it."""

    here: Visit
    scope: Scope
    view: VisibleMemory
    readers: Readers

    @property
    def browsing(self) -> Browsing:
        """Lists of what is stored."""
        return Browsing(self.here.doors.memory.database, self.readers.settings.names)

    @property
    def stored(self) -> VisibleScope | None:
        """The stored part of it; None: nothing is stored."""
        return next(iter(self.view.shown), None)

    @property
    def name(self) -> str:
        """The application's name of its user, group or session; the id where it has none."""
        return (self.stored and self.stored.name) or self.here.names.of_scope(self.scope)

    @property
    def person(self) -> str:
        """The address of its user's page."""
        return self.here.scope_link(self.scope, "person")

    @property
    def may_change(self) -> bool:
        """Whether to offer changes."""
        return self.here.may_change(self.scope)

    def link(self, page: str, **query: object) -> str:
        """Return the address of one of the scope's pages."""
        return self.here.link(page, key=self.scope.key, **query)


async def open_scope(here: Visit, key: str) -> OpenScope:
    """Return a visible scope; NotFound for any other."""
    view, readers = here.view, here.readers
    if key not in view.scope_keys:
        raise NotFound(
            "there is no such scope here", "If it is a user's or a session's, name that user or session."
        )
    shown = tuple(visible for visible in view.shown if visible.scope.key == key)
    scope = scopes_of(here.asker, view)[key]
    await here.names.learn_of([scope])
    return OpenScope(here, scope, replace(view, shown=shown, scope_keys=(key,)), readers)


@router.get("/scope")
async def scope(request: Request, place: Annotated[ScopePlace, Query()]) -> Response:
    """Show a scope's blob, the words that a version changed, and the buffer."""
    here = await visit(request, place)
    opened = await open_scope(here, place.key)
    blobs = await opened.browsing.blobs(here.asker, opened.view, Filters())
    blob = next(iter(blobs), None)
    waiting = await opened.browsing.reflections(here.asker, opened.view, Filters(flag=False, limit=BUFFER))
    return here.render(
        "scope.html", opened=opened, blob=blob, changed=_changed(blob, place.version), waiting=waiting
    )


@dataclass(frozen=True, slots=True)
class ChangedVersion:
    """A version of a blob beside the one before it."""

    of: BlobVersionView
    before: int | None
    runs: Sequence[Run]

    def words(self, said: str) -> int:
        """Return how many words are `new` or `gone`."""
        return sum(len(run.text.split()) for run in self.runs if run.said == said)


def _changed(blob: BlobView | None, asked: int | None) -> ChangedVersion | None:
    """Return the words that a version changed (None: the newest); None where there is no blob."""
    if blob is None:
        return None
    versions = blob.versions
    place = next((at for at, of in enumerate(versions) if of.version == (asked or blob.version)), None)
    if place is None:
        raise NotFound("this version of the blob is not kept", "The last 20 are.")
    before = versions[place + 1] if place + 1 < len(versions) else None
    runs = word_diff("" if before is None else before.content, versions[place].content)
    return ChangedVersion(versions[place], before.version if before else None, runs)


@router.get("/reflections")
async def reflections(request: Request, place: Annotated[ReflectionsPlace, Query()]) -> Response:
    """Show a scope's reflections, newest first."""
    here = await visit(request, place)
    opened = await open_scope(here, place.key)
    filters = Filters(flag=ABSORBED[place.state], limit=PAGE, cursor=place.cursor)
    page = await opened.browsing.reflections(here.asker, opened.view, filters)
    return here.render("reflections.html", opened=opened, page=page, place=place, states=tuple(ABSORBED))


@router.get("/facts")
async def facts(request: Request, place: Annotated[FactsPlace, Query()]) -> Response:
    """Show a scope's facts, newest first, or those that a search finds, best first."""
    here = await visit(request, place)
    opened = await open_scope(here, place.key)
    if place.q.strip():
        report = await _search(opened, place)
        found = [fact for fact in report.facts if fact.scope.key == place.key]
        return here.render(
            "facts.html", opened=opened, place=place, states=tuple(STATES), found=found, report=report
        )
    filters = Filters(None, STATES[place.state], place.begins, place.ends, PAGE, place.cursor)
    page = await opened.browsing.facts(here.asker, opened.view, filters, sort="valid_from")
    return here.render("facts.html", opened=opened, place=place, states=tuple(STATES), page=page, found=None)


async def _search(opened: OpenScope, place: FactsPlace) -> SearchReport:
    """Search the scopes of this kind that are visible; retired facts too unless only active ones are wanted."""
    return await opened.here.service.explain_search(
        place.q,
        **opened.here.where,
        scopes=[opened.scope.kind],
        include_retired=place.state != "active",
        top_k=FOUND,
    )


def _day(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC) if text else None
    except ValueError:
        raise Invalid("a date is not valid", "Give it as 2026-01-31.") from None


class MemoryPlace(ViewPlace):
    """A fact or reflection."""

    id: Annotated[str, Field(min_length=1, max_length=4_096)]


class ContextPlace(ViewPlace):
    """A context, and the message to recall for."""

    message: Annotated[str, Field(max_length=20_000)] = ""


@router.get("/fact")
async def fact(request: Request, place: Annotated[MemoryPlace, Query()]) -> Response:
    """Show a fact: its versions and why, the messages that it rests on, and the contexts that show it."""
    here = await visit(request, place)
    history = await here.service.history(place.id, **here.where)
    lineage = lineage_of(here)
    windows = await lineage.windows(history.fact.sources)
    contexts = await lineage.contexts(history.fact, here.asker)
    await here.names.learn_of([history.fact.scope])
    await learn_sources(here, history.fact.sources)
    await here.names.learn("session", (row["session_id"] for row, _ in contexts))
    await here.names.learn("user", (row["user_id"] for row, _ in contexts))
    return here.render("fact.html", history=history, fact=history.fact, windows=windows, contexts=contexts)


@router.get("/reflection")
async def reflection(request: Request, place: Annotated[MemoryPlace, Query()]) -> Response:
    """Show a reflection, its earlier texts, and the messages that it rests on."""
    here = await visit(request, place)
    found = await here.service.reflection(place.id, **here.where)
    windows = await lineage_of(here).windows(found.sources)
    await here.names.learn_of([found.scope])
    await learn_sources(here, found.sources)
    return here.render("reflection.html", reflection=found, windows=windows)


@router.get("/context")
async def context(request: Request, place: Annotated[ContextPlace, Query()]) -> Response:
    """Show the context as the agent reads it, for the session and user of this page."""
    here = await visit(request, place)
    xml = await here.service.get_memory_context(here.call.session, here.call.user, place.message or None)
    because = await empty_because(here.call, BY_NAME["context"], ContextText(context=xml))
    memory = here.readers.settings.memory
    missing = left_out(here.view.shown, datetime.now(UTC), memory, here.view.shows, here.view.private)
    missing += [*_hidden_scopes(here), *_not_recalled(xml, place.message, memory)]
    return here.render("context.html", xml=xml, message=place.message, because=because, missing=missing)


def _hidden_scopes(here: Visit) -> Iterator[LeftOut]:
    """Yield which memory is not shown; what others in the session have to do with it is for operators alone."""
    view, kinds = here.view, {key.partition(":")[0] for key in here.view.scope_keys}
    if here.user is None:
        yield LeftOut("every user's own memory", "no user is named")
    elif "user" not in kinds:
        yield LeftOut("the user's own memory", _why_hidden(here))
    if here.session is None:
        yield LeftOut("memory of a session", "no session is named")
    if "agent" not in kinds:
        yield LeftOut(
            "what the agent knows for everybody", "`agent_memory_enabled` or a stream switches it off"
        )
    if here.caller.is_operator and any(key.partition(":")[0] in WIDE for key in view.private):
        yield LeftOut(
            "what users said, in memory that others see",
            "sharing is private: it stays with them; `eden sharing list --hidden` lists it",
        )


def _why_hidden(here: Visit) -> str:
    users = here.view.users
    if not here.view.present:
        return "the user is not in this session"
    if here.caller.is_operator and here.session is not None:
        if users is None:
            return "it is not known who is in the session"
        if UNNAMED in users:
            return "somebody wrote in the session whom no message names"
        if len(users) > 1:
            return f"the session has {len(users)} users, and nobody's own memory is shown to others"
    return "who is in the session, or a switch of the user, session, agent or stream, rules it out"


def _not_recalled(xml: str, message: str, memory: MemorySettings) -> Iterator[LeftOut]:
    if memory.recalls_by is None:
        yield LeftOut("facts that the message asks for", "EDEN_MEMORY_RECALL is off")
    elif not message:
        yield LeftOut("facts that a message asks for", "no message is given to recall for")
    elif "<RetrievedFacts>" not in xml:
        why = "no fact is related to it closely enough, or those that are stand in the context already"
        yield LeftOut("facts that the message asks for", why)


async def learn_sources(here: Visit, sources: Sequence[SourceMessage]) -> None:
    """Look up the names of the messages' sessions and authors."""
    await here.names.learn("session", (source.session_id for source in sources))
    await here.names.learn("user", (source.user_id for source in sources))


def lineage_of(here: Visit) -> VisibleLineage:
    """Return the reader of what the visitor may see of messages and their windows."""
    return VisibleLineage(here.doors.memory.database, here.readers.settings.names, here.caller.users)


LISTED = 50
SHOWN = ("newest", "waiting", "failed")


class WindowsPlace(Where):
    """Which windows: of an agent's session, or the newest, waiting or failed ones of all."""

    agent: IdText | None = None
    asked: str | None = None
    show: Literal["newest", "waiting", "failed"] = "newest"


@router.get("/windows")
async def windows(request: Request, place: Annotated[WindowsPlace, Query()]) -> Response:
    """Show windows; of all sessions only to callers that are bound to no agent and no user."""
    doors = doors_of(request)
    readers = await doors.memory.current()
    here = await _visit(request, place)
    lists = WindowLists(doors.memory.database, readers.settings.names)
    found = await _found(lists, place, here)
    totals = MongoTotals(doors.memory.database, readers.settings.names)
    names = KnownNames(doors, readers) if here is None else here.names
    await names.learn("session", (window.session_id for window in found))
    return render(
        request,
        "windows.html",
        names=names,
        visit=here,
        windows=found,
        paid=await totals.of_formations([window.formation_id for window in found]),
        place=place,
        shown=SHOWN,
        pending=[] if here is not None else await pending_lines(doors, readers),
    )


async def _visit(request: Request, place: WindowsPlace) -> Visit | None:
    """Return the session's visit; None for windows of all, Refused where the caller is bound."""
    caller: Caller = request.state.caller
    if place.session is not None and place.agent is not None:
        return await visit(request, ViewPlace(agent=place.agent, session=place.session, user=place.user))
    demand_to_read_all(caller)
    return None


async def _found(lists: WindowLists, place: WindowsPlace, here: Visit | None) -> list[ListedWindow]:
    if here is not None or place.show == "newest":
        return await lists.newest(LISTED, None if here is None else here.session)
    return await (lists.waiting(LISTED) if place.show == "waiting" else lists.failed(LISTED))


async def pending_lines(doors: Doors, readers: Readers) -> list[str]:
    """Return lines about messages that wait to be formed."""
    database, names = doors.memory.database, readers.settings.names
    limits = window_limits(readers.settings)
    try:
        found = await pending_messages(database[names[Message.COLLECTION]], limits.least)
    except ExecutionTimeout:
        return [NOT_COUNTED]
    held = await sessions_without_documents(database[names["sessions"]])
    return list(describe_pending(found, held, limits, datetime.now(UTC)))


class TakeBackForm(BaseModel):
    """The item, and whether its one user gets it; else it is retired."""

    model_config = ConfigDict(extra="forbid")

    id: MemoryId
    move: bool = False


@router.get("/shared")
async def shared(request: Request, place: Annotated[ViewPlace, Query()]) -> Response:
    """List what came from users, newest first."""
    here = await _shared_visit(request, place, "read")
    found = await here.service.list_shared(limit=MOST_LISTED)
    await here.names.learn_of(item.scope for item in found)
    await here.names.learn("session", (session for item in found for session in item.sessions))
    await here.names.learn("user", (user for item in found for user in item.users))
    return here.render("shared.html", items=found, full=len(found) == MOST_LISTED)


@router.post("/shared")
async def take_back(request: Request, place: Annotated[ViewPlace, Query()]) -> Response:
    """Request that an item is given to its user, or retired."""
    here = await _shared_visit(request, place, "write")
    form = await form_of(request, TakeBackForm)
    asked = await here.service.take_back(form.id, move=form.move)
    return RedirectResponse(here.link("shared", asked=asked), 303)


async def _shared_visit(request: Request, place: ViewPlace, right: Right) -> Visit:
    """Return the request about the agent; Refused for a key of some users, which no user is taken from here."""
    await doors_of(request).enter(request, right, place.agent, Where(), DOOR)
    return await visit(request, place.model_copy(update={"session": None, "user": None}), right)
