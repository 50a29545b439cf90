"""`eden budget set|list|remove`: what formation may spend, per agent, per user, per day or month."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from getpass import getuser
from typing import Annotated, Any

import typer
from rich.text import Text

from eden_memory.cli.live_namespace import agent_and_user, soon
from eden_memory.cli.tables import show_table
from eden_memory.errors import NotFound
from eden_memory.local.servers import endpoints
from eden_memory.mongo.client import connect
from eden_memory.replay.installation import installation
from eden_memory.settings import Settings
from eden_memory.usage.budget_rules import Per, Spending, budget_id, limit_of
from eden_memory.usage.budget_store import MongoBudgets

app = typer.Typer(help="Limit what formation may spend.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]
Agent = Annotated[
    str | None, typer.Option(help="of this agent alone; typed (s.TEXT, i.NUMBER, …) or its text")
]
User = Annotated[str | None, typer.Option(help="of this user alone, likewise")]
Monthly = Annotated[bool, typer.Option("--per-month", help="a month's limit; without it, a day's")]


@app.command("set", context_settings={"ignore_unknown_options": True})  # -1 is an amount
def set_(
    limit: Annotated[str, typer.Argument(help="US dollars: 5, 0.25")],
    agent: Agent = None,
    user: User = None,
    per_month: Monthly = False,
) -> None:
    """Set a limit, or change it: over all, of an agent, of a user, or of a user with an agent."""
    amount = limit_of(limit)
    made = asyncio.run(
        _set(Settings(), *agent_and_user(agent, user), "month" if per_month else "day", amount)
    )
    typer.echo(f"budget {made.id}: {made.limit:f} USD, {made.spent:f} spent in {made.period}")


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """Every budget: limit, spent, expected of windows in flight, what is left; and how many windows wait."""
    budgets, waiting = asyncio.run(_list(Settings()))
    if as_json:
        told = {"budgets": [_told(budget) for budget in budgets.values()], "windows_held_back": waiting}
        typer.echo(json.dumps(told, indent=2))
        return
    if not budgets:
        typer.echo("no budgets: formation spends what it needs")
        return
    columns = ("budget", "period", "limit", "spent", "in flight", "left")
    show_table(columns, map(_row, budgets.values()), "", whole=columns)
    typer.echo(f"{waiting} windows wait for room")


def _row(spending: Spending) -> Sequence[str | Text]:
    amounts = (f"{amount:.4f}" for amount in (spending.limit, spending.spent, spending.in_flight))
    return (
        spending.id,
        spending.period,
        *amounts,
        Text(f"{spending.room:.4f}", style="red" if spending.full else ""),
    )


@app.command()
def remove(agent: Agent = None, user: User = None, per_month: Monthly = False) -> None:
    """Remove a limit; what it held back goes on. Exit code 1 if there was none."""
    name = asyncio.run(_remove(Settings(), *agent_and_user(agent, user), "month" if per_month else "day"))
    typer.echo(f"budget {name} removed")


async def _set(settings: Settings, agent: str | None, user: str | None, per: Per, limit: Decimal) -> Spending:
    async with connect(endpoints(settings).mongodb) as client:
        by = f"eden budget, {getuser()}"
        return await MongoBudgets(client[settings.mongodb.database], settings.names).set(
            agent, user, per, limit, by
        )


async def _list(settings: Settings) -> tuple[Mapping[str, Spending], int]:
    async with installation(settings) as at:
        budgets = MongoBudgets(at.database, settings.names)
        return await budgets.all(), await budgets.held_back()


async def _remove(settings: Settings, agent: str | None, user: str | None, per: Per) -> str:
    name = budget_id(agent, user, per)
    async with connect(endpoints(settings).mongodb) as client:
        if not await MongoBudgets(client[settings.mongodb.database], settings.names).remove(name):
            raise NotFound(f"there is no budget {name}", "See `eden budget list`.")
    return name


def standing(settings: Settings) -> list[str]:
    """Return a line about each budget; none if MongoDB does not answer at once."""
    budgets, waiting = asyncio.run(soon(_list(settings))) or ({}, 0)
    lines = [
        f"budget {budget.id}: {budget.room:.4f} of {budget.limit:.4f} USD left in {budget.period}"
        for budget in budgets.values()
    ]
    return [*lines, f"{waiting} windows wait for room in a budget"] if waiting else lines


def _told(spending: Spending) -> dict[str, Any]:
    return {
        "id": spending.id,
        "agent_id": spending.agent_id,
        "user_id": spending.user_id,
        "per": spending.per,
        "period": spending.period,
        "limit_usd": f"{spending.limit:f}",
        "spent_usd": f"{spending.spent:f}",
        "in_flight_usd": f"{spending.in_flight:f}",
        "left_usd": f"{spending.room:f}",
        "full": spending.full,
    }
