"""`eden stats`, and the consolidation part of `eden status`: figures of the visible scopes."""

from collections.abc import Mapping

from eden_memory.cli import tables, terminal
from eden_memory.cli.memory.viewer import NOTHING, Agent, AsJson, Session, User, Viewer, ask, nothing
from eden_memory.memory.results import ConsolidationStatus, ScopeStats


def stats(agent: Agent = None, session: Session = None, user: User = None, as_json: AsJson = False) -> None:
    """Count memory scope by scope: words, versions, reflections, facts, times.

    Examples:

    eden stats --user ada

    eden stats --session s1 --json
    """

    async def work(who: Viewer) -> dict[str, ScopeStats]:
        return await who.memory.get_memory_stats(**who.named)

    found = ask(agent, session, user, work)
    if as_json:
        terminal.show_json(found)
        return
    rows = (
        (
            name,
            scope_stats.words,
            scope_stats.blob_version or "",
            scope_stats.reflections,
            scope_stats.buffered,
            scope_stats.facts,
            terminal.moment(scope_stats.consolidated_at),
            terminal.moment(scope_stats.changed_at),
        )
        for name, scope_stats in found.items()
    )
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
    tables.show_table(columns, rows, nothing(NOTHING, user))


def consolidation(agent: str | None, session: str | None, user: str | None) -> dict[str, ConsolidationStatus]:
    """Return the consolidation status of the visible scopes."""

    async def work(who: Viewer) -> dict[str, ConsolidationStatus]:
        return await who.memory.get_consolidation_status(**who.named)

    return ask(agent, session, user, work)


def show_consolidation(found: Mapping[str, ConsolidationStatus], user: str | None) -> None:
    """Print the status as a table."""
    rows = (
        (
            name,
            f"{consolidation_status.buffered} of {consolidation_status.threshold}",
            "yes" if consolidation_status.due else "",
            terminal.moment(consolidation_status.consolidated_at),
        )
        for name, consolidation_status in found.items()
    )
    tables.show_table(("scope", "buffered", "due", "consolidated"), rows, nothing(NOTHING, user))
