"""`eden models`: try each configured model with a small call."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Self

import typer
from rich.text import Text

from eden_memory.cli.tables import show_table
from eden_memory.cli.terminal import plain
from eden_memory.directory.stream_store import StreamStore
from eden_memory.errors import EdenError
from eden_memory.models.catalogue import (
    LOCAL_MODELS,
    OFFLINE,
    ModelChoice,
    asked_for,
    embedder_of,
    unused_keys,
    used_for,
)
from eden_memory.models.model_servers import with_only_model
from eden_memory.replay.installation import installation
from eden_memory.schemas.documents import Stream
from eden_memory.settings import Settings

if TYPE_CHECKING:
    from eden_memory.formation.model_trial import TriedModel
    from eden_memory.formation.sharing_trial import SharingTrial
    from eden_memory.models.model_check import CheckedModel

app = typer.Typer(help="Check language models and embedders.", no_args_is_help=True)

CHECK_SECONDS = 120.0
"""After these, what a model can do is left untried. The trial of sharing takes its time, as sharing needs it."""
REMIND_SECONDS = 30.0
AsJson = Annotated[bool, typer.Option("--json", help="one JSON object on standard output")]


@app.callback()
def models() -> None:
    """Check language models and embedders."""


@app.command()
def check(
    as_json: AsJson = False,
    sharing: Annotated[
        bool | None,
        typer.Option(
            "--sharing/--no-sharing",
            help="try whether the models keep what is personal, with 24 calls each; without it: where agents learn",
        ),
    ] = None,
) -> None:
    """Call each configured model; exit code 1 if one of them cannot be used.

    Models of an endpoint given as a URL are also tried: what they can do, and which settings fit them. Where agents
    learn from what users say, the models that form memory are tried with statements of which half belong to one
    person: a model that shares more of these than EDEN_MEMORY_SHARING_MISTAKES shares nothing. The result is stored
    where MongoDB can be reached; without that, models are checked all the same, and the output says so.

    Standard error tells what is being tried. What a model can do is tried for two minutes at most; then the output
    says what was slow. The trial of statements goes on to its end.
    """
    settings = with_only_model(Settings())
    found, tried, slow = asyncio.run(_check(settings))
    kept, unstored = [], None
    if not any(model.problem for model in found):
        kept, unstored = asyncio.run(_sharing(settings, sharing))
    notes = [*_without_calls(settings), *_unused(settings), *filter(None, (unstored, slow))]
    if as_json:
        told = {
            "models": [asdict(checked_model) for checked_model in found],
            "tried": [asdict(tried_model) for tried_model in tried],
            "sharing": [asdict(trial) for trial in kept],
            "notes": notes,
        }
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False, default=str))
    else:
        _print(found, notes)
        for tried_model in tried:
            _print_tried(tried_model)
        for trial in kept:
            _print_sharing(trial, settings.memory.sharing_mistakes)
    raise typer.Exit(1 if any(checked_model.problem for checked_model in found) else 0)


class Progress:
    """Tells on standard error what is being tried, again every half minute while it lasts."""

    def __init__(self) -> None:
        self.step, self._since = "", time.monotonic()

    def __call__(self, step: str) -> None:
        """Tell the next step."""
        self.step, self._since = step, time.monotonic()
        typer.echo(f"· {plain(step)}", err=True)

    async def __aenter__(self) -> Self:
        """Begin to tell."""
        self._reminding = asyncio.create_task(self._remind())
        return self

    async def __aexit__(self, *_: object) -> None:
        """End."""
        self._reminding.cancel()

    async def _remind(self) -> None:
        while True:
            await asyncio.sleep(REMIND_SECONDS)
            if (seconds := time.monotonic() - self._since) >= REMIND_SECONDS:
                typer.echo(f"· no answer for {seconds:.0f} s: {plain(self.step)}", err=True)


async def _check(settings: Settings) -> "tuple[list[CheckedModel], list[TriedModel], str | None]":
    """Check all models, and try those of endpoints; the text says what was too slow to end."""
    from eden_memory.formation.model_trial import tried_models  # noqa: PLC0415 - the SDKs import for a second
    from eden_memory.models.model_check import check as check_models  # noqa: PLC0415 - likewise

    began, tried = time.monotonic(), list["TriedModel"]()
    async with Progress() as progress:
        found = await check_models(settings, most_seconds=CHECK_SECONDS, on_progress=progress)
        works = {(model.provider, model.model) for model in found if model.problem is None}
        try:
            async with asyncio.timeout(CHECK_SECONDS - (time.monotonic() - began)):
                async for model in tried_models(settings, works, progress):
                    tried.append(model)
        except TimeoutError:
            slow = f"Stopped after {CHECK_SECONDS:g} s without an answer to this, which is slow: {progress.step}."
            return found, tried, slow
    return found, tried, None


async def _sharing(settings: Settings, wanted: bool | None) -> "tuple[list[SharingTrial], str | None]":
    """Try how each model judges, without a wish only where agents learn; the note says why nothing was stored."""
    from eden_memory.formation.sharing_store import store_trials  # noqa: PLC0415 - the SDKs import for a second
    from eden_memory.formation.sharing_trial import judging_models, tried_sharing  # noqa: PLC0415 - likewise

    if wanted is False or (wanted is None and settings.memory.sharing in (None, "private")):
        return [], None
    streams: Sequence[Stream] = ()
    with suppress(EdenError):
        async with installation(settings) as at:
            streams = await StreamStore(at.database, at.settings).list()
    if not judging_models(settings, streams):
        return [], None
    async with Progress() as progress:
        found = await tried_sharing(settings, progress, streams)
    try:
        async with installation(settings) as at:
            await store_trials(at.database, at.settings.names, found)
    except EdenError as error:
        return found, f"What the models shared was not stored, so they share nothing yet: {error}"
    return found, None


def _print_sharing(trial: "SharingTrial", most: int) -> None:
    verdict = "may share" if trial.passed(most) else f"shares nothing (at most {most} may be)"
    typer.echo(
        f"\n{plain(trial.provider)} {plain(trial.model)} with {trial.prompt}: shared {trial.personal_shared} of "
        f"{trial.personal} personal statements and {trial.others_shared} of {trial.others} others: {verdict}"
    )
    for text in trial.shared:
        typer.echo(f"  shared: {text}")


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


def _print_tried(model: "TriedModel") -> None:
    can = [name for name, has in (("JSON mode", model.json_mode), ("tools", model.tools)) if has]
    speed = (
        "unknown" if model.tokens_a_second is None else f"about {model.tokens_a_second:.0f} tokens a second"
    )
    context = "unknown" if model.context is None else f"{model.context:,} tokens"
    rows = (
        ("also supports", ", ".join(can) or "-"),
        ("thinks", model.thinking),
        ("finds facts in", ", ".join(model.languages) or "no language"),
        ("but not in", ", ".join(model.untold) or "-"),
        ("speed", speed),
        ("context", context),
    )
    typer.echo(f"\n{plain(model.provider)} {plain(model.model)}, tried:")
    for name, value in rows:
        typer.echo(f"  {name:15}{value}")
    typer.echo(
        "  settings that fit it: " + " ".join(f"{name}={value}" for name, value in model.settings.items())
    )
    if not model.languages:
        typer.echo("  It found none of the facts it was told: choose another model.")


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
