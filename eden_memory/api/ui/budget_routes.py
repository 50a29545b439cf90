"""`/ui/operator/budgets`, `/ui/operator/budget`: what formation may spend and has spent, and setting it."""

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from eden_memory.api.http.doors import doors_of
from eden_memory.api.ui.inspector_route import AdmittedPage, form_of
from eden_memory.api.ui.operator_routes import demand_operator, installation_of
from eden_memory.api.ui.pages import budget_plot, render
from eden_memory.api.ui.visiting import DOOR, address
from eden_memory.errors import Invalid, NotFound
from eden_memory.logs import LibraryLogger
from eden_memory.operations.parameters import IdText
from eden_memory.replay.installation import Installation
from eden_memory.usage.budget_rules import Per, budget_id, limit_of
from eden_memory.usage.budget_store import MongoBudgets

log = LibraryLogger("eden.ui")
PAGE = "operator/budget"
router = APIRouter(prefix="/ui/operator", route_class=AdmittedPage, dependencies=[Depends(demand_operator)])


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
    return render(request, "budgets.html", plots=plots, held=held)


@router.get("/budget")
async def budget(request: Request, place: Annotated[BudgetPlace, Query()]) -> Response:
    """Ask for the limit of a budget, or of a new one, and say what follows."""
    name = budget_id(*await place.whose(request))
    found = (await _stored(await installation_of(request)).all()).get(name)
    return render(request, "budget.html", place=place, budget=found, action=address(PAGE))


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


def _stored(at: Installation) -> MongoBudgets:
    return MongoBudgets(at.database, at.settings.names)
