"""`eden reform report` and `eden namespace diff`: what another memory says that live memory does not."""

import asyncio
import json
import sys
from typing import Annotated

import typer

from eden_memory.cli.replay.report_view import show
from eden_memory.cli.tables import console
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.replay.comparing.memory_report import ReportRequest, compared
from eden_memory.replay.comparing.report import MemoryReport
from eden_memory.settings import Settings
from eden_memory.structured_logs import warnings_only

MOST = 10
Name = Annotated[str, typer.Argument(help="the namespace")]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="only scopes whose key begins so: user:, user:s.bot:s.ana; may be repeated"),
]
Most = Annotated[
    int, typer.Option("--most", min=0, help="scopes, and differences of each kind, that are listed; 0: all")
]
Against = Annotated[
    str | None,
    typer.Option(help="compare with this namespace (`original` is the first); else with what is live"),
]
Similar = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="(1 + cosine) / 2 from which a fact is another's new wording"),
]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="exit code 1 if anything differs")]


def report(
    name: Name,
    as_json: AsJson = False,
    scope: Scopes = None,
    most: Most = MOST,
    against: Against = None,
    similar: Similar = None,
    exit_code: ExitCode = False,
) -> None:
    """Show what a namespace remembers that live memory does not, and the other way round: the largest first."""
    wanted = ReportRequest(against, tuple(scope or ()), most or None, similar)
    with warnings_only():
        found = asyncio.run(_report(Settings(), name, wanted))
    if as_json:
        typer.echo(json.dumps(found.json(), indent=2))
    else:
        show(console(), found)
    if exit_code and not found.equal:
        sys.exit(1)


async def _report(settings: Settings, name: str, wanted: ReportRequest) -> MemoryReport:
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        return await compared(settings, client[settings.mongodb.database], name, wanted)
