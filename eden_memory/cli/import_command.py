"""`eden import SOURCE PATH`: bring memories from another system."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from getpass import getuser
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import typer
from pydantic_core import to_jsonable_python
from rich.console import Console

from eden_memory.cli import terminal
from eden_memory.cli.live_namespace import agent_and_user, typed_ids
from eden_memory.cli.replay.progress import TransferProgress
from eden_memory.cli.structured_logs import warnings_only
from eden_memory.directory.id_reader_store import DEFAULT, IdKind
from eden_memory.errors import Invalid
from eden_memory.files.chat_items import chatgpt, claude
from eden_memory.files.earlier_import import AccessReader, EarlierImport
from eden_memory.files.earlier_records import EarlierReader
from eden_memory.files.earlier_v1 import v1
from eden_memory.files.earlier_v2 import v2, v2_accesses
from eden_memory.files.file_items import markdown, mem0
from eden_memory.files.import_items import ImportedAs, ImportMapping, ImportReport, Reader
from eden_memory.files.importing import ForeignImport
from eden_memory.files.record_import import ExportImport
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.tasks import heeding

STOPPED = 130


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The options of the command."""

    mapping: ImportMapping
    decide: bool
    dry_run: bool
    yes: bool
    as_json: bool


class ImportSource(NamedTuple):
    """A system to import from: what PATH is, and the import."""

    path: str
    run: Callable[[Settings, str, ImportOptions], Coroutine[Any, Any, None]]


def import_(
    source: Annotated[
        str, typer.Argument(help="the system: v1, eden-v2, mem0, markdown, chatgpt, claude or eden")
    ],
    path: Annotated[
        str,
        typer.Argument(metavar="PATH", help="a file or folder; of v1 and eden-v2: mongodb://HOST/DATABASE"),
    ],
    agent: Annotated[
        str | None, typer.Option(help="the agent of items that name none; unset: `default`")
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="the user of items that name neither user nor agent")
    ] = None,
    map_agent: Annotated[
        list[str] | None,
        typer.Option(metavar="THEIRS=OURS", help="their agent THEIRS is our agent OURS (repeatable)"),
    ] = None,
    map_user: Annotated[
        list[str] | None,
        typer.Option(metavar="THEIRS=OURS", help="their user THEIRS is our user OURS (repeatable)"),
    ] = None,
    mapping: Annotated[
        Path | None,
        typer.Option(help='a JSON file of such pairs: {"agents": {"THEIRS": "OURS"}, "users": {…}}'),
    ] = None,
    decide: Annotated[
        bool, typer.Option("--decide", help="let a model decide what each fact changes in known facts")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be taken, and write nothing")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the report as JSON on standard output")] = False,
) -> None:
    """Import memories from another system; repeat the command to continue: nothing is taken twice.

    It reads the source, says what would be taken, and asks. `eden run` must be running: it stores the memories.
    Exit code 1: nothing in the source could be taken.
    OURS, --agent and --user are ids as in the application, or typed (s.TEXT, i.5, o.OBJECTID).

    Examples:

    eden import mem0 memories.jsonl --agent support --map-user alice=ada

    eden import markdown ~/memory --dry-run

    eden import v1 mongodb://old-host/eve

    eden import eden-v2 mongodb://old-host/eve --dry-run

    eden import chatgpt export.zip --agent support --user ada

    eden import eden memory.jsonl
    """
    found = SOURCES.get(source)
    if found is None:
        raise Invalid(f"there is no source {source!r:.40}", f"One of: {', '.join(SOURCES)}.")
    given = ImportOptions(_mapping(agent, user, map_agent, map_user, mapping), decide, dry_run, yes, as_json)
    try:
        with warnings_only():
            asyncio.run(heeding(found.run(Settings(), path, given)))
    except KeyboardInterrupt:
        typer.echo("stopped; the same command continues", err=True)
        raise typer.Exit(STOPPED) from None


def _mapping(
    agent: str | None,
    user: str | None,
    agents: list[str] | None,
    users: list[str] | None,
    file: Path | None,
) -> ImportMapping:
    written: Mapping[str, Any] = {} if file is None else _read(file)
    (of_agent,) = typed_ids([("agent", agent or DEFAULT)])
    _, of_user = agent_and_user(None, user)
    of_agents = _ours("agent", _pairs(written.get("agents"), agents))
    of_users = _ours("user", _pairs(written.get("users"), users))
    return ImportMapping(of_agents, of_users, of_agent, of_user)


def _ours(kind: IdKind, pairs: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """Return our ids, typed, by theirs."""
    typed = typed_ids((kind, ours) for _, ours in pairs)
    return {theirs: ours for (theirs, _), ours in zip(pairs, typed, strict=True)}


def _read(file: Path) -> Mapping[str, Any]:
    try:
        written = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        raise Invalid(f"{file} cannot be read as JSON") from None
    if not isinstance(written, dict):
        raise Invalid(
            f"{file} is not a JSON object", '{"agents": {"THEIRS": "OURS"}, "users": {"THEIRS": "OURS"}}'
        )
    return cast("dict[str, Any]", written)


def _pairs(written: Any, given: list[str] | None) -> list[tuple[str, str]]:
    found = cast("dict[str, Any]", written if isinstance(written, dict) else {})
    if written not in (None, found) or not all(isinstance(ours, str) for ours in found.values()):
        raise Invalid("a mapping must give each of THEIRS one of OURS", '{"users": {"alice": "ada"}}')
    pairs = list(found.items())
    for text in given or ():
        theirs, equals, ours = text.rpartition("=")
        if not equals or not theirs:
            raise Invalid(f"{text!r} is not a mapping", "Give THEIRS=OURS.")
        pairs.append((theirs, ours))
    return pairs


def foreign(source: str, read: Reader) -> Callable[[Settings, str, ImportOptions], Coroutine[Any, Any, None]]:
    """Return the import from another system whose items `read` yields."""

    async def run(settings: Settings, path: str, given: ImportOptions) -> None:
        to = ImportedAs(source, given.mapping, f"eden import, {getuser()}", datetime.now(UTC), given.decide)
        async with installation(settings) as at:
            await _import(ForeignImport(at, read, path, to), given)

    return run


def earlier(
    source: str, read: EarlierReader, accesses: AccessReader | None = None
) -> Callable[[Settings, str, ImportOptions], Coroutine[Any, Any, None]]:
    """Return the import from an earlier system's database."""

    async def run(settings: Settings, path: str, given: ImportOptions) -> None:
        to = ImportedAs(source, given.mapping, f"eden import, {getuser()}", datetime.now(UTC), given.decide)
        async with installation(settings) as at:
            with EarlierImport(at, read, path, to, accesses) as work:
                await _import(work, given)

    return run


async def _import(work: ForeignImport | ExportImport | EarlierImport, given: ImportOptions) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with TransferProgress(console) as bar:
        survey = await work.survey(partial(bar, "reading"))
    if given.dry_run or survey.empty:
        _show(survey, "would be taken" if given.dry_run else "taken", as_json=given.as_json)
        if survey.empty and not survey.known and any(skipped.bad for skipped in survey.skipped.values()):
            raise typer.Exit(1)
        return
    for line in (*survey.lines("to be taken"), *_cost(survey)):
        typer.echo(terminal.plain(line), err=True)
    if not given.yes:
        terminal.confirm("Import these?")
    with TransferProgress(console) as bar:
        report = await work.run(sum(survey.taken.values()), partial(bar, "importing"))
    report.cost = survey.cost
    _show(report, "taken", as_json=given.as_json)


def _show(report: ImportReport, did: str, *, as_json: bool) -> None:
    if as_json:
        terminal.show_json(to_jsonable_python(report))
        return
    for line in (*report.lines(did), *_cost(report)):
        typer.echo(terminal.plain(line))


def _cost(report: ImportReport) -> list[str]:
    if not report.forming:
        return []
    cost = report.cost
    usd = "at an unknown price" if cost.usd is None else f"for about {cost.usd:.2f} USD"
    return [
        f"{report.forming:,} conversations are formed in about {cost.windows:,} windows, {usd}; "
        "`eden budget` limits what formation spends"
    ]


async def _own(settings: Settings, path: str, given: ImportOptions) -> None:
    """Import an export of our own: records where a scope holds nothing, and commands elsewhere."""
    if given.mapping != ImportMapping():
        raise Invalid(
            "an import of `eden export` keeps agents and users",
            "Leave out --agent, --user, --map-agent, --map-user and --mapping.",
        )
    to = ImportedAs("eden", given.mapping, f"eden import, {getuser()}", datetime.now(UTC), given.decide)
    async with installation(settings) as at:
        await _import(ExportImport(at, Path(path), to), given)


A_FILE, A_FOLDER = (
    "a file of JSON lines, or its API's JSON",
    "a folder of Markdown files with YAML front matter",
)
AN_EXPORT = "the export: its archive, folder or conversations.json"
SOURCES: Mapping[str, ImportSource] = {
    "v1": ImportSource("mongodb://HOST/DATABASE", earlier("v1", v1)),
    "eden-v2": ImportSource("mongodb://HOST/DATABASE", earlier("eden-v2", v2, v2_accesses)),
    "mem0": ImportSource(A_FILE, foreign("mem0", mem0)),
    "markdown": ImportSource(A_FOLDER, foreign("markdown", markdown)),
    "chatgpt": ImportSource(AN_EXPORT, foreign("chatgpt", chatgpt)),
    "claude": ImportSource(AN_EXPORT, foreign("claude", claude)),
    "eden": ImportSource("a file that `eden export` wrote", _own),
}
"""The systems to import from, by name."""
