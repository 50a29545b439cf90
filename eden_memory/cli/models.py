"""`eden models`: try each configured model with a small call."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from eden_memory.cli.tables import show_table
from eden_memory.cli.terminal import plain
from eden_memory.models.providers.api_keys import unused_keys
from eden_memory.models.providers.catalogue import (
    LOCAL_MODELS,
    OFFLINE,
    ModelChoice,
    asked_for,
    embedder_of,
    used_for,
)
from eden_memory.settings import Settings

if TYPE_CHECKING:
    from eden_memory.models.providers.check import CheckedModel

app = typer.Typer(help="Check language models and embedders.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]


@app.callback()
def models() -> None:
    """Check language models and embedders."""


@app.command()
def check(as_json: AsJson = False) -> None:
    """Call each configured model once; exit code 1 if one of them cannot be used."""
    settings = Settings()
    found = asyncio.run(_check(settings))
    notes = [*_without_calls(settings), *_unused(settings)]
    if as_json:
        told = {"models": [asdict(checked_model) for checked_model in found], "notes": notes}
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False, default=str))
    else:
        _print(found, notes)
    raise typer.Exit(1 if any(checked_model.problem for checked_model in found) else 0)


async def _check(settings: Settings) -> "list[CheckedModel]":
    from eden_memory.models.providers.check import check as check_models  # noqa: PLC0415 - the SDKs import for a second

    return await check_models(settings)


def _without_calls(settings: Settings) -> list[str]:
    notes: list[str] = []
    by_rules = used_for(settings).get(ModelChoice(OFFLINE, None))
    if by_rules:
        named = ", ".join(by_rules)
        notes.append(f"By rules, much poorer than a model's work: {named}; nothing to call.")
    if embedder_of(settings) in LOCAL_MODELS:
        notes.append("Vectors are made by the local model; nothing to call.")
    return notes


def _unused(settings: Settings) -> list[str]:
    return [
        f"{variable} is set, but {provider} was not asked for: the key is not used (EDEN_LLM={provider} would)."
        for provider, variable in unused_keys(asked_for(settings))
    ]


def _print(found: "list[CheckedModel]", notes: list[str]) -> None:
    if found:
        columns = ("", "model", "used for", "supports", "latency", "$ per million tokens")
        show_table(columns, map(_row, found), "", whole=("model", "latency"))
    for note in notes:
        typer.echo(note)


def _row(checked_model: "CheckedModel") -> Sequence[str | Text]:
    return (
        Text("✗", style="red") if checked_model.problem else Text("✓", style="green"),
        f"{checked_model.provider} {checked_model.model or '-'}",
        ", ".join(checked_model.used_for),
        Text(plain(checked_model.problem), style="red")
        if checked_model.problem
        else checked_model.supports or "-",
        "-" if checked_model.seconds is None else f"{checked_model.seconds:.2f} s",
        _price(checked_model),
    )


def _price(checked_model: "CheckedModel") -> str:
    if checked_model.problem and checked_model.price is None:
        return "-"
    said = "unknown" if checked_model.price is None else f"{checked_model.price.input:.4g} in"
    if checked_model.price is not None and checked_model.price.output is not None:
        said += f", {checked_model.price.output:.4g} out"
    return f"{said}, deprecated" if checked_model.deprecated else said
