"""`eden keys`: manage the API keys of `eden serve`."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from getpass import getuser
from typing import Annotated, Any, cast

import typer
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from eden_memory.access.admission_store import RIGHTS, SHORTEST_HASH, ApiKeys, Right
from eden_memory.cli.live_namespace import typed_ids
from eden_memory.cli.tables import show_table
from eden_memory.cli.terminal import moment
from eden_memory.directory.id_reader_store import IdKind
from eden_memory.errors import EdenError, describe
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.schemas.documents import ApiKey
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask
from eden_memory.source.messages_store import inbox_name

Database = AsyncDatabase[dict[str, Any]]
COLUMNS = ("hash", "name", "rights", "agents", "users", "per minute", "created", "last used", "revoked")

app = typer.Typer(help="Manage API keys of `eden serve`; only their hashes are stored.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="what people call it; free of other valid keys")]
Agents = Annotated[list[str] | None, typer.Option("--agent", help="only this agent (again: several)")]
Users = Annotated[list[str] | None, typer.Option("--user", help="only this user (again: several)")]
Rights = Annotated[
    list[str] | None,
    typer.Option("--right", help="read, write or admin (again: several); unset: read, write"),
]
Limit = Annotated[int | None, typer.Option("--requests-per-minute", min=1, help="unset: as the server says")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON on standard output")]
Everything = Annotated[bool, typer.Option("--all", help="also those that were revoked")]
Named = Annotated[str, typer.Argument(help=f"its name, or {SHORTEST_HASH} or more characters of its hash")]


@app.command(epilog="eden keys create my-app --agent support --user s.ada --right read")
def create(
    name: Name,
    agents: Agents = None,
    users: Users = None,
    rights: Rights = None,
    requests_per_minute: Limit = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and show it, this once. Ids: plain text, or typed (s.TEXT, i.5, u.UUID, o.OBJECTID)."""

    of_agents, of_users = _typed(agents, "agent"), _typed(users, "user")

    async def work(keys: ApiKeys) -> tuple[str, ApiKey]:
        return await keys.create(
            name,
            agents=of_agents,
            users=of_users,
            rights=_rights(rights),
            requests_per_minute=requests_per_minute,
        )

    secret, key = asyncio.run(_with_keys(work))
    if as_json:
        typer.echo(json.dumps(_shown(key) | {"secret": secret}))
        return
    typer.echo(secret)
    typer.echo("This is the only time that the key is shown. Send it as `Authorization: Bearer …`.", err=True)


@app.command("list", epilog="eden keys list --all --json")
def list_(everything: Everything = False, as_json: AsJson = False) -> None:
    """List the keys, oldest first; `--json` shows all that is known of them."""

    async def work(keys: ApiKeys) -> list[ApiKey]:
        return [api_key for api_key in await keys.list() if everything or api_key.revoked_at is None]

    found = asyncio.run(_with_keys(work))
    if as_json:
        typer.echo(json.dumps([_shown(key) for key in found]))
        return
    columns = COLUMNS if everything else COLUMNS[:-1]
    cells = [_cells(key)[: len(columns)] for key in found]
    show_table(columns, cells, "no keys", whole=("hash", "name"), words=columns)


@app.command(epilog="eden keys revoke my-app")
def revoke(named: Named) -> None:
    """End a key; servers that run notice within seconds, and a restored backup does not bring it back."""
    typer.echo(f"{asyncio.run(_revoke(Settings(), named)).name} is revoked")


async def _revoke(settings: Settings, named: str) -> ApiKey:
    """Ask for the record in `memory.forgotten` first: once the key is revoked here, it cannot be named any more."""
    async with _connected(settings) as (keys, source):
        key = await keys.named(named)
        request = {"kind": "forget", "what": "key", "target": key.id, "asked_by": f"eden keys, {getuser()}"}
        try:
            await ask(source[inbox_name(settings)], request)
        except PyMongoError as error:
            await keys.revoke(key.id)
            what = f"{key.name} is revoked, but the inbox cannot be written: {describe(error)}"
            raise EdenError(what, "Should you restore an older backup, revoke it again.") from error
        return await keys.revoke(key.id)


async def _with_keys(work: Any) -> Any:
    async with _connected(Settings()) as (keys, _):
        return await work(keys)


@asynccontextmanager
async def _connected(settings: Settings) -> AsyncGenerator[tuple[ApiKeys, Database]]:
    """Yield the keys, and the application's database with the inbox."""
    async with connect(endpoints(settings).mongodb) as client:
        yield ApiKeys(client[settings.mongodb.database], settings.names), client[settings.source_database]


def _typed(ids: Sequence[str] | None, kind: IdKind) -> list[str] | None:
    return typed_ids((kind, given) for given in ids) if ids else None


def _rights(given: Sequence[str] | None) -> list[Right]:
    wanted = given or ["read", "write"]
    if unknown := sorted(set(wanted) - set(RIGHTS)):
        raise EdenError(f"unknown rights: {', '.join(unknown)}", f"One of: {', '.join(RIGHTS)}.")
    return cast("list[Right]", wanted)


def _shown(key: ApiKey) -> dict[str, Any]:
    return {"hash": key.id} | key.model_dump(mode="json", exclude={"id"})


def _cells(key: ApiKey) -> list[str]:
    return [
        key.id[:SHORTEST_HASH],
        key.name,
        ", ".join(key.rights),
        "all" if key.agents is None else ", ".join(key.agents),
        "all" if key.users is None else ", ".join(key.users),
        str(key.requests_per_minute or "-"),
        *map(moment, (key.created_at, key.last_used_at, key.revoked_at)),
    ]
