"""The `eden` command: one line a command family; each family stands in a file of its own."""

import sys

import typer

from eden_memory.cli import (
    context,
    dead,
    demo,
    doctor,
    forget,
    groups,
    keys,
    models,
    pause,
    reembed,
    run,
    schemas,
    servers,
    sessions,
    setup,
    tap,
    topics,
    watch,
)
from eden_memory.domain.errors import EdenError

app = typer.Typer(
    name="eden",
    help="Long-term memory for AI agents, formed in the background from chat writes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
servers.register(app)
app.command("context")(context.context)
app.command("doctor")(doctor.doctor)
app.command("setup")(setup.setup)
app.command("run")(run.run)
app.command("demo")(demo.demo)
app.command("forget")(forget.forget)
app.command("pause")(pause.pause)
app.command("reembed")(reembed.reembed)
app.command("resume")(pause.resume)
app.add_typer(dead.app, name="dead")
app.add_typer(groups.app, name="groups")
app.add_typer(keys.app, name="keys")
app.add_typer(models.app, name="models")
app.command("tap")(tap.tap)
app.command("watch")(watch.watch)
app.command("windows")(sessions.windows)
app.add_typer(sessions.app, name="session")
app.add_typer(topics.app, name="topics")
app.add_typer(schemas.app, name="schemas")


def main() -> None:
    """Entry point: an EdenError becomes a sentence, and a stack trace only with `--debug`."""
    try:
        app()
    except EdenError as error:
        if "--debug" in sys.argv:
            raise
        typer.secho(error.what, err=True, fg="red", bold=True)
        if error.hint:
            typer.echo(error.hint, err=True)
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main())
