"""`/ui`, `/ui/costs`: what was remembered and forgotten lately, how memory stands, and what models cost."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import itemgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import BaseModel, ConfigDict, Field

from eden_memory.access.admission_store import Caller, only_id
from eden_memory.api.http.doors import doors_of
from eden_memory.api.ui.browsing_routes import asker_of
from eden_memory.api.ui.inspector_route import AdmittedPage
from eden_memory.api.ui.memory_routes import pending_lines
from eden_memory.api.ui.pages import bar_plot, growth_plots, render
from eden_memory.api.ui.visiting import KnownNames, address, demand_to_read_all
from eden_memory.app.readers import Readers
from eden_memory.errors import EdenError
from eden_memory.memory.browsing_store import ScopeLists
from eden_memory.memory.growth_store import GrowthCounts
from eden_memory.memory.memory_index_store import count_documents
from eden_memory.observability.lineage_store import StoredLineage
from eden_memory.operations.parameters import IdText
from eden_memory.schemas.documents import Fact, RecentFact
from eden_memory.schemas.scopes import Scope
from eden_memory.stages.controls import MongoControls
from eden_memory.usage.usage_store import MongoTotals, UsageQuery, together
from eden_memory.windows.window_list_store import ListedWindow, WindowLists

router = APIRouter(prefix="/ui", route_class=AdmittedPage)
GROUPED = {"stage": "stage", "model": "model", "agent": "agent_id", "user": "user_id"}
MOST_ROWS, LATELY = 50, 14
SHOWN_WINDOWS = 5
LATELY_SCOPES, LATELY_FACTS, LATELY_FORGOTTEN = 8, 10, 5


class CostsPlace(BaseModel):
    """Whose costs, of how many days, and by what they are listed."""

    model_config = ConfigDict(extra="forbid")

    agent: IdText | None = None
    user: IdText | None = None
    days: Annotated[int, Field(ge=1, le=366)] = 30
    by: Literal["stage", "model", "agent", "user"] = "stage"


@router.get("")
@router.get("/")
async def overview(request: Request) -> Response:
    """Show the figures of all memory; of a caller that is bound, its agents."""
    if request.state.caller.is_bound:
        return RedirectResponse("/ui/agents", 303)
    demand_to_read_all(request.state.caller)
    doors = doors_of(request)
    readers = await doors.memory.current()
    database, names = doors.memory.database, readers.settings.names
    query = UsageQuery(*_days(1))
    totals, lists, controls = (
        MongoTotals(database, names),
        WindowLists(database, names),
        MongoControls(database, names),
    )
    lately = UsageQuery(*_days(LATELY), by="day")
    known = KnownNames(doors, readers)
    changed = await ScopeLists(database, names).changed_last(LATELY_SCOPES)
    await known.learn_of(changed)
    remembered = await _remembered_lately(readers, known, changed)
    stored, growing = StoredLineage(database, names), GrowthCounts(database, names)
    return render(
        request,
        "overview.html",
        names=known,
        remembered=remembered,
        sentences=await _sentences(stored, [item.fact.fact_id for item in remembered]),
        forgotten=await growing.forgotten(LATELY_FORGOTTEN),
        growth=growth_plots(await growing.of_all(datetime.now(UTC))),
        counts=await count_documents(database, names),
        today=together(await totals.sums(query)),
        plot=await _plot(totals, lately),
        pending=await pending_lines(doors, readers),
        waiting=await lists.waiting(SHOWN_WINDOWS),
        failed=await _failed(lists),
        pauses=await controls.pauses(),
        troubles=await controls.troubles(),
    )


@router.get("/costs")
async def costs(request: Request, place: Annotated[CostsPlace, Query()]) -> Response:
    """Show what models cost; a bound caller names an agent or user of its own, or has just one."""
    caller: Caller = request.state.caller
    doors = doors_of(request)
    ids = doors.memory.ids
    agent = await ids.typed("agent", place.agent) if place.agent else _bound_to(caller.agents)
    user = await ids.typed("user", place.user) if place.user else _bound_to(caller.users)
    caller.demand("read", agent or "", user)
    readers = await doors.memory.current()
    totals = MongoTotals(doors.memory.database, readers.settings.names)
    whose: dict[str, Any] = {"agent_id": agent, "user_id": user}
    first, last = _days(place.days)
    sums = await totals.sums(UsageQuery(first, last, GROUPED[place.by], **whose))
    known = KnownNames(doors, readers)
    await known.learn("agent", [agent])
    await known.learn("user", [user])
    if place.by in ("agent", "user"):
        await known.learn(place.by, [group.of for group in sums[:MOST_ROWS]])
    return render(
        request,
        "costs.html",
        names=known,
        place=place,
        agent=agent,
        user=user,
        groups=tuple(GROUPED),
        sums=sums[:MOST_ROWS],
        whole=together(sums),
        plot=await _plot(totals, UsageQuery(first, last, "day", **whose)),
        counted_to=await totals.counted_to(),
    )


@dataclass(frozen=True, slots=True)
class RememberedFact:
    """A fact that was remembered or changed lately, and whose it is."""

    fact: RecentFact
    scope: Scope
    href: str
    whose: str
    """The address of the scope's page."""


async def _remembered_lately(
    readers: Readers, known: KnownNames, scopes: Sequence[Scope]
) -> list[RememberedFact]:
    """Return the newest facts of these scopes, as somebody sees them who may."""
    askers = await asyncio.gather(*(asker_of(scope, known.labels) for scope in scopes))
    views = await asyncio.gather(*map(readers.contexts.view, askers))
    found: list[RememberedFact] = []
    for scope, asker, view in zip(scopes, askers, views, strict=True):
        who = {"agent": scope.agent_id, "user": asker.user_id, "session": asker.session_id}
        whose = address("person" if scope.kind == "user" else "scope", **who, key=scope.key)
        facts = (
            fact for seen in view.shown if seen.scope.key == scope.key for fact in seen.snapshot.recent_facts
        )
        found += [
            RememberedFact(fact, scope, address("fact", **who, id=fact.fact_id), whose) for fact in facts
        ]
    return sorted(found, key=lambda item: item.fact.formed_at, reverse=True)[:LATELY_FACTS]


async def _sentences(stored: StoredLineage, fact_ids: Sequence[str]) -> dict[str, str]:
    """Return, by fact, the text of the newest message that it rests on, while memory keeps it."""
    rows = await stored.by_id(Fact, fact_ids, {"sources": 1})
    newest = {
        name: max(row["sources"], key=itemgetter("said_at"))["message_id"]
        for name, row in rows.items()
        if row.get("sources")
    }
    messages = await stored.messages(newest.values())
    texts = {name: messages.get(message, {}).get("text") for name, message in newest.items()}
    return {name: text for name, text in texts.items() if text}


async def _failed(lists: WindowLists) -> list[ListedWindow] | None:
    """Return a few failed windows; None if they cannot be found in time."""
    try:
        return await lists.failed(SHOWN_WINDOWS)
    except EdenError:
        return None


async def _plot(totals: MongoTotals, query: UsageQuery) -> Any:
    """Return the costs by day, those without calls included."""
    known = {of.of: of.cost_usd for of in await totals.sums(query)}
    first, last = (datetime.fromisoformat(day) for day in (query.first, query.last))
    days = [f"{first + timedelta(days=at):%Y-%m-%d}" for at in range((last - first).days + 1)]
    return bar_plot([(day, known.get(day, Decimal(0))) for day in days])


def _days(number: int) -> tuple[str, str]:
    today = datetime.now(UTC)
    return f"{today - timedelta(days=number - 1):%Y-%m-%d}", f"{today:%Y-%m-%d}"


def _bound_to(ids: frozenset[str] | None) -> str | None:
    """Return the only id that a caller is bound to, else the first; None where it is not bound."""
    return only_id(ids) or (min(ids) if ids else None)
