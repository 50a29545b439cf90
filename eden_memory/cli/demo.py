"""`eden demo`: play a chat application, and show what arrives on Kafka and which memory forms."""

import asyncio
import logging
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from eden_memory.cli.demo_view import LineView, LiveView, print_result
from eden_memory.cli.terminal import confirm, sigterm_as_interrupt
from eden_memory.demo.conversation import EXAMPLE, estimate, read_conversation
from eden_memory.demo.play import DemoOutcome, DemoPlan, play, running_servers
from eden_memory.models.catalogue import VARIABLES, asked_for, check_url, key_of, provider_name
from eden_memory.settings import Settings


def demo(
    rate: Annotated[
        float, typer.Option(min=0.1, help="messages a second that the application writes")
    ] = 60.0,
    keep: Annotated[
        bool, typer.Option("--keep", help="leave servers, database and topics as they are at the end")
    ] = False,
    conversation: Annotated[
        Path,
        typer.Option(help="JSON lines of {session, role, content, user, created_at}, or a ChatGPT export"),
    ] = EXAMPLE,
    llm: Annotated[
        str | None,
        typer.Option(
            help="openai, google, a URL, or local: a model server here; unset: EDEN_LLM, else rules"
        ),
    ] = None,
    cap: Annotated[float, typer.Option(min=0.0, help="US dollars that the demo may cost at most")] = 0.25,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before a conversation is sent")] = False,
) -> None:
    """Play a conversation as a chat application would write it, and show the memory formed from it."""
    sigterm_as_interrupt()
    # What goes wrong is said by the demo itself; a client's retries while topics are made are no news.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    console = Console(highlight=False)
    plan = DemoPlan(read_conversation(conversation), conversation != EXAMPLE, rate, keep, cap)
    try:
        settings = _settings(console, llm)
        _agree(console, settings, plan, yes=yes)
        outcome = _run(console, settings, plan)
    except KeyboardInterrupt:
        console.print("stopped; nothing was left running")
        raise typer.Exit(130) from None
    print_result(console, outcome, keep)
    if not (outcome.summary.complete and outcome.finished):
        raise typer.Exit(1)


def _settings(console: Console, llm: str | None) -> Settings:
    """Return the settings for `--llm`; `eden run` gets those of a local model by the environment."""
    if llm != "local":
        return Settings() if llm is None else Settings(llm=llm)
    from eden_memory.demo.local_model import fitted_model  # noqa: PLC0415 - the SDKs import for a second

    console.print("[dim]·[/dim] a model server on this machine is looked for and tried")
    fitted = asyncio.run(fitted_model(Settings()))
    for line in fitted.described():
        console.print(f"  {line}", markup=False)
    os.environ.update(fitted.variables)
    return Settings()


def _agree(console: Console, settings: Settings, plan: DemoPlan, *, yes: bool) -> None:
    """Print the highest cost, and ask before the user's own conversation leaves this machine.

    Whatever it comes to, the demo ends when the calls have cost more than the cap, as far as prices are known.
    EdenError where a provider's key is missing, or what is asked for is no provider.
    """
    asked = asked_for(settings)
    if not asked:
        return
    for setting, value in (("EDEN_LLM", settings.llm), ("EDEN_EMBEDDER", settings.embedder)):
        if value in asked and value not in VARIABLES:
            check_url(setting, value)
    for provider in VARIABLES.keys() & set(asked):
        key_of(provider)
    cost = estimate(plan.conversation, settings)
    capped = f"it stops at {plan.cap_usd:g} USD (--cap)"
    if cost is None:
        said = f"not all prices are known, and only known ones count: {capped}"
    else:
        said = f"up to about {cost:.2f} USD is expected; {capped}"
    where, messages = " and ".join(map(provider_name, asked)), len(plan.conversation.messages)
    console.print(f"{messages} messages go to {where}: {said}")
    if cost is not None and float(cost) > plan.cap_usd:
        console.print(
            "[yellow]that may not be enough for all of it[/yellow]: what is formed by then is shown"
        )
    if plan.own and not yes:
        confirm(f"Send this conversation to {where}?")


def _run(console: Console, settings: Settings, plan: DemoPlan) -> DemoOutcome:
    console.print("[dim]·[/dim] MongoDB and Kafka start, unless they run")
    with running_servers(settings, keep=plan.keep) as found, _view(console) as view:
        return asyncio.run(play(settings, found, plan, view))


def _view(console: Console) -> LiveView | LineView:
    return LiveView(console) if console.is_terminal else LineView(console)
