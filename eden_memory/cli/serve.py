"""`eden serve`: HTTP API, inspector, chat gateway and MCP, in one process."""

from functools import partial
from typing import Annotated

import typer

from eden_memory.api.http import serving
from eden_memory.cli.structured_logs import configure
from eden_memory.settings import Settings
from eden_memory.stages import process
from eden_memory.telemetry.spans import exporting


def serve(
    operator: Annotated[
        bool,
        typer.Option(
            "--operator",
            help="also serve the inspector's pages for operators: lag, dead letters, namespaces, budgets",
        ),
    ] = False,
    debug: Annotated[bool, typer.Option(help="more log lines, and stack traces")] = False,
) -> None:
    """Serve the HTTP API, the inspector (/ui), the gateway and MCP until SIGTERM.

    On loopback without a key, elsewhere only with one (eden keys create). EDEN_SERVE_HOST and EDEN_SERVE_PORT
    say where. Any number of copies may run.
    """
    configure(debug=debug)
    settings = Settings()
    with exporting(settings):
        process.run_until_signal(partial(serving.serve, settings, operator=operator))
