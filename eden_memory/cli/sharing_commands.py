"""`eden sharing list|retire`: what private sharing hides of memory that all users of an agent would see."""

import asyncio
from typing import Annotated, Any

import typer
from bson import ObjectId

from eden_memory.cli import tables, terminal
from eden_memory.cli.terminal import confirm
from eden_memory.memory.snapshot_store import HiddenItem, MongoHidden
from eden_memory.replay.installation import installation
from eden_memory.schemas.documents import InboxFactCommand, InboxForget
from eden_memory.settings import Settings

Row = dict[str, Any]
REASON = "it rests on what users said, and sharing is private"
TOGETHER = 500
app = typer.Typer(
    help="Show and retire what private sharing hides from agents, groups and shards.",
    no_args_is_help=True,
)
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output")]


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Show everything hidden: memory that was formed as a team's before sharing became private."""
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


@app.command()
def retire(
    by: Annotated[str | None, typer.Option("--by", help="who asks, noted in the records")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
) -> None:
    """Retire everything hidden: facts keep their history, reflections are forgotten, blobs are made anew.

    A switch back to `team` shows none of it again.
    """
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
        hidden = MongoHidden(at.database, at.settings.names, settings.memory.sharing)
        return [item async for item in hidden.items()]


async def _ask(settings: Settings, documents: list[Row]) -> None:
    async with installation(settings) as at:
        inbox = at.source[settings.names[InboxForget.COLLECTION]]
        for start in range(0, len(documents), TOGETHER):
            await inbox.insert_many(documents[start : start + TOGETHER])
