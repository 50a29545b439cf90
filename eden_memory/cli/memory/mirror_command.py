"""`eden mirror`: keep memory as a folder of Markdown files, and take the changes that people make there."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from eden_memory.cli import structured_logs
from eden_memory.cli.memory.viewer import Agent, Session, User, Viewer, who
from eden_memory.errors import Invalid
from eden_memory.files.mirror_folder import MirrorFolder
from eden_memory.files.mirroring import MirroredMemory, Mirroring
from eden_memory.mongo.ids import decode_id
from eden_memory.settings import Settings
from eden_memory.tasks import heeding

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="the folder of the files")]


def mirror(
    folder: Folder,
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    new: Annotated[bool, typer.Option("--new", help="make an empty folder a mirror")] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="take the files as they are, however much is missing")
    ] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="discard what the files say; write them from memory")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="more log lines, and stack traces")] = False,
) -> None:
    """Mirror memory to a folder of Markdown files, and take edits of the files back, until Ctrl-C.

    There is one file for each scope that the user may see.
    A line that you edit, add or delete is edited, added or retired in memory.

    Examples:

    eden mirror notes --new --user ada --agent support

    eden mirror notes --user ada --agent support
    """
    if accept and restore:
        raise Invalid("--accept and --restore exclude each other", "Take the files, or discard them.")
    structured_logs.configure(debug=debug)
    with suppress(KeyboardInterrupt):
        begin = partial(Mirroring, accept=accept, restore=restore)
        asyncio.run(heeding(_mirror(begin, folder, (agent, session, user), new=new)))


async def _mirror(
    begin: Callable[[MirroredMemory, MirrorFolder], Mirroring],
    path: Path,
    viewer: tuple[str | None, str | None, str | None],
    *,
    new: bool,
) -> None:
    async with who(Settings(), *viewer) as found:
        folder = _folder(path, found, new=new)
        try:
            mirroring = begin(_memory(found), folder)
            typer.echo(f"mirroring memory to {path}, until Ctrl-C")
            await mirroring.run()
        finally:
            folder.close()


def _memory(found: Viewer) -> MirroredMemory:
    agent = decode_id(found.asker.agent_id)
    return MirroredMemory(found.memory.memory, agent, found.session, found.user)


def _folder(path: Path, found: Viewer, *, new: bool) -> MirrorFolder:
    """Open the folder, which mirrors the memory of one viewer in one database."""
    asker = found.asker
    whose = {"agent": asker.agent_id, "session": asker.session_id, "user": asker.user_id}
    named = [f"{name} {value}" for name, value in whose.items() if value is not None]
    folder = MirrorFolder(path, ", ".join([found.memory.memory.settings.mongodb.database, *named]))
    if new:
        folder.create()
    folder.open()
    return folder
