"""`eden webhooks`: programs that are told of changes by HTTP."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from getpass import getuser
from typing import Annotated, TypeVar, cast, get_args

import typer

from eden_memory.app.memory import ProcessMemory
from eden_memory.cli.tables import show_table
from eden_memory.cli.terminal import moment
from eden_memory.errors import Invalid
from eden_memory.operations import webhook_calls
from eden_memory.schemas.documents import WebhookSubject
from eden_memory.settings import Settings

T = TypeVar("T")
app = typer.Typer(help="Tell other programs of changes by HTTP.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output")]


@app.command(
    epilog="eden webhooks add https://example.com/eden --on facts,reflections,forgotten --agent support"
)
def add(
    url: Annotated[str, typer.Argument(help="where to post to: https, at a public address")],
    on: Annotated[
        str, typer.Option(help="facts, reflections, forgotten, with commas between; forgotten follows always")
    ] = "facts,reflections,forgotten",
    agents: Annotated[
        list[str] | None, typer.Option("--agent", help="only of this agent (again: several)")
    ] = None,
    allow_private: Annotated[
        bool, typer.Option("--allow-private", help="also an address of this network, and http")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a webhook, and show the secret of its signatures, this once."""
    subjects = [name.strip() for name in on.split(",")]
    if unknown := sorted(set(subjects).difference(get_args(WebhookSubject))):
        raise Invalid(f"--on takes no {', '.join(unknown)}", f"Give {', '.join(get_args(WebhookSubject))}.")
    added = _run(
        lambda memory: webhook_calls.add_webhook(
            memory,
            url,
            cast(list[WebhookSubject], subjects),
            agents,
            allow_private=allow_private,
            asked_by=f"eden webhooks, {getuser()}",
        )
    )
    if as_json:
        typer.echo(added.model_dump_json())
        return
    typer.echo(added.secret)
    typer.echo(
        f"webhook {added.webhook.id} is added. The secret is shown this once: the receiver checks the "
        "signatures with it.",
        err=True,
    )


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the webhooks, and how many notices wait for each."""
    found = _run(webhook_calls.list_webhooks)
    if as_json:
        typer.echo(json.dumps([webhook.model_dump(mode="json") for webhook in found]))
        return
    columns = ("id", "url", "on", "agents", "added", "waiting", "failure")
    rows = [
        (
            webhook.id,
            webhook.url,
            ", ".join(webhook.on),
            "all" if webhook.agents is None else ", ".join(webhook.agents),
            moment(webhook.created_at),
            str(webhook.waiting),
            webhook.failure or "",
        )
        for webhook in found
    ]
    show_table(columns, rows, "no webhooks", whole=("id", "url"))


@app.command()
def remove(webhook_id: Annotated[str, typer.Argument(help="its id (`eden webhooks list`)")]) -> None:
    """Remove a webhook with what waits for it: nothing is sent to it any more, not even what is forgotten."""
    removed = _run(lambda memory: webhook_calls.remove_webhook(memory, webhook_id))
    typer.echo(f"webhook {removed.id} is removed")


def _run(work: Callable[[ProcessMemory], Awaitable[T]]) -> T:
    async def done() -> T:
        memory = ProcessMemory(Settings())
        try:
            return await work(memory)
        finally:
            await memory.close()

    return asyncio.run(done())
