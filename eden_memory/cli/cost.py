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

from eden_memory.cli.live_namespace import agent_and_user
from eden_memory.cli.tables import show_table
from eden_memory.errors import Invalid, needs
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.names import ORIGINAL
from eden_memory.observability.lineage import Share, total
from eden_memory.observability.lineage_store import LineageReader
from eden_memory.replay.installation import installation, settings_of
from eden_memory.settings import Settings
from eden_memory.usage.budget_rules import period_of
from eden_memory.usage.usage_store import LIVE, MongoTotals, UsageQuery, UsageSum, newest, together

app = typer.Typer(help="Show what models cost: today, this month, or for one memory.", no_args_is_help=True)
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
COUNTS = ("calls", "failed_calls", "input_tokens", "cached_tokens", "output_tokens", "unpriced_calls")


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
    """Show what one fact or blob cost to form. A call that gave several items is shared equally among them."""
    needs("run", "`eden cost memory`")
    shares = asyncio.run(shares_of(Settings(), name))
    usd, unknown = total(shares)
    if as_json:
        told = {"id": name, "cost_usd": _plain(usd), "unpriced": unknown, "shares": [*map(_told, shares)]}
        typer.echo(json.dumps(told, indent=2))
        return
    columns = ("for", "of", "call", "model", "prompt", "call USD", "among", "USD")
    show_table(columns, map(_row, shares), "no calls", whole=("call", "call USD", "USD"))
    more = f", and {unknown} calls at an unknown price" if unknown else ""
    typer.echo(f"{_usd(usd)} USD{more}; calls that gave several items are shared equally")


async def shares_of(settings: Settings, name: str) -> list[Share]:
    """Return the cost that each call added to a fact or blob; NotFound if there is none of that name."""
    async with installation(settings) as at:
        return await LineageReader(at).shares(name)


def _row(share: Share) -> Sequence[Any]:
    return (
        share.memory,
        share.of,
        share.call_id[:12],
        share.model,
        share.prompt or "-",
        _usd(share.call_usd),
        share.among,
        _usd(share.usd),
    )


def _asked(first: str, last: str, by: By | None, agent: str | None, user: str | None) -> UsageQuery:
    field = FIELDS[by] if by else None
    return UsageQuery(first, last, field, *agent_and_user(agent or None, user or None))


def _month(named: str) -> tuple[str, str]:
    try:
        first = datetime.fromisoformat(f"{named}-01")
    except ValueError:
        raise Invalid(f"{named!r} is not a month", "Give it as 2026-01.") from None
    last = monthrange(first.year, first.month)[1]
    return f"{first:%Y-%m-%d}", f"{first.replace(day=last):%Y-%m-%d}"


def _show(asked: UsageQuery, by: By | None, namespace: str | None, *, as_json: bool) -> None:
    sums, facts, messages, counted_to = asyncio.run(_read(Settings(), asked, namespace))
    whole = together(sums)
    usd = whole.known_usd
    told: dict[str, Any] = {
        "namespace": _account(namespace),
        "from": asked.first,
        "to": asked.last,
        "cost_usd": _plain(usd),
        "calls": whole.counts["calls"],
        "unpriced_calls": whole.counts["unpriced_calls"],
        "facts_formed": facts,
        "messages_formed": messages,
        "usd_per_fact": _rate(usd, facts),
        "usd_per_1000_messages": _rate(usd, messages, of=1_000),
        "counted_to": counted_to.isoformat() if counted_to else None,
    }
    if by:
        told["by"] = by
        told["groups"] = [
            {by: group.of, "cost_usd": _plain(group.known_usd), **group.counts} for group in sums
        ]
    if as_json:
        typer.echo(json.dumps(told, indent=2))
    else:
        _print(told, sums if by else (), by, counted_to)


def _print(
    told: dict[str, Any], sums: Sequence[UsageSum], by: By | None, counted_to: datetime | None
) -> None:
    days = told["from"] if told["from"] == told["to"] else f"{told['from']} to {told['to']}"
    whose = "" if told["namespace"] == LIVE else f", re-forming {told['namespace']}"
    if not told["calls"]:
        typer.echo(f"no model was called, {days} (UTC){whose}; {newest(counted_to)}")
        return
    if by:
        names = (by, "USD", "calls", "failed", "input", "cached", "output", "unpriced")
        rows = [
            (group.of or "-", _usd(group.known_usd), *(f"{group.counts[name]:,}" for name in COUNTS))
            for group in sums
        ]
        show_table(names, rows, "", whole=names)
    usd = None if told["cost_usd"] is None else Decimal(told["cost_usd"])
    typer.echo(f"{_usd(usd)} USD for {told['calls']:,} calls, {days} (UTC){whose}")
    if told["unpriced_calls"]:
        typer.secho(_unpriced(told["unpriced_calls"], told["calls"]), fg="yellow")
    facts, messages = told["facts_formed"], told["messages_formed"]
    typer.echo(f"per fact {_shown_rate(told, 'usd_per_fact', facts)} USD of {facts:,} formed")
    per_messages = _shown_rate(told, "usd_per_1000_messages", messages)
    typer.echo(f"per 1,000 messages {per_messages} USD of {messages:,} formed")
    typer.secho(newest(counted_to), dim=True)


def _account(namespace: str | None) -> str:
    """Return the account of a namespace; live formation uses the original's, whichever is live."""
    return LIVE if namespace in (None, ORIGINAL) else namespace


async def _read(
    settings: Settings, asked: UsageQuery, namespace: str | None
) -> tuple[list[UsageSum], int, int, datetime | None]:
    async with connect(endpoints(settings).mongodb) as client:
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


def _unpriced(unpriced: int, calls: int) -> str:
    if unpriced == calls:
        return "no call has a known price"
    return f"{unpriced:,} of these calls have no known price; what they cost is not in the sum"


def _rate(usd: Decimal | None, number: int, of: int = 1) -> str | None:
    return f"{usd * of / number:.6f}" if number and usd is not None else None


def _shown_rate(told: dict[str, Any], name: str, number: int) -> str:
    if not number:
        return "-"
    least = "at least " if told["unpriced_calls"] and told[name] is not None else ""
    return least + (told[name] or "unknown")


def _plain(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount:f}"


def _usd(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:.6f}"


def _told(share: Share) -> dict[str, Any]:
    return {
        "memory": share.memory,
        "of": share.of,
        "call_id": share.call_id,
        "model": share.model,
        "prompt": share.prompt,
        "call_usd": _plain(share.call_usd),
        "among": share.among,
        "usd": _plain(share.usd),
    }
