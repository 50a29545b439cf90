"""`/ui/operator`: lag, dead letters, namespaces and budgets, for operators' keys (`eden serve --operator`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from eden_memory.access.admission_store import Refused
from eden_memory.api.http.doors import doors_of
from eden_memory.api.ui.inspector_route import AdmittedPage, form_of
from eden_memory.api.ui.pages import budget_plot, render
from eden_memory.api.ui.visiting import DOOR, KnownNames, address
from eden_memory.errors import Conflict, Invalid, NotFound, describe
from eden_memory.kafka.connection import answering
from eden_memory.kafka.groups import LagReader, LagReading
from eden_memory.logs import LibraryLogger
from eden_memory.operations.parameters import IdText
from eden_memory.replay.comparing.comparing import ReportRequest, compared
from eden_memory.replay.comparing.report import KINDS
from eden_memory.replay.dead_letters import DeadLetterHandling
from eden_memory.replay.installation import Installation
from eden_memory.replay.namespaces.namespace_store import placement_of
from eden_memory.replay.namespaces.switching import refuse_behind, roll_back, switch, with_original
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.schemas.documents import DeadLetter, Live
from eden_memory.stages.dead_letter_store import DeadLetterFilter
from eden_memory.usage.budget_rules import Per, Spending, budget_id, limit_of
from eden_memory.usage.budget_store import MongoBudgets

log = LibraryLogger("eden.ui")
LISTED, DIFFERENCES = 100, 10
WHY = ("error", "attempts", "retries", "topic", "partition", "offset", "collection", "version", "cut")
Name = Annotated[str, Query(min_length=1, max_length=64)]
LetterId = Annotated[str, Query(min_length=3, max_length=500)]


async def demand_operator(request: Request) -> None:
    """Raise Refused for callers that do not administer the whole installation."""
    if not request.state.caller.is_operator:
        raise Refused(
            "this page is for operators", "Use a key with the right `admin`, bound to no agent and no user."
        )


router = APIRouter(prefix="/ui/operator", route_class=AdmittedPage, dependencies=[Depends(demand_operator)])


class LetterForm(BaseModel):
    """The decision about a dead letter."""

    model_config = ConfigDict(extra="forbid")

    act: Literal["retry", "drop"]


class RollbackForm(BaseModel):
    """The switch that is to be taken back: the page showed what was live then."""

    model_config = ConfigDict(extra="forbid")

    revision: int


class SwitchForm(BaseModel):
    """Whether a reform becomes live as it is, without what came since it was formed."""

    model_config = ConfigDict(extra="forbid")

    as_it_is: bool = False


@dataclass(frozen=True, slots=True)
class GroupBehind:
    """How far a consumer group is behind, over all its partitions."""

    group: str
    records: int
    seconds: float | None
    """Since the oldest unread record came; None: nothing is unread, or not known."""
    members: int


@router.get("")
async def index() -> Response:
    """Begin with what may need an operator."""
    return RedirectResponse("/ui/operator/dead-letters", 303)


@router.get("/lag")
async def lag(request: Request) -> Response:
    """Show how far each consumer group is behind."""
    at = await installation_of(request)
    topics = at.topics(at.settings.placement)
    with answering():
        reader = LagReader(at.kafka, [topic.name for topic in topics], topics.readers())
        try:
            await reader.start()
            reading = await reader.read()
        finally:
            await reader.close()
    return render(request, "operator_lag.html", groups=_behind(reading, topics.readers()))


@router.get("/dead-letters")
async def dead_letters(request: Request, everything: bool = False) -> Response:
    """List dead letters, oldest first."""
    found: list[DeadLetter] = []
    async for letter in (await _letters(request)).found(DeadLetterFilter(), settled=everything):
        found.append(letter)
        if len(found) > LISTED:
            break
    return render(
        request,
        "dead_letters.html",
        letters=[(letter, _letter_page(letter.id)) for letter in found[:LISTED]],
        more=len(found) > LISTED,
        everything=everything,
    )


@router.get("/dead-letter")
async def dead_letter(request: Request, id: LetterId, asked: str | None = None) -> Response:  # noqa: A002
    """Show one dead letter: why, and its original value."""
    letter = await (await _letters(request)).at(id)
    why = {name: value for name in WHY if (value := getattr(letter, name)) is not None}
    text = None if letter.value is None else letter.value.decode(errors="replace")
    action = _letter_page(letter.id)
    return render(request, "dead_letter.html", letter=letter, why=why, value=text, action=action, asked=asked)


@router.post("/dead-letter")
async def settle(request: Request, id: LetterId) -> Response:  # noqa: A002
    """Have its stage try it again, or take it off the list."""
    form = await form_of(request, LetterForm)
    letters = await _letters(request)
    with answering():
        letter, done = await letters.at(id), "dropped"
        if form.act == "drop":
            await letters.drop(letter)
        else:
            (done,) = await letters.retry([letter], f"inspector, {request.state.caller.name}")
    log.info("a dead letter was settled", by=request.state.caller.name, letter=letter.id, done=done)
    return RedirectResponse(address("operator/dead-letter", id=letter.id, asked=done), 303)


@router.get("/namespaces")
async def namespaces(
    request: Request, back: Literal["applied", "not_applied", "left_behind", "done"] | None = None
) -> Response:
    """List the live memory and every namespace; `back`: what a rollback has just done with user edits."""
    at = await installation_of(request)
    live, switched = await at.live.placement(), await at.live.read()
    previous = switched.previous.memory if switched and switched.previous else None
    rows = [
        (namespace, placement_of(namespace) == live, sum([count for count, _ in sizes.values()]))
        for namespace in await with_original(at)
        for sizes in [await at.namespaces.sizes(namespace.prefix)]
    ]
    return render(request, "namespaces.html", rows=rows, live=live.memory, previous=previous, back=back)


@router.get("/namespace")
async def namespace(request: Request, name: Name, report: bool = False) -> Response:
    """Show a namespace and its reform; on request, what it remembers differently, side by side with live memory."""
    at = await installation_of(request)
    found = next((known for known in await with_original(at) if known.id == name), None) or await at.named(
        name
    )
    live = await at.live.placement()
    compares = report and placement_of(found) != live
    wanted = ReportRequest(against=live.memory, most=DIFFERENCES)
    made = await compared(at.settings, at.database, name, wanted) if compares else None
    return render(
        request,
        "namespace.html",
        namespace=found,
        is_live=placement_of(found) == live,
        live=live.memory,
        reform=await MongoReforms(at.database, at.settings.mongodb.prefix).get(name),
        report=made,
        kinds=KINDS,
        spent=made.together if made is not None and made.spent else None,
    )


@router.post("/namespace")
async def switch_to(request: Request, name: Name) -> Response:
    """Make a namespace live; refused for a reform that has not caught up, unless as it is."""
    form = await form_of(request, SwitchForm)
    at = await installation_of(request)
    if not form.as_it_is:
        await refuse_behind(at, name)
    with answering():
        was = await switch(at, name)
    log.info("a namespace was made live", by=request.state.caller.name, namespace=name, was=was.memory)
    return RedirectResponse("/ui/operator/namespaces", 303)


@router.get("/rollback")
async def asking_to_roll_back(request: Request) -> Response:
    """Ask whether to make the former memory live again, and say what follows."""
    live = await _live_after_switch(await installation_of(request))
    return render(
        request,
        "rollback.html",
        live=live.memory,
        previous=live.previous.memory if live.previous else "",
        carries=live.previous is not None and live.previous.pipeline != live.pipeline,
        revision=live.revision,
    )


@router.post("/rollback")
async def back(request: Request) -> Response:
    """Make the former memory live again, and apply there what people changed meanwhile."""
    form = await form_of(request, RollbackForm)
    at = await installation_of(request)
    if (await _live_after_switch(at)).revision != form.revision:
        raise Conflict("another memory was made live meanwhile", "See the namespaces, and ask again.")
    with answering():
        done = await roll_back(at)
    by = request.state.caller.name
    log.info("a namespace was rolled back", by=by, namespace=done.now.memory, was=done.was.memory)
    if done.failed is not None:
        log.warning("user edits were not applied", namespace=done.was.memory, reason=describe(done.failed))
    if done.pending:
        log.warning("user edits were left behind", namespace=done.was.memory, reason=done.pending)
    edits = (
        "left_behind"
        if done.pending
        else "not_applied"
        if done.failed
        else "applied"
        if done.edits
        else "done"
    )
    return RedirectResponse(address("operator/namespaces", back=edits), 303)


async def _live_after_switch(at: Installation) -> Live:
    """Return what is live; Conflict where nothing else ever was."""
    live = await at.live.read()
    if live is None or live.previous is None:
        raise Conflict("nothing else was ever live", "A switch comes before a rollback.")
    return live


async def installation_of(request: Request) -> Installation:
    """Return the installation whose memory is served."""
    memory = doors_of(request).memory
    return Installation((await memory.current()).settings, memory.database)


async def _letters(request: Request) -> DeadLetterHandling:
    return DeadLetterHandling(await installation_of(request))


def _letter_page(name: str) -> str:
    return address("operator/dead-letter", id=name)


def _behind(reading: LagReading, groups: dict[str, list[str]]) -> list[GroupBehind]:
    """Return the sums by group, those that are furthest behind first."""
    found: list[GroupBehind] = []
    for group in groups:
        rows = [row for row in reading.groups if row.group == group]
        seconds = [row.seconds for row in rows if row.seconds is not None and row.lag]
        records = sum(row.lag for row in rows)
        found.append(GroupBehind(group, records, max(seconds, default=None), reading.members.get(group, 0)))
    return sorted(found, key=lambda behind: (-behind.records, behind.group))


PAGE = "operator/budget"


class BudgetPlace(BaseModel):
    """A budget: of an agent, a user, both, or all."""

    model_config = ConfigDict(extra="forbid")

    agent: IdText | None = None
    user: IdText | None = None
    per: Per = "day"

    async def whose(self, request: Request) -> tuple[str | None, str | None, Per]:
        """Return agent and user as they are stored, and the period."""
        ids = doors_of(request).memory.ids
        agent, user = self.agent or None, self.user or None
        return await ids.typed_or_none("agent", agent), await ids.typed_or_none("user", user), self.per


class BudgetForm(BudgetPlace):
    """The decision about a budget; the limit as people write it."""

    act: Literal["set", "remove"]
    limit: Annotated[str, Field(max_length=40)] = ""


@router.get("/budgets")
async def budgets(request: Request) -> Response:
    """Show what formation may spend, and has spent."""
    stored = _stored(await installation_of(request))
    held = await stored.held_back()
    plots = [
        (known, budget_plot(known), address(PAGE, agent=known.agent_id, user=known.user_id, per=known.per))
        for known in (await stored.all()).values()
    ]
    names = await _named(request, [known for known, _, _ in plots])
    return render(request, "budgets.html", plots=plots, held=held, names=names)


@router.get("/budget")
async def budget(request: Request, place: Annotated[BudgetPlace, Query()]) -> Response:
    """Ask for the limit of a budget, or of a new one, and say what follows."""
    name = budget_id(*await place.whose(request))
    found = (await _stored(await installation_of(request)).all()).get(name)
    names = await _named(request, [found] if found else [])
    return render(request, "budget.html", place=place, budget=found, action=address(PAGE), names=names)


@router.post("/budget")
async def decide(request: Request) -> Response:
    """Set or remove a budget, and go back to the list."""
    form = await form_of(request, BudgetForm)
    stored, whose = _stored(await installation_of(request)), await form.whose(request)
    if form.act == "remove":
        if not await stored.remove(budget_id(*whose)):
            raise NotFound("there is no such budget", "Somebody else may have removed it.")
    elif not form.limit:
        raise Invalid("the limit is empty", "Give US dollars: 5, 0.25.")
    else:
        await stored.set(*whose, limit_of(form.limit), f"{DOOR}:{request.state.caller.name}")
    log.info("a budget was decided about", by=request.state.caller.name, done=form.act)
    return RedirectResponse(address("operator/budgets"), 303)


async def _named(request: Request, budgets: Sequence[Spending]) -> KnownNames:
    """Return the names of those whose budgets these are."""
    doors = doors_of(request)
    names = KnownNames(doors, await doors.memory.current())
    await names.learn("agent", (budget.agent_id for budget in budgets))
    await names.learn("user", (budget.user_id for budget in budgets))
    return names


def _stored(at: Installation) -> MongoBudgets:
    return MongoBudgets(at.database, at.settings.names)
