"""`eden run`: the tailer and the stages, all in one process or some of them."""

from functools import partial
from typing import Annotated

import typer

from eden_memory.app import system as app
from eden_memory.cli.structured_logs import configure
from eden_memory.settings import Settings
from eden_memory.stages import process
from eden_memory.telemetry.spans import exporting


def run(
    parts: Annotated[
        list[str] | None, typer.Argument(help="tailer, stages, janitor, lag; none named: all")
    ] = None,
    debug: Annotated[bool, typer.Option(help="a log line per finished event, and stack traces")] = False,
    new_source: Annotated[
        bool,
        typer.Option(
            "--new-source",
            help="form memory from another messages collection than before, or from one that is empty now: "
            "ends the records of messages that are not in it",
        ),
    ] = False,
) -> None:
    """Run the tailer and the stages until SIGTERM; any number of copies may run."""
    configure(debug=debug)
    settings = Settings()
    with exporting(settings):
        process.run_until_signal(partial(app.run, settings, parts or [], new_source=new_source))
