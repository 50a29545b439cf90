"""Answers of operations on a terminal: tables for people."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import typer
from rich.text import Text
from rich.tree import Tree

from eden_memory.cli import tables, terminal
from eden_memory.cli.memory.viewer import NOTHING, nothing
from eden_memory.memory.memory_views import (
    BlobView,
    ConsolidationStatus,
    Explained,
    ExplainedStep,
    FactView,
    Page,
    ReflectionView,
    ScopeStats,
)
from eden_memory.operations.audit_calls import Audited
from eden_memory.operations.parameters import Requested
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_requests import FoundMessage, SearchReport

T = TypeVar("T")
Row = tuple[Scope, str, *tuple[str, ...]]
"""A line of a list: scope, text, then times, state and id."""


def requested(found: Requested, user: str | None) -> None:
    """Say that a request was written down."""
    del user
    typer.echo(f"asked (request {found.request_id}): `eden run` carries it out")


def facts(page: Page[FactView], user: str | None) -> None:
    """Show a page of facts."""

    def row(fact: FactView) -> Row:
        version = f"v{fact.version}" + ("" if fact.active else f" retired: {fact.retired_because or 'asked'}")
        times = terminal.moment(fact.valid_from), terminal.moment(fact.formed_at)
        return fact.scope, fact.content, *times, version, fact.fact_id

    _show_page(page, ("scope", "fact", "since", "formed", "version", "id"), row, user)


def reflections(page: Page[ReflectionView], user: str | None) -> None:
    """Show a page of reflections."""

    def row(item: ReflectionView) -> Row:
        return item.scope, item.content, terminal.moment(item.said_at), _state(item), item.reflection_id

    _show_page(page, ("scope", "reflection", "said", "absorbed", "id"), row, user)


def _state(item: ReflectionView) -> str:
    absorbed = f"in blob v{item.absorbed_into}" if item.absorbed else "buffered"
    state = absorbed if item.retired_at is None else "retired"
    return state + (f", v{item.version}" if item.version > 1 else "") + (", private" if item.private else "")


def _show_page(page: Page[T], columns: Sequence[str], row: Callable[[T], Row], user: str | None) -> None:
    """Print a page as a table, and how to get the next page."""
    rows = (
        (terminal.scope_name(scope), tables.line(text), *cells)
        for scope, text, *cells in map(row, page.items)
    )
    tables.show_table(columns, rows, nothing(f"no {columns[1]}s to show here", user))
    if page.cursor is not None:
        typer.echo(f"more: --cursor {page.cursor}", err=True)


def blobs(found: Sequence[BlobView], user: str | None) -> None:
    """Show blobs with their pinned sentences."""
    if not found:
        typer.echo(nothing("no blobs to show here", user), err=True)
    for blob in found:
        head = f"{terminal.scope_name(blob.scope)}, version {blob.version}, {blob.words} of {blob.word_limit} words"
        tables.console().print(
            f"{terminal.plain(head)}, {terminal.moment(blob.consolidated_at)}", style="bold"
        )
        for name, said in (("scope", blob.scope.key), *(("pinned", pin) for pin in blob.pins)):
            tables.console().print(f"{name}: {terminal.plain(said)}", soft_wrap=True)
        tables.console().print(terminal.plain(blob.content) + "\n", soft_wrap=True)


def stats(found: Mapping[str, ScopeStats], user: str | None) -> None:
    """Show numbers, a line for each scope."""
    columns = (
        "scope",
        "blob words",
        "version",
        "reflections",
        "buffered",
        "facts",
        "consolidated",
        "changed",
    )
    rows = (
        (
            name,
            numbers.words,
            numbers.blob_version or "",
            numbers.reflections,
            numbers.buffered,
            numbers.facts,
            terminal.moment(numbers.consolidated_at),
            terminal.moment(numbers.changed_at),
        )
        for name, numbers in found.items()
    )
    tables.show_table(columns, rows, nothing(NOTHING, user))


def consolidation(found: Mapping[str, ConsolidationStatus], user: str | None) -> None:
    """Show how near scopes are to their next consolidation."""
    rows = (
        (
            name,
            f"{status.buffered} of {status.threshold}",
            "yes" if status.due else "",
            terminal.moment(status.consolidated_at),
        )
        for name, status in found.items()
    )
    tables.show_table(("scope", "buffered", "due", "consolidated"), rows, nothing(NOTHING, user))


def search(report: SearchReport, user: str | None) -> None:
    """Show what was found; with the stages, if they were asked for."""
    debug, mixed = bool(report.stages), any(fact.kind != "fact" for fact in report.facts)
    rows = (
        (
            f"{fact.score:.3f}",
            terminal.scope_name(fact.scope),
            tables.line(fact.content),
            *([fact.kind] if mixed else []),
            terminal.moment(fact.valid_from),
            fact.fact_id,
            *([", ".join(f"{name} {value:.3f}" for name, value in fact.scores.items())] if debug else []),
        )
        for fact in report.facts
    )
    kind, scores = ["kind"] if mixed else [], ["scores"] if debug else []
    columns = ["score", "scope", "text" if mixed else "fact", *kind, "since", "id", *scores]
    empty = "no facts were found" if report.unformed else nothing("nothing was found", user)
    tables.show_table(columns, rows, empty)
    if report.unformed:
        _show_unformed(report.unformed)
    if report.text_only == "over_budget":
        typer.echo("no room in a budget: found by words alone (`eden budget list`)", err=True)
    for warning in report.warnings:
        typer.echo(f"done without {terminal.plain(warning)}", err=True)
    if debug:
        stages = (
            (stage.name, f"{stage.milliseconds:.1f}", stage.candidates) for stage in report.stages or ()
        )
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


def why(found: Sequence[Explained], user: str | None) -> None:
    """Show explanations as trees."""
    for number, explained in enumerate(found):
        tables.console().print(*[""] * bool(number), _tree(explained), sep="\n")
    if not found:
        typer.echo(nothing("nothing that may be seen here has these words", user), err=True)


def _tree(explained: Explained) -> Tree:
    text = tables.line(explained.content or terminal.as_written(explained.id))
    head = Text.assemble((explained.what, "bold"), " ", text)
    tree = Tree(head.append(f"\n{explained.outcome.replace('_', ' ')}: {terminal.plain(explained.because)}"))
    for step in explained.steps:
        tree.add(_step(step))
    return tree


def _step(step: ExplainedStep) -> Text:
    at = "" if step.at is None else f"  {terminal.moment(step.at)}"
    text = terminal.as_written(step.told) if step.what == "message" else step.told
    told = Text.assemble((step.what, "cyan"), " ", tables.line(text), (at, "dim"))
    return told if step.id is None else told.append(f"  {terminal.as_written(step.id)}", style="dim")


def audit(found: Audited, user: str | None) -> None:
    """Show the share of each kind, with its examples."""
    del user
    rows: list[tuple[str | Text, ...]] = []
    for junk in found.kinds:
        name = junk.kind.replace("_", " ")
        rows.append((name, f"{junk.count:,}", f"{junk.share:.1%}", "", "", ""))
        rows += [
            ("", "", "", tables.line(one.content), tables.line(one.because or ""), one.fact_id)
            for one in junk.examples
        ]
    columns = ("kind", "facts", "share", "example", "because of", "id")
    tables.show_table(columns, rows, "no facts")
    typer.echo(
        f"{found.facts:,} facts, of {found.with_messages:,} of which the messages are stored", err=True
    )
    if not found.whole:
        typer.echo("there are more: a bound was reached", err=True)
    for junk in found.kinds:
        if junk.preview is not None and found.whole and found.undo is None:
            typer.echo(
                f"retire these {junk.count:,}: --retire {junk.kind} --preview {junk.preview}", err=True
            )
    if found.undo is not None:
        typer.echo(f"asked to retire {found.retired:,}; undo: eden forget --caused-by import {found.undo}")
