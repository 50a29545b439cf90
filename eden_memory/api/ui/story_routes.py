"""`/ui/person`: what is known of somebody and how it changed; `/ui/window`: what came of each of its messages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.api.http.doors import Where, doors_of
from eden_memory.api.ui.inspector_route import AdmittedPage
from eden_memory.api.ui.memory_routes import ScopePlace, learn_sources, lineage_of, open_scope
from eden_memory.api.ui.pages import growth_plots
from eden_memory.api.ui.visiting import ViewPlace, Visit, demand_to_read_all, visit
from eden_memory.context.written_message_store import WrittenMessage
from eden_memory.directory.participants import DEFAULT_AGENT
from eden_memory.errors import NotFound
from eden_memory.memory.browsing_store import Filters
from eden_memory.memory.growth_store import GrowthCounts
from eden_memory.memory.memory_views import BlobView, FactHistory, ReflectionView
from eden_memory.observability.lineage_store import SourceWindow
from eden_memory.observability.why_store import CLOSED_BECAUSE, MessageFate, explained_message
from eden_memory.operations.parameters import IdText
from eden_memory.replay.comparing.report import Run, shortened, word_diff
from eden_memory.schemas.documents import WindowTexts
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.windows.window_list_store import WindowLists

router = APIRouter(prefix="/ui", route_class=AdmittedPage)
KNOWN, RETIRED, NOTICED, CHANGES = 10, 10, 10, 30
"""Facts that hold, that were retired, and reflections that a person's page reads; and changes that it shows."""


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a person's memory learned, changed or gave up."""

    at: datetime
    what: Literal["learned", "changed", "retired", "noticed", "summed up"]
    text: str
    page: Literal["fact", "reflection", "scope"]
    id: str | int
    """The fact, the reflection, or the version of the consolidated text."""
    before: str | None = None
    """The text that it changes; None: nothing is known of one."""

    @property
    def runs(self) -> Sequence[Run]:
        """The words that changed, with a few around them."""
        return shortened(word_diff(self.before or "", self.text))


def changes_of(
    facts: Iterable[FactHistory], reflections: Iterable[ReflectionView], blob: BlobView | None
) -> list[Change]:
    """Return the last changes, newest first."""
    found = [change for history in facts for change in _of_fact(history)]
    found += [
        Change(reflection.said_at, "noticed", reflection.content, "reflection", reflection.reflection_id)
        for reflection in reflections
    ]
    if blob is not None:
        for version, before in zip(blob.versions, [*blob.earlier, None], strict=True):
            text = before.content if before else None
            found.append(
                Change(version.consolidated_at, "summed up", version.content, "scope", version.version, text)
            )
    return sorted(found, key=attrgetter("at"), reverse=True)[:CHANGES]


def _of_fact(history: FactHistory) -> Iterable[Change]:
    fact, held = history.fact, [version for version in history.versions if not version.undone]
    if fact.retired_at is not None:
        yield Change(fact.retired_at, "retired", fact.content, "fact", fact.fact_id)
    for version, before in zip(held, [*held[1:], None], strict=True):
        what = "learned" if version.version == 1 else "changed"
        text = before.content if before else None
        yield Change(version.valid_from, what, version.content, "fact", fact.fact_id, text)


@router.get("/person")
async def person(request: Request, place: Annotated[ScopePlace, Query()]) -> Response:
    """Show what an agent knows of a user, since when and on what grounds, and how that changed."""
    here = await visit(request, place)
    opened = await open_scope(here, place.key)
    if opened.scope.kind != "user":
        raise NotFound("this is nobody's own memory", "A person's page shows the memory of a user.")
    asker, view, browsing, now = here.asker, opened.view, opened.browsing, datetime.now(UTC)
    known = await browsing.histories(asker, view, Filters(flag=True, limit=KNOWN))
    retired = await browsing.histories(asker, view, Filters(flag=False, limit=RETIRED), first="retired_at")
    noticed = (await browsing.reflections(asker, view, Filters(limit=NOTICED))).items
    blob = next(iter(await browsing.blobs(asker, view, Filters())), None)
    growth = await GrowthCounts(here.doors.memory.database, here.readers.settings.names).of([place.key], now)
    return here.render(
        "person.html",
        opened=opened,
        blob=blob,
        known=known,
        changes=changes_of([*known, *retired], noticed, blob),
        growth=growth_plots(growth),
    )


AUTHORS = 10
"""Of a window, whose own memory its page looks into."""


class WindowPlace(Where):
    """A window; where no agent is named, any window, for callers that may read all memory."""

    agent: IdText | None = None
    id: Annotated[str, Field(min_length=1, max_length=4_096)]


@dataclass(frozen=True, slots=True)
class FormedMessage:
    """A message of a window, and what came of it."""

    source: SourceMessage
    role: str
    text: str | None
    fate: MessageFate | None
    """None: it is not the visitor's to see."""
    outcome: str = ""
    because: str = ""
    checks: tuple[str, ...] = ()
    """What rules and decisions did with statements from it."""


@router.get("/window")
async def window(request: Request, place: Annotated[WindowPlace, Query()]) -> Response:
    """Show a window's messages, and what came of each, or why nothing did."""
    doors = doors_of(request)
    names = (await doors.memory.current()).settings.names
    windows = doors.memory.database[names[WindowTexts.COLLECTION]]
    if place.agent is None:
        demand_to_read_all(request.state.caller)
        row = await windows.find_one({"_id": place.id})
        whose = await _whose(request, row, place)
    else:  # admitted before anything is read: whoever may not see a window learns nothing of its id
        whose = ViewPlace(agent=place.agent, session=place.session, user=place.user)
        row = None
    here = await visit(request, whose)
    row = row or await windows.find_one({"_id": place.id})
    if row is None or here.session != row["session_id"]:
        raise _unknown()
    sources = _sources(row)
    found = await lineage_of(here).windows(sources)
    listed = await WindowLists(doors.memory.database, names).named([place.id])
    own = [part for part in found if part.formation_id == place.id]
    messages = await _messages(here, found)
    await learn_sources(here, [message.source for message in messages])
    return here.render(
        "window.html",
        window=listed[0],
        closed=CLOSED_BECAUSE.get(row["closed"]["because"], row["closed"]["because"]),
        left_out=len(row.get("left_out") or ()),
        messages=messages,
        calls=sum(part.calls for part in own),
        usd=next((part.cost_usd for part in own if part.cost_usd is not None), None),
    )


def _unknown() -> NotFound:
    return NotFound("there is no such window here", "The list of windows has those that are stored.")


async def _whose(request: Request, row: dict[str, Any] | None, place: WindowPlace) -> ViewPlace:
    """Return the place of a window of any session; of one without a document it is with the default agent."""
    if row is None:
        raise _unknown()
    known = await doors_of(request).reach.known(row["session_id"])
    agent = (known and known.agent_id) or DEFAULT_AGENT
    return ViewPlace(agent=agent, session=row["session_id"], user=place.user)


def _sources(row: dict[str, Any]) -> list[SourceMessage]:
    users = {message.get("user_id") for message in row["messages"] if message["role"] == "user"}
    return [
        SourceMessage(
            message_id=message["message_id"],
            version=message["version"],
            session_id=row["session_id"],
            user_id=message.get("user_id"),
            time=message["time"],
            said_at=message.get("created_at") or message["time"],
            participants=len(users) + (None in users),  # answers to somebody unnamed may be of anybody
        )
        for message in row["messages"]
    ]


async def _messages(here: Visit, windows: Iterable[SourceWindow]) -> list[FormedMessage]:
    """Return the messages in order; a bound visitor learns nothing of those of others."""
    rows = [pair for part in windows for pair in part.messages]
    own = [
        (source, node)
        for source, node in rows
        if here.caller.users is None or node.content is not None or source.user_id in here.caller.users
    ]
    view = await _widened(here, {source.user_id for source, _ in own})
    fates: dict[str, MessageFate] = {}
    for author in dict.fromkeys(source.user_id for source, _ in own):
        written = [
            WrittenMessage(
                source.message_id,
                source.session_id,
                node.told["role"] or "",
                node.content or "",
                source.said_at,
                source.time,
            )
            for source, node in own
            if source.user_id == author
        ]
        asker = Asker(here.agent, here.session, author)
        for message, fate in zip(
            written, await here.readers.explanations.fates(asker, view, written), strict=True
        ):
            fates[message.message_id] = fate
    return [
        _formed(source, node.told["role"] or "unknown role", node.content, fates.get(source.message_id))
        for source, node in sorted(rows, key=lambda pair: pair[0].time)
    ]


async def _widened(here: Visit, authors: Iterable[str | None]) -> VisibleMemory:
    """Return what is visible in the session, and the authors' own memory, as far as the visitor may see theirs."""
    readable = [
        author
        for author in sorted(filter(None, authors))
        if here.caller.users is None or author in here.caller.users
    ]
    view = here.view
    for author in readable[:AUTHORS]:
        own = await here.readers.contexts.view(Asker(here.agent, None, author))
        keys = tuple(dict.fromkeys((*view.scope_keys, *own.scope_keys)))
        view = replace(view, scope_keys=keys, private=view.private | own.private)
    return view


def _formed(source: SourceMessage, role: str, text: str | None, fate: MessageFate | None) -> FormedMessage:
    if fate is None:
        return FormedMessage(source.model_copy(update={"user_id": None}), role, None, None)
    told = explained_message(fate)
    checks = tuple(step.told for step in told.steps if step.what in ("check", "decision"))
    silent = told.content is None
    return FormedMessage(
        source, role, None if silent else text, fate, told.outcome.replace("_", " "), told.because, checks
    )
