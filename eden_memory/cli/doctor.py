"""`eden doctor`: what people get wrong, looked at on the servers in use."""

import asyncio
import json
from dataclasses import asdict

import typer
from rich.console import Console

from eden_memory.cli.doctor_init import init
from eden_memory.cli.doctor_view import table
from eden_memory.doctor.examine import Examination, examine
from eden_memory.doctor.finding import Finding, failed
from eden_memory.replay.namespaces.namespace_names import checked
from eden_memory.settings import Settings


def doctor(
    as_json: bool = typer.Option(False, "--json", help="one JSON object on standard output"),
    rights: bool = typer.Option(False, "--rights", help="print the MongoDB role and the Kafka ACLs as well"),
    namespace: list[str] | None = typer.Option(
        None, "--namespace", help="one that is to be made: rights on its collections, too; may be repeated"
    ),
    proposing: bool = typer.Option(
        False, "--init", help="propose an eden.toml from the newest documents of a messages collection"
    ),
    collection: str | None = typer.Option(
        None,
        "--collection",
        help="[DATABASE.]COLLECTION for --init; unset: the one most like chat messages",
    ),
    write: bool = typer.Option(False, "--write", help="write what --init proposes to eden.toml"),
    force: bool = typer.Option(
        False, "--force", help="with --write: replace [source] and [messages] of an eden.toml that exists"
    ),
) -> None:
    """Check versions, replica set, permissions, clock, retention, topics, indexes and the field mapping."""
    if proposing:
        init(Settings(), collection, write=write, force=force)
        return
    examination = asyncio.run(examine(Settings(), [checked(one) for one in namespace or ()]))
    if as_json:
        typer.echo(json.dumps(asdict(examination), indent=2, ensure_ascii=False))
    else:
        _print(examination, rights=rights or _about_rights(examination.findings))
    if failed(examination.findings):
        raise typer.Exit(1)


def _about_rights(findings: list[Finding]) -> bool:
    return any(finding.check.endswith("permissions") and finding.state == "fail" for finding in findings)


def _print(examination: Examination, *, rights: bool) -> None:
    console = Console(highlight=False)
    console.print(table(examination.findings))
    if rights:
        plain = Console(soft_wrap=True, highlight=False, markup=False)
        plain.print(f"\nThe least that MongoDB has to allow (mongosh):\n\n{examination.mongodb_role}")
        plain.print(f"\nThe least that Kafka has to allow:\n\n{examination.kafka_acls}")
    console.print(_verdict(examination.findings, rights=rights))


def _verdict(findings: list[Finding], *, rights: bool) -> str:
    failures = sum(finding.state == "fail" for finding in findings)
    warnings = sum(finding.state == "warn" for finding in findings)
    more = "" if rights else "  (--rights prints the MongoDB role and the Kafka ACLs)"
    return f"\n{failures} to put right, {warnings} to think about, {len(findings)} checked{more}"
