"""`eden up`, `eden down`, `eden status`: the local servers."""

import json
from datetime import UTC, datetime

import typer
from rich.console import Console

from eden_memory.local import servers
from eden_memory.local.servers import ServerReport
from eden_memory.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the three commands."""
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)


def up() -> None:
    """Start MongoDB and Kafka locally, unless EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP name others."""
    for report in servers.up(Settings()):
        for note in report.notes:
            _say(f"  {note}")
        _say(_after_up(report))


def down() -> None:
    """Stop the local servers; their data stays."""
    stopped = servers.down(Settings())
    _say(f"stopped {' and '.join(stopped)}; the data is kept" if stopped else "no local server was running")


def status(as_json: bool = typer.Option(False, "--json", help="one JSON array on standard output")) -> None:
    """Say which servers run and where."""
    reports = servers.status(Settings())
    if as_json:
        typer.echo(json.dumps([report.model_dump(mode="json") for report in reports], indent=2))
        return
    for report in reports:
        _say(_line(report))


def _after_up(report: ServerReport) -> str:
    if report.origin == "settings":
        return f"{report.name}: {report.endpoint} is used as the settings say; nothing was started"
    word = "was running already" if report.already else "runs"
    return f"{report.name} {report.version} {word}: {report.endpoint}"


def _line(report: ServerReport) -> str:
    if report.origin == "settings":
        return f"{report.name}: {report.endpoint} (named by the settings)"
    if not report.running:
        return f"{report.name}: not running (`eden up` starts it)"
    where = f"{report.endpoint}, pid {report.pid}{_since(report)}, log {report.log}"
    return f"{report.name} {report.version}: {where}"


def _since(report: ServerReport) -> str:
    if report.started_at is None:
        return ""
    return f" since {datetime.fromtimestamp(report.started_at, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _say(line: str) -> None:
    Console(soft_wrap=True, highlight=False, markup=False).print(line)
