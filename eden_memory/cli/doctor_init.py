"""`eden doctor --init`: proposes the mapping of an application's messages, and writes `eden.toml`."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from eden_memory.cli.doctor_view import table
from eden_memory.doctor.candidates import Candidate, candidates, missing_indexes, sessions_beside
from eden_memory.doctor.finding import Finding, failed
from eden_memory.doctor.inner_messages import listed_messages
from eden_memory.doctor.mapping import judge_documents
from eden_memory.doctor.proposed_findings import finding_of_listed, findings_of, findings_of_sessions
from eden_memory.doctor.proposed_toml import Place, as_toml, merged
from eden_memory.doctor.proposing_sessions import SessionsProposal
from eden_memory.errors import EdenError
from eden_memory.local.servers import mongodb_endpoint
from eden_memory.mongo.client import connect
from eden_memory.settings import MessagesSettings, Settings


@dataclass(frozen=True, slots=True)
class Found:
    """What a proposal rests on."""

    best: Candidate
    others: Sequence[Candidate]
    sessions: SessionsProposal | None
    indexes: list[Finding]


FILE = Path("eden.toml")
NEXT = "Then: eden doctor, eden topics apply, eden setup, eden run."


def init(settings: Settings, collection: str | None, *, write: bool, force: bool) -> None:
    """Print the proposal on standard output, what follows from it on standard error; write it if that is wanted."""
    if write and FILE.exists() and not force:
        raise EdenError(
            f"{FILE} exists", "Add --force: its [source] and [messages] are replaced, the rest stays."
        )
    found = asyncio.run(_found(settings, collection))
    best = found.best
    said = Console(stderr=True, highlight=False, soft_wrap=True)
    said.print(f"{best.name}: the newest {len(best.documents)} documents", markup=False)
    if found.others:
        listed = ", ".join(other.name for other in found.others)
        said.print(f"these look like messages too: {listed} (--collection takes one of them)", markup=False)
    findings = _findings(settings, found)
    said.print(table(findings))
    proposed = as_toml(
        best.proposal,
        Place(best.database, best.collection, settings.mongodb.database),
        len(best.documents),
        found.sessions,
    )
    typer.echo(proposed, nl=False)
    if failed(findings):
        said.print("not written: put right what is marked ✗ first", markup=False)
        raise typer.Exit(1)
    if write or _confirmed():
        _write(proposed)
        said.print(f"{FILE} is written. {NEXT}", markup=False)


async def _found(settings: Settings, collection: str | None) -> Found:
    async with connect(settings.mongodb, mongodb_endpoint(settings)) as client:
        best, *others = await candidates(client, settings, collection)
        sessions = await sessions_beside(client, settings, best)
        listed = sessions is not None and sessions.users is not None
        indexes = await missing_indexes(client, _mapped(settings, best), best.database, listed=listed)
        return Found(best, others, sessions, indexes)


def _findings(settings: Settings, found: Found) -> list[Finding]:
    """Fields first, then whether they map the documents, what stands beside these, and which indexes are missing."""
    best = found.best
    findings = findings_of(best.proposal)
    if best.proposal.content is None and (inner := listed_messages(best.documents)) is not None:
        return [finding_of_listed(inner[0])]
    if failed(findings):
        return findings
    findings += judge_documents(best.documents, _mapped(settings, best))
    if found.sessions is not None:
        findings += findings_of_sessions(found.sessions)
    return findings + found.indexes


def _mapped(settings: Settings, best: Candidate) -> Settings:
    paths = {name: path for name, path in best.proposal.paths.items() if path is not None}
    mapped: dict[str, Any] = {**paths, "roles": dict(best.proposal.roles)}
    messages = MessagesSettings(collection=best.collection, **mapped)
    return settings.model_copy(update={"messages": messages})


def _confirmed() -> bool:
    """Ask on a terminal where no file is in the way."""
    if FILE.exists() or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return typer.confirm(f"Write this to {FILE}?", err=True)


def _write(proposed: str) -> None:
    FILE.write_text(merged(FILE.read_text(), proposed) if FILE.exists() else proposed)
