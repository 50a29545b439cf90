"""`eden cost today|month|memory`: what models cost, from the totals of their calls."""

import asyncio
import json
from calendar import monthrange
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from eden_memory.cli.replay.live import live_settings, settings_of
from eden_memory.domain.budgets.budgets import period_of
from eden_memory.domain.budgets.memory_cost import Share, of_blob, of_fact, total
from eden_memory.domain.errors import EdenError
from eden_memory.domain.placement import ORIGINAL
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.mongo.ids_given import typed
from eden_memory.mongo.usage.totals import Asked, MongoTotals, Sum
from eden_memory.mongo.usage.usage_store import LIVE, newest
from eden_memory.runtime.contract.topics import load_topics
from eden_memory.runtime.kafka import client_kwargs
from eden_memory.runtime.scope_records import Held, scope_records
from eden_memory.settings import Settings
from schemas.documents import Fact
from schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated

app = typer.Typer(help="What models cost: today, this month, or of one memory.", no_args_is_help=True)
By = Literal["agent", "user", "stage", "model", "day"]
ByOption = Annotated[By | None, typer.Option("--by", help="one line for each of these")]
Agent = Annotated[
    str | None, typer.Option(help="of this agent alone; typed (s.TEXT, i.NUMBER, …) or its text")
]
User = Annotated[str | None, typer.Option(help="of this user alone, likewise")]
InNamespace = Annotated[
    str | None,
    typer.Option("--namespace", help="what a reform into it has cost; unset: what live formation has"),
]
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
FIELDS: dict[By, str] = {
    "agent": "agent_id",
    "user": "user_id",
    "stage": "stage",
    "model": "model",
    "day": "day",
}
FACTS, BLOBS = ("memory.facts",), ("memory.consolidations", "memory.reflections")


@app.command()
def today(
    by: ByOption = None,
    agent: Agent = None,
    user: User = None,
    namespace: InNamespace = None,
    as_json: AsJson = False,
) -> None:
    """Since midnight, UTC."""
    day = period_of("day", datetime.now(UTC))
    _show(_asked(day, day, by, agent, user), by, namespace, as_json=as_json)


@app.command()
def month(
    by: ByOption = None,
    agent: Agent = None,
    user: User = None,
    of: Annotated[str | None, typer.Option(help="another month: 2026-01")] = None,
    namespace: InNamespace = None,
    as_json: AsJson = False,
) -> None:
    """Of this month, UTC."""
    named = of or period_of("month", datetime.now(UTC))
    first, last = _month(named)
    _show(_asked(first, last, by, agent, user), by, namespace, as_json=as_json)


@app.command()
def memory(
    name: Annotated[
        str, typer.Argument(metavar="ID", help="a fact, or a blob: its scope key, SCOPE@VERSION")
    ],
    as_json: AsJson = False,
) -> None:
    """What one fact or blob cost to form. A call that gave several items is shared equally among them."""
    shares = asyncio.run(shares_of(Settings(), name))
    usd, unknown = total(shares)
    if as_json:
        told = {"id": name, "cost_usd": f"{usd:f}", "unpriced": unknown, "shares": [*map(_told, shares)]}
        typer.echo(json.dumps(told, indent=2))
        return
    console = Console(highlight=False)
    table = Table(
        "for", "of", "call", "model", "prompt", "call USD", "among", "USD", box=None, pad_edge=False
    )
    for one in shares:
        table.add_row(
            one.memory, one.of, one.call_id[:12], one.model, one.prompt or "-", _usd(one.call_usd),
            str(one.among), _usd(one.usd),
        )  # fmt: skip
    console.print(table)
    more = f", and {unknown} calls at an unknown price" if unknown else ""
    console.print(f"[bold]{usd:.6f} USD[/bold]{more}; calls that gave several items are shared equally")


def _asked(first: str, last: str, by: By | None, agent: str | None, user: str | None) -> Asked:
    return Asked(
        first,
        last,
        FIELDS[by] if by else None,
        typed(agent) if agent else None,
        typed(user) if user else None,
    )


def _month(named: str) -> tuple[str, str]:
    try:
        first = datetime.fromisoformat(f"{named}-01")
    except ValueError:
        raise EdenError(f"{named!r} is no month", "Give it as 2026-01.") from None
    last = monthrange(first.year, first.month)[1]
    return f"{first:%Y-%m-%d}", f"{first.replace(day=last):%Y-%m-%d}"


def _show(asked: Asked, by: By | None, namespace: str | None, *, as_json: bool) -> None:
    sums, facts, messages, counted_to = asyncio.run(_read(Settings(), asked, namespace))
    usd = sum((one.cost_usd for one in sums), Decimal(0))
    unknown = sum(one.counts["unpriced_calls"] for one in sums)
    told: dict[str, Any] = {
        "namespace": _account(namespace),
        "from": asked.first,
        "to": asked.last,
        "cost_usd": f"{usd:f}",
        "calls": sum(one.counts["calls"] for one in sums),
        "unpriced_calls": unknown,
        "facts_formed": facts,
        "messages_formed": messages,
        "usd_per_fact": _rate(usd, facts),
        "usd_per_1000_messages": _rate(usd * 1_000, messages),
        "counted_to": counted_to.isoformat() if counted_to else None,
    }
    if by:
        told["by"] = by
        told["groups"] = [{by: one.of, "cost_usd": f"{one.cost_usd:f}", **one.counts} for one in sums]
    if as_json:
        typer.echo(json.dumps(told, indent=2))
    else:
        _print(told, sums if by else (), by, counted_to)


def _print(told: dict[str, Any], sums: Sequence[Sum], by: By | None, counted_to: datetime | None) -> None:
    console = Console(highlight=False)
    if by:
        table = Table(
            by, "USD", "calls", "failed", "input", "cached", "output", "unpriced", box=None, pad_edge=False
        )
        for one in sums:
            counts = one.counts
            names = (
                "calls",
                "failed_calls",
                "input_tokens",
                "cached_tokens",
                "output_tokens",
                "unpriced_calls",
            )
            table.add_row(one.of or "-", f"{one.cost_usd:.6f}", *(f"{counts[name]:,}" for name in names))
        console.print(table)
    days = told["from"] if told["from"] == told["to"] else f"{told['from']} to {told['to']}"
    whose = "" if told["namespace"] == LIVE else f", re-forming {told['namespace']}"
    console.print(
        f"[bold]{Decimal(told['cost_usd']):.6f} USD[/bold] for {told['calls']:,} calls, {days} (UTC){whose}"
    )
    if told["unpriced_calls"]:
        console.print(f"[yellow]{told['unpriced_calls']:,} calls more have no known price[/yellow]")
    console.print(f"per fact {told['usd_per_fact'] or '-'} USD of {told['facts_formed']:,} formed")
    per_messages = told["usd_per_1000_messages"] or "-"
    console.print(f"per 1,000 messages {per_messages} USD of {told['messages_formed']:,} formed")
    console.print(f"[dim]{newest(counted_to)}[/dim]")


def _account(namespace: str | None) -> str:
    """Under what calls are counted: live formation began in the original namespace, and kept its account."""
    return LIVE if namespace in (None, ORIGINAL) else namespace


async def _read(
    settings: Settings, asked: Asked, namespace: str | None
) -> tuple[list[Sum], int, int, datetime | None]:
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        database = client[settings.mongodb.database]
        placed = await settings_of(settings, database, namespace)
        totals = MongoTotals(database, placed.names)
        asked = replace(asked, namespace=_account(namespace))
        return (
            await totals.sums(asked),
            await totals.facts_formed(asked),
            await totals.messages_formed(asked) if asked.agent_id is None else 0,
            await totals.counted_to(),
        )


async def shares_of(settings: Settings, name: str) -> list[Share]:
    """What each call added to a fact or blob; an EdenError if there is none of that name."""
    async with connect(settings.mongodb, endpoints(settings).mongodb) as client:
        database = client[settings.mongodb.database]
        settings = await live_settings(settings, database)
        names = settings.names
        fact = await database[names[Fact.COLLECTION]].find_one({"_id": name.partition("@")[0]})
        if fact is None:
            return await _blob(settings, name)
        held = await _records(settings, FACTS, fact["scope_key"])
        versions = [one.event for one in held if isinstance(one.event, FactChanged)]
        mine = [one for one in versions if one.fact_id == fact["_id"]]
        vectors = [one.embedding.call_id for one in mine if one.embedding and one.embedding.call_id]
        return of_fact(mine, await MongoTotals(database, names).embedded(vectors))


async def _blob(settings: Settings, name: str) -> list[Share]:
    scope_key, _, version = name.partition("@")
    if ":" not in scope_key:
        raise _unknown(name)
    held = await _records(settings, BLOBS, scope_key)
    upto = int(version) if version.isdecimal() else None
    versions = [one.event for one in held if isinstance(one.event, ScopeConsolidated)]
    mine = [one for one in versions if upto is None or one.version <= upto]
    if not mine:
        raise _unknown(name)
    return of_blob(mine, [one.event for one in held if isinstance(one.event, ReflectionFormed)])


def _unknown(name: str) -> EdenError:
    return EdenError(f"there is no fact and no blob {name}", "Give a fact's id, or a scope key as user:A:U.")


async def _records(settings: Settings, short: Sequence[str], scope_key: str) -> list[Held]:
    topics = load_topics(settings.kafka, settings.placement)
    client = client_kwargs(settings.kafka, endpoints(settings).kafka)
    return await scope_records(client, [topics.name(one) for one in short], [scope_key])


def _rate(usd: Decimal, number: int) -> str | None:
    return f"{usd / number:.6f}" if number else None


def _usd(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:.6f}"


def _told(one: Share) -> dict[str, Any]:
    return {
        "memory": one.memory,
        "of": one.of,
        "call_id": one.call_id,
        "model": one.model,
        "prompt": one.prompt,
        "call_usd": None if one.call_usd is None else f"{one.call_usd:f}",
        "among": one.among,
        "usd": None if one.usd is None else f"{one.usd:f}",
    }
