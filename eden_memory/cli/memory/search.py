"""`eden context` and `eden search`: memory as an agent gets it, or with `--debug` how the search found it."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer

from eden_memory.cli import terminal
from eden_memory.cli.memory.viewer import AS_ID, Agent, AsJson, Session, User, Viewer, ask, nothing, who
from eden_memory.cli.sessions import named_session
from eden_memory.cli.terminal import parse_time
from eden_memory.memory.results import ScopeStats
from eden_memory.replay.installation import installation
from eden_memory.search.search_requests import SearchReport
from eden_memory.settings import Settings

NEWEST = 50
"""Facts that are looked at to tell why a context shows none."""
SessionId = Annotated[str, typer.Argument(help=AS_ID)]
ContextUser = Annotated[str | None, typer.Option(help="whose context; unset: the session's only user")]
Message = Annotated[str | None, typer.Option(help="the user's message: what it asks of the past is searched")]
Stats = Annotated[bool, typer.Option("--stats", help="numbers of each visible scope, as JSON, in its place")]


def context(
    session: SessionId,
    user: ContextUser = None,
    agent: Agent = None,
    message: Message = None,
    stats: Stats = False,
    as_json: AsJson = False,
) -> None:
    """Print the context of a session's user: the XML for the agent's prompt.

    Examples:

    eden context s1

    eden context s1 --user ada --message "what did I say about Lyon?"
    """
    if stats:
        terminal.show_json(asyncio.run(_stats(session, user, agent)))
        return
    found, older = asyncio.run(_context(session, user, agent, message))
    if as_json:
        terminal.show_json({"context": found})
    elif found:
        typer.echo(terminal.plain(found))
    elif not older:
        typer.echo(nothing("nothing is remembered that could be shown here", user), err=True)
    if older:
        days = Settings().memory.context_days
        typer.echo(
            f"all facts known here are older than {days:g} days, and EDEN_MEMORY_CONTEXT_DAYS leaves such facts out "
            "of a context; --message TEXT brings back what a message asks for, `eden search` finds them all",
            err=True,
        )


async def _stats(session: str, user: str | None, agent: str | None) -> dict[str, ScopeStats]:
    async with who(Settings(), agent, session, user, alone=True) as viewer:
        return await viewer.memory.get_memory_stats(viewer.session, viewer.user)


async def _context(
    session: str, user: str | None, agent: str | None, message: str | None
) -> tuple[str, bool]:
    """The context, and whether it shows no fact because all that are known are too old for it."""
    async with who(Settings(), agent, session, user, alone=True) as viewer:
        found = await viewer.memory.get_memory_context(viewer.session, viewer.user, message)
        older = "<Facts>" not in found and await _only_older(viewer)
        if not found and not older:
            await _demand(Settings(), session)
        return found, older


async def _only_older(viewer: Viewer) -> bool:
    settings = Settings().memory
    newest = await viewer.memory.list_facts(**viewer.named, active=True, limit=NEWEST)
    oldest = datetime.now(UTC) - timedelta(days=settings.context_days)
    return (
        bool(newest.items)
        and settings.facts_in_context
        and all(fact.valid_from < oldest for fact in newest.items)
    )


async def _demand(settings: Settings, session: str) -> None:
    """NotFound where nothing names the session; a typed id is taken as it is."""
    async with installation(settings) as at:
        await named_session(at, session)


Time = Annotated[
    datetime | None, typer.Option(parser=parse_time, metavar="TIME", help="what was known then (UTC)")
]


def search(
    queries: Annotated[list[str], typer.Argument(help="one to three questions")],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    top_k: Annotated[int, typer.Option(min=1, max=200, help="facts, at most")] = 10,
    search_type: Annotated[
        Literal["hybrid", "semantic", "text"], typer.Option("--type", help="by meaning, by words, or both")
    ] = "hybrid",
    as_of: Time = None,
    retired: Annotated[bool, typer.Option("--retired", help="retired facts too")] = False,
    recency_weight: Annotated[
        float | None, typer.Option(min=0, max=1, help="how much freshness counts")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="facts with a lower score are left out")] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="time, candidates and scores of every stage")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search the facts that a user may see, as an agent would.

    Examples:

    eden search "where does Ada live?" --user ada

    eden search Lyon "next trip" --session s1 --debug

    eden search office --as-of 2026-03-01 --json
    """

    async def work(who: Viewer) -> SearchReport:
        return await who.memory.explain_search(
            queries,
            **who.named,
            top_k=top_k,
            search_type=search_type,
            as_of=as_of,
            include_retired=retired,
            recency_weight=recency_weight,
            score_threshold=threshold,
        )

    report = ask(agent, session, user, work)
    if as_json:
        terminal.show_json(report if debug else report.facts)
        return
    _show(report, nothing("nothing was found", user), debug=debug)


def _show(report: SearchReport, empty: str, *, debug: bool) -> None:
    rows = (
        (
            f"{fact.score:.3f}",
            terminal.scope_name(fact.scope),
            terminal.line(fact.content),
            terminal.moment(fact.valid_from),
            fact.fact_id,
            *([_scores(fact.scores)] if debug else []),
        )
        for fact in report.facts
    )
    columns = ["score", "scope", "fact", "since", "id", *(["scores"] if debug else [])]
    terminal.show_table(columns, rows, empty)
    if report.text_only == "over_budget":
        typer.echo("no room in a budget: found by words alone (`eden budget list`)", err=True)
    for warning in report.warnings:
        typer.echo(f"done without {terminal.plain(warning)}", err=True)
    if debug:
        stages = ((stage.name, f"{stage.milliseconds:.1f}", stage.candidates) for stage in report.stages)
        terminal.console().print()
        terminal.show_table(("stage", "ms", "candidates"), stages, "no stage ran")
        terminal.console().print(f"{report.milliseconds:.1f} ms in all")


def _scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
