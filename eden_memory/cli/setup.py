"""`eden setup` and `eden reembed`: collections and indexes, and vectors of the configured model for all facts."""

import asyncio
import json
import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from eden_memory.assembly.mongo_setup import check_all, dimensions_of, set_up
from eden_memory.directory.id_reader_store import IdReader
from eden_memory.errors import EdenError, describe
from eden_memory.memory.memory_index_store import SHARING_MEANS, settle_sharing, stored_sharing
from eden_memory.memory.snapshot_store import refuse_unhiding
from eden_memory.memory.upkeep_store import Reembedding
from eden_memory.models.catalogue import vectors_of
from eden_memory.receipts.signing_key import ensured_key
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.source.messages_store import inbox_name
from eden_memory.tasks import heeding
from eden_memory.windows.window_list_store import look_again

FILE = Path("eden.toml")
NEW = 10
"""Collections made at once in a new database, which gets too many indexes to read."""


def setup(
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="numbers of a vector; unset: the embedder's default")
    ] = None,
    wait: Annotated[float, typer.Option(help="seconds to wait until search indexes answer")] = 300.0,
    only_check: Annotated[
        bool, typer.Option("--check", help="change nothing; exit code 1 if anything lacks")
    ] = False,
) -> None:
    """Create memory's collections, validators and indexes where they are missing; safe to repeat."""
    settings = Settings()
    if not only_check and (problem := _key_problem(settings.receipts.key)) is not None:
        typer.echo(problem)
    done = asyncio.run(_work(settings, dimensions or dimensions_of(settings), wait, only_check=only_check))
    if not only_check and settings.agents.default is None and settings.sessions.collection is not None:
        agent = asyncio.run(_only_agent(settings))
        if agent is not None:
            _settle(agent)
    for line in done if only_check else _made(done, settings.mongodb.database):
        typer.echo(line)
    if not done:
        typer.echo("everything is there")
    elif only_check:
        raise typer.Exit(1)


def _key_problem(path: Path) -> str | None:
    """Make the key for receipts; return why it could not be made, as memory works without it."""
    try:
        ensured_key(path)
    except (EdenError, OSError) as error:
        return f"receipts cannot be signed: {describe(error)}"
    return None


def _made(done: Sequence[str], database: str) -> list[str]:
    """Name what was made; only count what a new database gets."""
    if sum(line.startswith("collection ") for line in done) < NEW:
        return [f"made {line}" for line in done]
    kinds = Counter(re.sub(r"( of)? \S+$", "", line) for line in done)
    told = ", ".join(f"{number} {kind}{'es' if kind[-1] == 'x' else 's'}" for kind, number in kinds.items())
    return [f"made {told} in the database {database}"]


async def _work(settings: Settings, dimensions: int, wait: float, *, only_check: bool) -> list[str]:
    async with installation(settings, restored_too=True) as at:
        database, names = at.database, at.settings.names
        if only_check:
            return await check_all(database, names, dimensions)
        made = await set_up(database, names, dimensions, wait)
        if settings.windows.stale_hours:
            await look_again(database[names["messages"]], names["sessions"])
        before = await stored_sharing(database, names)
        await refuse_unhiding(database, names, settings.memory.sharing)
        sharing = await settle_sharing(database, names, settings.memory.sharing)
        if sharing != before:
            typer.echo(
                f"memory of sessions with users is {sharing}: {SHARING_MEANS[sharing]} (memory.sharing)"
            )
        return made


async def _only_agent(settings: Settings) -> str | None:
    """Return the typed id of the one agent that the newest sessions name."""
    async with installation(settings, restored_too=True) as at:
        agents = await IdReader(at.source, settings).sample("agent")
        return agents[0] if len(agents) == 1 else None


def _settle(agent: str) -> None:
    """Write the agent of calls that name none to eden.toml, or say how to set it."""
    if FILE.exists() and "agents" not in tomllib.loads(FILE.read_text()):
        FILE.write_text(f"{FILE.read_text().rstrip()}\n\n[agents]\ndefault = {json.dumps(agent)}\n")
        typer.echo(f"{FILE}: calls that name no agent are for {agent}, as all sessions are")
    else:
        typer.echo(f"all sessions are of one agent: set EDEN_AGENTS_DEFAULT={agent} for calls that name none")


LOOK_SECONDS = 1.0


def reembed(
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="show the progress until all facts have their vector")
    ] = True,
) -> None:
    """Embed all facts of another embedding model again; safe to stop and repeat."""
    with suppress(KeyboardInterrupt):
        asyncio.run(heeding(_reembed(Settings(), wait=wait)))


async def _reembed(settings: Settings, *, wait: bool) -> None:
    console, model = Console(highlight=False), vectors_of(settings)
    async with installation(settings) as at:
        work = Reembedding(at.database, at.settings.names, at.source[inbox_name(settings)], model)
        count = await work.left()
        if not count:
            console.print(f"every active fact has a vector of {model}")
            return
        written = 0
        async for written in work.ask():
            console.print(f"asked for {written:,} of {count:,} facts")
        if wait:
            console.print("waiting for `eden run`, which carries it out; Ctrl-C stops only the watching")
            await _watch_reembedding(work, console, count)


async def _watch_reembedding(work: Reembedding, console: Console, count: int) -> None:
    columns = (TextColumn("new vectors"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=count)
        while left := await work.left():
            progress.update(bar, total=max(count, left), completed=max(count - left, 0))
            await asyncio.sleep(LOOK_SECONDS)
        progress.update(bar, completed=count)
