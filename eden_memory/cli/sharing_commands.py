"""`eden sharing list|move|retire`: what came from users into memory that others see, and what of it is hidden."""

import asyncio
from typing import Annotated, Any

import typer
from bson import ObjectId

from eden_memory.cli import tables, terminal
from eden_memory.cli.terminal import confirm
from eden_memory.directory.directory_store import agents_that_say
from eden_memory.errors import EdenError
from eden_memory.memory.snapshot_store import HiddenItem, MongoHidden
from eden_memory.memory.user_memory_store import SharedItem, SharedItems, taken_back
from eden_memory.replay.installation import Installation, installation
from eden_memory.schemas.documents import InboxFactCommand, InboxForget
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask_all

Row = dict[str, Any]
REASON = "it rests on what users said, and sharing is private"
TOGETHER = 500
app = typer.Typer(
    help="Show what came from users into shared memory; give it back to its user, or retire it.",
    no_args_is_help=True,
)
Ids = Annotated[list[str], typer.Argument(help="ids of facts and reflections (`eden sharing list`)")]
By = Annotated[str | None, typer.Option("--by", help="who asks, noted in the records")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output")]


@app.command("list")
def list_(
    hidden: Annotated[
        bool, typer.Option("--hidden", help="only what private sharing hides, blobs too")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="the newest so many")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show what came from users into memory of agents, shards and groups, newest first, and from which sessions."""
    if hidden:
        _show_hidden(as_json)
        return
    found = asyncio.run(_shared(Settings(), limit))
    if as_json:
        terminal.show_json([_shown_shared(item) for item in found])
        return
    rows = [
        (
            item.kind,
            terminal.scope_name(item.scope),
            tables.line(item.content),
            ", ".join(item.session_ids),
            ", ".join(item.users),
            item.id,
        )
        for item in found
    ]
    tables.show_table(("what", "of", "text", "sessions", "users", "id"), rows, "nothing came from users")


@app.command()
def move(ids: Ids, by: By = None) -> None:
    """Give items of shared memory to the one user who said them; what says the same is not shared again."""
    _take_back(ids, by, move=True)


@app.command()
def retire(
    ids: Annotated[
        list[str] | None, typer.Argument(help="ids of facts and reflections; none: all hidden")
    ] = None,
    by: By = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Retire items of shared memory; without ids everything that private sharing hides.

    Facts keep their history, hidden reflections are forgotten, blobs are made anew. What says the same as an item
    that was named here is not shared again.
    """
    if ids:
        _take_back(ids, by, move=False)
        return
    settings = Settings()
    found = asyncio.run(_found(settings))
    kinds = {
        kind: sum(hidden_item.kind == kind for hidden_item in found)
        for kind in ("fact", "reflection", "blob")
    }
    if not found:
        typer.echo("Nothing is hidden.")
        return
    if not yes:
        confirm(
            f"Retire {kinds['fact']} facts, forget {kinds['reflection']} reflections for ever, and make "
            f"{kinds['blob']} blobs anew without them?"
        )
    asyncio.run(
        _ask(settings, [_request(hidden_item, by) for hidden_item in found if hidden_item.kind != "blob"])
    )
    typer.echo(
        f"Asked for {kinds['fact']} facts and {kinds['reflection']} reflections: a running system carries it out "
        "within moments, and makes the blobs anew that absorbed them."
    )


def _take_back(ids: list[str], by: str | None, *, move: bool) -> None:
    settings = Settings()
    found = asyncio.run(_named(settings, ids))
    missing = set(ids) - {item.id for item in found}
    if missing:
        raise EdenError(
            f"no shared memory of users has the id {', '.join(sorted(missing))}",
            "`eden sharing list` shows the ids.",
        )
    of_several = [item.id for item in found if len(item.users) != 1]
    if move and of_several:
        raise EdenError(
            f"{', '.join(of_several)} rests on the words of several users, or of none that is known",
            "Retire it: `eden sharing retire ID`.",
        )
    documents = [document for item in found for document in taken_back(item, by, move=move)]
    asyncio.run(_ask(settings, documents))
    typer.echo(f"Asked for {len(found)}: a running system carries it out within moments.")


def _shown_shared(item: SharedItem) -> Row:
    return {
        "kind": item.kind,
        "id": item.id,
        "scope_key": item.scope.key,
        "content": item.content,
        "said_at": item.said_at,
        "sessions": item.session_ids,
        "users": item.users,
    }


def _show_hidden(as_json: bool) -> None:
    found = asyncio.run(_found(Settings()))
    if as_json:
        terminal.show_json([_shown(hidden_item) for hidden_item in found])
        return
    rows = [
        (
            hidden_item.kind,
            terminal.scope_name(hidden_item.scope),
            tables.line(hidden_item.content),
            hidden_item.id,
        )
        for hidden_item in found
    ]
    tables.show_table(("what", "of", "text", "id"), rows, "nothing is hidden")


def _request(hidden_item: HiddenItem, by: str | None) -> Row:
    if hidden_item.kind == "fact":
        command = InboxFactCommand(
            _id=ObjectId(),
            kind="fact_command",
            scope=hidden_item.scope,
            action="retire",
            fact_id=hidden_item.id,
            by="person",
            reason=REASON,
            asked_by=by,
        )
        return command.model_dump(exclude_none=True)
    forget = InboxForget(_id=ObjectId(), kind="forget", what="reflection", target=hidden_item.id, asked_by=by)
    return forget.model_dump(exclude_none=True)


def _shown(hidden_item: HiddenItem) -> Row:
    return {
        "kind": hidden_item.kind,
        "id": hidden_item.id,
        "scope_key": hidden_item.scope.key,
        "content": hidden_item.content,
    }


async def _found(settings: Settings) -> list[HiddenItem]:
    async with installation(settings) as at:
        learning = await agents_that_say(at.source, settings)
        hidden = MongoHidden(at.database, at.settings.names, settings.memory.sharing, learning)
        return [item async for item in hidden.items()]


async def _shared(settings: Settings, limit: int) -> list[SharedItem]:
    async with installation(settings) as at:
        return await _items(at).newest(limit)


async def _named(settings: Settings, ids: list[str]) -> list[SharedItem]:
    async with installation(settings) as at:
        return await _items(at).of(ids)


def _items(at: Installation) -> SharedItems:
    return SharedItems(at.database, at.settings.names, forgets=at.settings.messages.forgets)


async def _ask(settings: Settings, documents: list[Row]) -> None:
    async with installation(settings) as at:
        inbox = at.source[settings.names[InboxForget.COLLECTION]]
        for start in range(0, len(documents), TOGETHER):
            await ask_all(inbox, documents[start : start + TOGETHER])
