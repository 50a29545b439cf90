"""`eden export FILE`: write memory to a file of JSON lines."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from eden_memory.cli.live_namespace import agent_and_user
from eden_memory.cli.memory.viewer import AS_ID
from eden_memory.cli.replay.progress import TransferProgress
from eden_memory.cli.replay.rebuild import stopped, to_its_end
from eden_memory.files.export_file import Selection
from eden_memory.files.exporting import ExportCounts, export_memory
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings

SHOWN = 20


def export(
    file: Annotated[Path, typer.Argument(help="the file to write, which must not exist")],
    agent: Annotated[str | None, typer.Option(help=f"only this agent's memory, {AS_ID}")] = None,
    user: Annotated[
        str | None,
        typer.Option(help=f"only this user's memory, and sessions in which nobody else was, {AS_ID}"),
    ] = None,
) -> None:
    """Write memory with its whole history to a file of JSON lines, which `eden import eden FILE` takes.

    Live memory and its topics are only read. Exit code 130: stopped, and no file was written.

    Examples:

    eden export memory.jsonl

    eden export --user ada ada.jsonl
    """
    selection = Selection(*agent_and_user(agent, user))
    if not to_its_end(_export(Settings(), selection, file, Console(highlight=False, soft_wrap=True))):
        stopped(f"eden export {file}", "begins anew")


async def _export(settings: Settings, selection: Selection, file: Path, console: Console) -> None:
    async with installation(settings) as at:
        with TransferProgress(console) as bar:
            exported = await export_memory(at, selection, file, datetime.now(UTC), bar)
    for line in _told(exported):
        console.print(line, markup=False)
    console.print(f"{file}: {exported.records:,} records of {len(exported.scopes):,} scopes", markup=False)


def _told(exported: ExportCounts) -> list[str]:
    """Return what was left out, for people."""
    lines = [f"{exported.forgotten:,} records left out: they are forgotten"] if exported.forgotten else []
    if bad := exported.unreadable:
        lines += [
            f"{len(bad):,} records left out that cannot be read:",
            *(f"  {line}" for line in bad[:SHOWN]),
        ]
    return lines
