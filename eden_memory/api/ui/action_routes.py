"""`/ui/change`, `/ui/add`: edit, retire, forget, pin, unpin, mark as private, add.

A page asks and says what follows; its form does it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from eden_memory.access.admission_store import Refused
from eden_memory.api.http.doors import demand_everywhere
from eden_memory.api.ui.inspector_route import AdmittedPage, form_of
from eden_memory.api.ui.memory_routes import open_scope
from eden_memory.api.ui.visiting import DOOR, ViewPlace, Visit, visit
from eden_memory.errors import Conflict, Invalid, NotFound
from eden_memory.limits import LONGEST_BLOB
from eden_memory.memory.browsing_store import Filters
from eden_memory.memory.memory_views import BlobView, FactView, ReflectionView
from eden_memory.mongo.ids import typed
from eden_memory.operations.parameters import Expected, Reason, Text
from eden_memory.schemas.scopes import Scope

router = APIRouter(prefix="/ui", route_class=AdmittedPage)
What = Literal["fact", "reflection", "blob", "message", "session", "user"]
Act = Literal["edit", "retire", "forget", "pin", "unpin", "private"]
OF_MEMORY: tuple[Act, ...] = ("edit", "retire", "private", "forget")
OFFERED: dict[What, tuple[Act, ...]] = {
    "fact": OF_MEMORY,
    "reflection": OF_MEMORY,
    "blob": ("edit", "pin", "unpin", "forget"),
}
"""Of a message, session or user: forget."""


class ChangePlace(ViewPlace):
    """The change and its target; a blob is named by its scope's key."""

    what: What
    act: Act
    id: Annotated[str, Field(min_length=1, max_length=4_096)]
    pin: Annotated[int, Field(ge=0, le=10_000)] = 0
    """Which of the blob's pinned sentences to unpin, from 0."""


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ChangeForm(_Form):
    """The new text, and why; for the version that the page showed."""

    text: Annotated[str | None, Field(max_length=LONGEST_BLOB)] = None
    private: bool = True
    version: Expected = None
    reason: Reason = None


class AddForm(_Form):
    """A text to remember."""

    text: Text
    how: Literal["formed", "fact", "reflection"] = "formed"


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a change, as stored; `scope` None: a message, session or user of the application."""

    name: str
    """For people."""
    text: str | None
    version: int | None
    scope: Scope | None
    back: str
    private: bool | None = None
    """Whether it is marked as private; None: not known."""


@router.get("/change")
async def asking(request: Request, place: Annotated[ChangePlace, Query()]) -> Response:
    """Ask whether to change it, and say what follows; a page that shows memory is for those who may read it."""
    here = await visit(request, place, "write")
    target = await _target(here, place)
    if target.text is not None:
        here.caller.demand_right("read")
    return here.render("change.html", place=place, target=target, action=here.link("change", **_query(place)))


@router.post("/change")
async def change(request: Request, place: Annotated[ChangePlace, Query()]) -> Response:
    """Request the change, and go back to what it is about."""
    here = await visit(request, place, "write")
    form = await form_of(request, ChangeForm)
    target = await _target(here, place)
    asked = await ACTS[place.act](here, place, form)
    back = target.back
    return RedirectResponse(f"{back}{'&' if '?' in back else '?'}asked={asked}", 303)


@router.get("/add")
async def adding(request: Request, place: Annotated[ViewPlace, Query()]) -> Response:
    """Ask for a text to remember."""
    here = await visit(request, place, "write", new=True)
    return here.render("add.html", action=here.link("add"))


@router.post("/add")
async def add(request: Request, place: Annotated[ViewPlace, Query()]) -> Response:
    """Request that a text is remembered: for the user of this page, or for everybody."""
    here = await visit(request, place, "write", new=True)
    form = await form_of(request, AddForm)
    options: dict[str, Any] = {} if form.how == "formed" else {"verbatim": True, "kind": form.how}
    added = await here.service.add(form.text, **here.where, **options)
    link = here.link("agent", **await _session(here), asked=added.request_ids[0])
    return RedirectResponse(link, 303)


async def _session(here: Visit) -> dict[str, str | None]:
    """Return the session for the next page; None if it has no document, as a bound key cannot open it then."""
    session = here.session
    has = session is not None and await here.doors.reach.known(session) is not None
    return {"session": session if has else None}


async def _edit(here: Visit, place: ChangePlace, form: ChangeForm) -> str:
    return await here.service.edit(place.id, _text(form), **_given(here, form))


async def _retire(here: Visit, place: ChangePlace, form: ChangeForm) -> str:
    return await here.service.retire(place.id, **_given(here, form))


async def _pin(here: Visit, place: ChangePlace, form: ChangeForm) -> str:
    return await here.service.pin(place.id, _text(form), **_given(here, form))


async def _unpin(here: Visit, place: ChangePlace, form: ChangeForm) -> str:
    return await here.service.unpin(place.id, _text(form), **_given(here, form))


async def _mark_private(here: Visit, place: ChangePlace, form: ChangeForm) -> str:
    return await here.service.mark_private(place.id, form.private, **_given(here, form))


def _given(here: Visit, form: ChangeForm) -> dict[str, Any]:
    return here.where | {"expected_version": form.version, "reason": form.reason}


async def _forget(here: Visit, place: ChangePlace, form: ChangeForm) -> str:
    if place.what == "user":
        user = await here.doors.memory.ids.read("user", place.id, certain=True)
        demand_everywhere(here.caller, typed(user, "user"))
        asked_by = f"{DOOR}:{here.caller.name}"[:256]
        return await here.doors.memory.agent(asked_by=asked_by).forget("user", user)
    name = f"{place.id}@{form.version}" if place.what == "blob" else place.id
    target = await here.call.forget_target(place.what, name)
    return await here.service.forget(place.what, target, **here.where)


ACTS: dict[Act, Callable[[Visit, ChangePlace, ChangeForm], Awaitable[str]]] = {
    "edit": _edit,
    "retire": _retire,
    "forget": _forget,
    "pin": _pin,
    "unpin": _unpin,
    "private": _mark_private,
}


async def _target(here: Visit, place: ChangePlace) -> Target:
    """Return the target; NotFound, Refused or Conflict if the change cannot be requested."""
    offered = OFFERED.get(place.what, ("forget",))
    if place.act not in offered:
        raise Invalid(f"{place.act} is not for a {place.what}", f"It takes: {', '.join(offered)}.")
    target = await _found(here, place)
    if target.scope is not None and not here.may_change(target.scope):
        raise Refused("this key may not change it", "Use a key with the right `write` that reaches it.")
    return target


async def _found(here: Visit, place: ChangePlace) -> Target:
    match place.what:
        case "fact":
            fact = (await here.service.history(place.id, **here.where)).fact
            _demand_standing(place, retired=not fact.active)
            return _memory(here, fact, "fact")
        case "reflection":
            reflection = await here.service.reflection(place.id, **here.where)
            _demand_standing(place, retired=reflection.retired_at is not None)
            return _memory(here, reflection, "reflection")
        case "blob":
            return await _blob(here, place)
        case _:
            kind, name = place.what, place.id
            if kind != "message":
                target = await here.doors.memory.ids.typed(kind, place.id)
                await here.names.learn(kind, [target])
                name = here.names.of(kind, target)
            return Target(f"{kind} {name}", None, None, None, here.link("agent", session=None, user=None))


def _demand_standing(place: ChangePlace, *, retired: bool) -> None:
    if retired and place.act != "forget":
        raise Conflict(f"the {place.what} is retired", "Only its history is left.")


def _memory(here: Visit, found: FactView | ReflectionView, page: str) -> Target:
    name = found.fact_id if isinstance(found, FactView) else found.reflection_id
    back = here.link(page, id=name)
    return Target(page, found.content, found.version, found.scope, back, found.private)


async def _blob(here: Visit, place: ChangePlace) -> Target:
    opened = await open_scope(here, place.id)
    blob = next(iter(await opened.browsing.blobs(here.asker, opened.view, Filters())), None)
    back = opened.link("scope")
    if blob is not None:
        name = f"version {blob.version} of the blob of {opened.scope.kind} {opened.name}"
        return Target(name, _text_of(blob, place), blob.version, opened.scope, back)
    if place.act == "pin":
        return Target(f"the blob of {opened.scope.kind} {opened.name}", None, None, opened.scope, back)
    raise NotFound("there is no such blob here")


def _text_of(blob: BlobView, place: ChangePlace) -> str | None:
    """Return the text that the change is about; None for a new sentence."""
    if place.act == "pin":
        return None
    if place.act != "unpin":
        return blob.content
    if place.pin >= len(blob.pins):
        raise Conflict("the sentence is not pinned", "The page of its scope lists the pins.")
    return blob.pins[place.pin]


def _query(place: ChangePlace) -> dict[str, str | int]:
    of_pin = {"pin": place.pin} if place.act == "unpin" else {}
    return {"what": place.what, "act": place.act, "id": place.id} | of_pin


def _text(form: ChangeForm) -> str:
    """Return the given text with the line ends that memory has; forms send others."""
    if form.text is None:
        raise Invalid("the text is empty", "Retire or forget a memory to be rid of it.")
    return form.text.replace("\r\n", "\n")
