"""`eden watch`: memory as it forms, on a running system."""

import asyncio
from contextlib import suppress
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from eden_memory.cli.live_namespace import live_now
from eden_memory.cli.terminal import plain
from eden_memory.metrics import known_cost
from eden_memory.observability.watching import CallTotals, FormationProgress, NewMemory, watching
from eden_memory.schemas.ids import split
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from eden_memory.tasks import heeding


def watch() -> None:
    """Show windows, facts with their decisions, reflections, blobs, calls, cost and lag, until Ctrl-C."""
    with suppress(KeyboardInterrupt):
        asyncio.run(heeding(_watch(Settings())))


async def _watch(settings: Settings) -> None:
    progress = FormationProgress()
    console = Console(highlight=False)
    with Live(console=console, refresh_per_second=4, get_renderable=lambda: render(progress)):
        async with watching(await live_now(settings, restored_too=False), progress):
            await asyncio.Event().wait()


MOST_BLOBS = 2
COLOURS = {"fact": "cyan", "reflection": "magenta", "blob": "green"}


def render(progress: FormationProgress) -> Any:
    """The whole picture."""
    parts: list[Any] = [_counts(progress)]
    if progress.newest:
        parts += [Text(), _newest(progress)]
    if progress.spent:
        parts += [Text(), _spent(progress)]
    if progress.lag:
        parts += [Text(), _lag(progress)]
    return Group(*parts)


def scope_name(key: str) -> str:
    """A scope as a person would say it: `user mara`, `session s-1`, `agent juniper`."""
    scope = Scope.of_key(key, "s.")
    named = scope.user_id or scope.group_id or scope.session_id or scope.shard
    if named is None:
        return plain(f"agent {split(key.partition(':')[2])[1]}")
    return plain(f"{scope.kind} {named if scope.kind == 'shard' else split(named)[1]}")


def _counts(progress: FormationProgress) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", width=13)
    table.add_column()
    windows = f"{progress.windows} window{'s' * (progress.windows != 1)}"
    rows = {
        "messages": f"{progress.messages}, {progress.windowed} of them in {windows}",
        "facts": ", ".join(f"{count} {name}" for name, count in sorted(progress.decisions.items())) or "-",
        "reflections": ", ".join(f"{count} {kind}" for kind, count in progress.reflections.items()) or "-",
        "blobs": _blobs(progress) or "-",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _blobs(progress: FormationProgress) -> str:
    """The newest blobs, and how many others there are: a system with thousands of scopes fits the screen, too."""
    newest = list(progress.blobs.items())[-MOST_BLOBS:]
    told = [f"{scope_name(key)} v{version} ({words} words)" for key, (version, words) in newest]
    others = len(progress.blobs) - len(newest)
    return ", ".join(told) + (f", and {others} others" if others else "")


def _newest(progress: FormationProgress) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("new", header_style="dim", width=10)
    table.add_column("scope", header_style="dim", width=20, no_wrap=True, overflow="ellipsis")
    table.add_column("text", header_style="dim", ratio=3, no_wrap=True, overflow="ellipsis")
    table.add_column("why", header_style="dim", ratio=1, no_wrap=True, overflow="ellipsis")
    for item in progress.newest:
        text, why = (Text(plain(said.replace("\n", " "))) for said in (item.text, item.why))
        table.add_row(_what(item), Text(scope_name(item.scope)), text, why)
    return table


def _what(item: NewMemory) -> Text:
    return Text(item.what, style=COLOURS[item.what])


def _spent(progress: FormationProgress) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("calls of", "calls", "failed", "tokens in", "tokens out", "USD"):
        table.add_column(name, header_style="dim", justify="left" if name == "calls of" else "right")
    for stage, spent in [*progress.spent.items(), ("all", progress.total)]:
        table.add_row(stage, *_figures(spent))
    return table


def _figures(spent: CallTotals) -> tuple[str, ...]:
    known = known_cost(spent.cost, spent.calls, spent.unpriced, spent.tokens_in + spent.tokens_out)
    cost = "unknown" if known is None else f"{known:.4f}"
    if known is not None and spent.unpriced:
        cost += f" + {spent.unpriced} unknown"
    figures = spent.calls, spent.failed or "", f"{spent.tokens_in:,}", f"{spent.tokens_out:,}"
    return (*map(str, figures), cost)


def _lag(progress: FormationProgress) -> Text:
    behind = ", ".join(f"{group} {count}" for group, count in progress.lag.items() if count)
    return Text(f"lag, records: {behind or 'none'}", style="dim")
