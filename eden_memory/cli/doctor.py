"""`eden doctor`: check the servers in use for common mistakes."""

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from eden_memory.cli.terminal import folded, plain
from eden_memory.doctor.examine import Examination, examine
from eden_memory.doctor.finding import Finding, failed
from eden_memory.doctor.known_shapes import listed_rows
from eden_memory.doctor.mapping_checks import (
    MessagesCandidate,
    agents_beside,
    candidates,
    judge_documents,
    missing_indexes,
    only_answering,
    rooms_among,
    sampled,
    sessions_beside,
    users_beside,
)
from eden_memory.doctor.mapping_proposal import samples
from eden_memory.doctor.proposed_mapping import (
    ProposedPlace,
    as_toml,
    findings_of,
    merged,
    readings_of,
)
from eden_memory.doctor.proposed_rooms import CHOICES, RoomChoice, SampledRooms, chosen_line, finding_of_rooms
from eden_memory.doctor.proposed_sessions import (
    PeopleProposal,
    SessionsProposal,
    finding_of_agents,
    finding_of_users,
    findings_of_sessions,
)
from eden_memory.errors import EdenError
from eden_memory.local.servers import mongodb_endpoint
from eden_memory.mongo.client import connect
from eden_memory.replay.namespaces.namespace_store import checked
from eden_memory.settings import MessagesSettings, SessionsSettings, Settings


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
    canary: bool = typer.Option(
        False, "--canary", help="plant a unique word in memory, forget it, and look for it everywhere"
    ),
    agent: str = typer.Option("default", "--agent", help="with --canary: the agent that it is said to"),
    compact: bool = typer.Option(
        False, "--compact", help="with --canary: then have Kafka compact its topics, and look in their files"
    ),
    force: bool = typer.Option(
        False,
        "--force",
        help="with --write: replace the groups source and messages of an eden.toml that exists",
    ),
) -> None:
    """Check servers, rights, topics, mapping, models, dead letters, and all that `eden run` refuses."""
    if proposing:
        init(Settings(), collection, write=write, force=force)
        return
    if canary:
        from eden_memory.doctor.canary import canary as planted  # noqa: PLC0415 - of the extra `run`

        findings = asyncio.run(planted(Settings(), agent, compact=compact))
        show(Console(highlight=False), findings)
        raise typer.Exit(int(failed(findings)))
    examination = asyncio.run(examine(Settings(), [checked(name) for name in namespace or ()]))
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
    show(console, examination.findings)
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


MARKS = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "fail": ("✗", "red")}


def show(console: Console, findings: list[Finding]) -> None:
    """Print a row for each finding, with the remedy below it, in which no word of a command is broken."""
    width = max((len(finding.check) for finding in findings), default=0)
    for finding in findings:
        mark, colour = MARKS[finding.state]
        row = Table(box=None, pad_edge=False, show_header=False)
        row.add_column(width=1)
        row.add_column(width=width, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(Text(mark, style=colour), finding.check, Text(finding.what))
        console.print(row)
        if finding.hint and finding.state != "ok":
            lines = folded(finding.hint, "   → ", "     ")
            console.print(Text("\n".join(lines), style="dim"), soft_wrap=True)


@dataclass(frozen=True, slots=True)
class FoundMapping:
    """The collection that a mapping is proposed for, and everything read for the proposal."""

    best: MessagesCandidate
    others: Sequence[MessagesCandidate]
    sessions: SessionsProposal | None
    indexes: list[Finding]
    users: PeopleProposal | None = None
    agents: PeopleProposal | None = None
    rooms: SampledRooms | None = None


FILE = Path("eden.toml")
BY_HAND = f"Put right what is marked ✗, or copy the lines above into {FILE} and correct them there."
NEXT = "Then: eden doctor, eden topics apply, eden setup, eden run."


def init(settings: Settings, collection: str | None, *, write: bool, force: bool) -> None:
    """Print the proposal on standard output, what follows from it on standard error; write it if that is wanted."""
    if write and FILE.exists() and not force:
        raise EdenError(
            f"{FILE} exists", "Add --force: its [source] and [messages] are replaced, the rest stays."
        )
    best, *others = asyncio.run(_candidates(settings, collection))
    said = Console(stderr=True, highlight=False, soft_wrap=True)
    said.print(f"{best.name}: {sampled(best.documents)}", markup=False)
    best = _chosen(best, said)
    found = asyncio.run(_found(settings, best, others))
    if found.others:
        listed = ", ".join(other.name for other in found.others)
        said.print(f"these look like messages too: {listed} (--collection takes one of them)", markup=False)
    findings = proposal_findings(settings, found)
    show(said, findings)
    choice = _choice(found.rooms, said) if found.rooms is not None and not failed(findings) else None
    sessions = found.sessions and replace(found.sessions, has_groups=choice == "group")
    proposed = as_toml(
        best.proposal,
        ProposedPlace(best.database, best.collection, settings.mongodb.database, settings.mongodb.uri),
        len(best.documents),
        sessions,
        found.users,
        found.agents,
        found.rooms,
        choice,
    )
    typer.echo(proposed, nl=False)
    if failed(findings):
        said.print(f"{FILE} is not written. {BY_HAND}", markup=False)
        raise typer.Exit(1)
    if write or _confirmed():
        _write(proposed)
        section, line = chosen_line(found.rooms, choice) or ("", "")
        if not any(written.startswith(line) for written in FILE.read_text().splitlines()):
            said.print(f"{FILE} has a section [{section}] already: add {line} to it.", markup=False)
        said.print(f"{FILE} is written. {NEXT}", markup=False)


async def _candidates(settings: Settings, collection: str | None) -> list[MessagesCandidate]:
    async with connect(mongodb_endpoint(settings)) as client:
        return await candidates(client, settings, collection)


def _chosen(best: MessagesCandidate, said: Console) -> MessagesCandidate:
    """Show both readings where the documents prove none; on a terminal, return the one that is chosen."""
    readings = readings_of(best.proposal)
    if not readings:
        return best
    said.print(plain(f"The documents fit two readings: {best.proposal.doubt}."), markup=False)
    for number, (reading, lines) in enumerate(readings, 1):
        said.print(plain(f"\n{number}: {'; '.join(lines)}"), markup=False)
        for role, author, text in samples(listed_rows(best.documents, reading.listed), reading):
            said.print(plain(f"   {role} {author or '(no author)'}: {text}"), markup=False)
    if not _on_terminal():
        return best
    by_number = {str(number): reading for number, (reading, _) in enumerate(readings, 1)}
    while (choice := typer.prompt("Which one is right, 1 or 2?", err=True)) not in by_number:
        said.print("Answer 1 or 2; Ctrl-C leaves without writing anything.", markup=False)
    return replace(best, proposal=by_number[choice])


def _choice(rooms: SampledRooms, said: Console) -> RoomChoice | None:
    """Ask on a terminal what memory keeps of sessions of several users."""
    if not _on_terminal():
        return None
    said.print(f"{rooms.what[0].upper()}{rooms.what[1:]}. Memory may keep of them:", markup=False)
    for name, meaning in CHOICES.items():
        said.print(f"  {name}: {meaning}", markup=False)
    while (chosen := typer.prompt("group, authors or none?", err=True)) not in CHOICES:
        said.print("Answer group, authors or none.", markup=False)
    if chosen == "group" and rooms.group_id is None:
        said.print(
            "Write the group's id into the sessions' documents; then set EDEN_SESSIONS_GROUP_ID to its field."
        )
    return chosen


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


async def _found(
    settings: Settings, best: MessagesCandidate, others: Sequence[MessagesCandidate]
) -> FoundMapping:
    async with connect(mongodb_endpoint(settings)) as client:
        answering = only_answering(best.documents, _mapped(settings, best))
        sessions = await sessions_beside(client, settings, best, answering)
        listed = sessions is not None and sessions.users is not None
        mapped = _mapped(settings, best, sessions)
        indexes = await missing_indexes(client, mapped, best.database, listed=listed)
        users = await users_beside(client, _mapped(settings, best), best, sessions)
        agents = await agents_beside(client, settings, best, sessions)
        rooms = rooms_among(best.documents, _mapped(settings, best), sessions)
        return FoundMapping(best, others, sessions, indexes, users, agents, rooms)


def proposal_findings(settings: Settings, found: FoundMapping) -> list[Finding]:
    """Fields first, then whether they map the documents, what stands beside these, and which indexes are missing."""
    best = found.best
    findings = findings_of(best.proposal)
    if failed(findings):
        return findings
    if found.sessions is not None and found.sessions.users is not None:
        findings = [finding for finding in findings if finding.check != "message authors"]
    judged = judge_documents(best.documents, _mapped(settings, best, found.sessions))
    named = {finding.check for finding in findings}
    findings += [finding for finding in judged if finding.check not in named]
    if found.sessions is not None:
        findings += findings_of_sessions(found.sessions)
    if found.users is not None:
        findings.append(finding_of_users(found.users))
    if found.agents is not None:
        findings.append(finding_of_agents(found.agents))
    if found.rooms is not None:
        findings.append(finding_of_rooms(found.rooms))
    return findings + found.indexes


def _mapped(
    settings: Settings, best: MessagesCandidate, sessions: SessionsProposal | None = None
) -> Settings:
    paths = {name: path for name, path in best.proposal.paths.items() if path is not None}
    mapped: dict[str, Any] = {
        "list": best.proposal.listed,
        **paths,
        **{name: getattr(best.proposal, name) for name in ("roles", "deleted", "exclude")},
    }
    if best.proposal.otherwise:
        mapped["content"] = tuple(best.proposal.contents)
    messages = MessagesSettings(collection=best.collection, **mapped)
    if sessions is None:
        return settings.model_copy(update={"messages": messages})
    paths = {"collection": sessions.collection, **sessions.paths}
    beside = SessionsSettings.model_validate(paths)
    return settings.model_copy(update={"messages": messages, "sessions": beside})


def _confirmed() -> bool:
    """Ask on a terminal, unless a file exists already."""
    if FILE.exists() or not _on_terminal():
        return False
    return typer.confirm(f"Write this to {FILE}?", err=True)


def _write(proposed: str) -> None:
    FILE.write_text(merged(FILE.read_text(), proposed) if FILE.exists() else proposed)
