"""`eden search`: search facts as an agent would; `--debug` shows every stage of the search."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

import typer

from eden_memory.cli import tables, terminal
from eden_memory.cli.memory.viewer import (
    Agent,
    AsJson,
    OccurredAfter,
    OccurredBefore,
    Scopes,
    Session,
    User,
    Viewer,
    ask,
    kinds_of,
    nothing,
)
from eden_memory.cli.terminal import parse_time
from eden_memory.errors import Invalid
from eden_memory.search.search_requests import FACTS, FoundMessage, SearchReport, SearchSort

Time = Annotated[
    datetime | None, typer.Option(parser=parse_time, metavar="TIME", help="what was known then (UTC)")
]


class SearchedName(StrEnum):
    """Kinds of memory that a search finds."""

    FACTS = "facts"
    REFLECTIONS = "reflections"


def search(
    queries: Annotated[list[str], typer.Argument(help="one to three questions")],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    scopes: Scopes = None,
    top_k: Annotated[int, typer.Option(min=1, max=200, help="facts, at most")] = 10,
    search_type: Annotated[
        Literal["hybrid", "semantic", "text"], typer.Option("--type", help="by meaning, by words, or both")
    ] = "hybrid",
    kinds: Annotated[
        list[SearchedName] | None,
        typer.Option("--kind", help="facts (without this option), reflections; again: both"),
    ] = None,
    as_of: Time = None,
    retired: Annotated[bool, typer.Option("--retired", help="retired facts too")] = False,
    occurred_after: OccurredAfter = None,
    occurred_before: OccurredBefore = None,
    sort: Annotated[SearchSort, typer.Option(help="occurred_at: what happened last comes first")] = "score",
    recency_weight: Annotated[
        float | None, typer.Option(min=0, max=1, help="how much freshness counts")
    ] = None,
    threshold: Annotated[float | None, typer.Option(help="facts with a lower score are left out")] = None,
    debug: Annotated[
        bool, typer.Option("--debug", help="time, candidates and scores of every stage")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search the facts, or reflections, that a user may see, as an agent would.

    Examples:

    eden search "where does Ada live?" --user ada

    eden search Lyon "next trip" --session s1 --debug

    eden search office --as-of 2026-03-01 --json

    eden search "which tea does she like?" --user ada --kind facts --kind reflections
    """

    if not all(query.strip() for query in queries):
        raise Invalid("there is nothing to search for", "Give a question, or a few words of the memory.")

    async def work(who: Viewer) -> SearchReport:
        return await who.memory.explain_search(
            queries,
            **who.named,
            scopes=kinds_of(scopes),
            top_k=top_k,
            search_type=search_type,
            kinds=[kind.value for kind in kinds] if kinds else FACTS,
            as_of=as_of,
            include_retired=retired,
            occurred_after=occurred_after,
            occurred_before=occurred_before,
            sort=sort,
            recency_weight=recency_weight,
            score_threshold=threshold,
        )

    report = ask(agent, session, user, work)
    if as_json:
        terminal.show_json(report if debug else report.facts)
        return
    _show(report, nothing("nothing was found", user), debug=debug)


def _show(report: SearchReport, empty: str, *, debug: bool) -> None:
    mixed = any(fact.kind != "fact" for fact in report.facts)
    rows = (
        (
            f"{fact.score:.3f}",
            terminal.scope_name(fact.scope),
            tables.line(fact.content),
            *([fact.kind] if mixed else []),
            terminal.moment(fact.valid_from),
            fact.fact_id,
            *([_scores(fact.scores)] if debug else []),
        )
        for fact in report.facts
    )
    columns = [
        "score",
        "scope",
        "text" if mixed else "fact",
        *(["kind"] if mixed else []),
        "since",
        "id",
        *(["scores"] if debug else []),
    ]
    tables.show_table(columns, rows, empty if not report.unformed else "no facts were found")
    if report.unformed:
        _show_unformed(report.unformed)
    if report.text_only == "over_budget":
        typer.echo("no room in a budget: found by words alone (`eden budget list`)", err=True)
    for warning in report.warnings:
        typer.echo(f"done without {terminal.plain(warning)}", err=True)
    if debug:
        stages = ((stage.name, f"{stage.milliseconds:.1f}", stage.candidates) for stage in report.stages)
        tables.console().print()
        tables.show_table(("stage", "ms", "candidates"), stages, "no stage ran")
        tables.console().print(f"{report.milliseconds:.1f} ms in all")


def _show_unformed(found: Sequence[FoundMessage]) -> None:
    rows = (
        (message.speaker, tables.line(message.content), terminal.moment(message.said_at), message.message_id)
        for message in found
    )
    tables.console().print()
    tables.show_table(("by", "not formed yet", "said", "message"), rows, "")


def _scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in scores.items())
