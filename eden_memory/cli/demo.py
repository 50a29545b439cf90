"""`eden demo` or `eden try`: play a chat application, and show what arrives on Kafka and which memory forms.

A terminal gets a live table, then the inspector until Ctrl-C; anything else gets plain lines, the result last.
"""

import asyncio
import logging
import os
import sys
import webbrowser
from collections import Counter, deque
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from eden_memory.cli.following_commands import render, scope_name
from eden_memory.cli.terminal import confirm, sigterm_as_interrupt
from eden_memory.demo.conversation import (
    EXAMPLE,
    ApplicationWrite,
    Arrival,
    Kind,
    Summary,
    estimate,
    read_conversation,
)
from eden_memory.demo.judgement import Example, MemoryVerdict
from eden_memory.demo.play import DemoOutcome, DemoPlan, free_port, play, running_servers
from eden_memory.errors import needs
from eden_memory.models.catalogue import VARIABLES, asked_for, check_url, key_of, provider_name
from eden_memory.models.model_servers import with_only_model
from eden_memory.observability.watching import FormationProgress, NewMemory
from eden_memory.settings import Settings

LAST = 12
NAMES: dict[Kind, str] = {"message": "messages", "edit": "edits", "delete": "deletions"}
WHAT = {"message": ("", ""), "edit": ("edited", "yellow"), "delete": ("deleted", "red")}


class LineView:
    """Prints a line a record, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> "LineView":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: lines need no clean-up."""

    def note(self, text: str) -> None:
        """Show a step of the preparation."""
        self._console.print(f"· {text}")

    def arrived(self, arrival: Arrival, write: ApplicationWrite | None) -> None:
        """Show a record, without repeats (a tombstone can go to every partition)."""
        if write is not None:
            place = f"{arrival.partition}/{arrival.offset}"
            said = arrival.text if arrival.text is not None else ""
            what = f"{WHAT[write.kind][0]} " if WHAT[write.kind][0] else ""
            line = f"{place:>8} {_delay(write):>9}  {write.session:<15} {arrival.author:<9} {what}{said}"
            self._console.print(line.rstrip()[:160], soft_wrap=True, markup=False)

    def forming(self, progress: FormationProgress) -> None:
        """Show a line for every memory, formed ones included."""
        for item in progress.newest:
            self._told(item)
        progress.tell = self._told

    def inspected(self, outcome: DemoOutcome, address: str) -> None:
        """Show where the inspector is."""
        print_short(self._console, outcome, address)

    def _told(self, item: NewMemory) -> None:
        why = f"  ({item.why})" if item.why else ""
        text = item.text.replace("\n", " ")
        line = f"{item.what:>10}  {scope_name(item.scope):<22} {text[:140]}{why}"
        self._console.print(line, soft_wrap=True, markup=False)


class LiveView:
    """Shows the newest records, and the memory of each session."""

    def __init__(self, console: Console) -> None:
        self._newest: deque[tuple[Arrival, ApplicationWrite]] = deque(maxlen=LAST)
        self._sessions: dict[str, Counter[Kind]] = {}
        self._progress: FormationProgress | None = None
        self._live = Live(
            console=console, refresh_per_second=8, get_renderable=self._render, transient=True
        )  # what it last showed is part of the result

    def __enter__(self) -> "LiveView":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Show a step of the preparation."""
        self._live.console.print(f"[dim]·[/dim] {text}")

    def arrived(self, arrival: Arrival, write: ApplicationWrite | None) -> None:
        """Show a record."""
        if write is not None:
            self._newest.append((arrival, write))
            self._sessions.setdefault(write.session, Counter())[write.kind] += 1

    def forming(self, progress: FormationProgress) -> None:
        """Show memory instead of messages from now on."""
        self._progress = progress

    def inspected(self, outcome: DemoOutcome, address: str) -> None:
        """Show the result in short instead of the tables, and where the inspector is."""
        self._live.stop()
        print_short(self._live.console, outcome, address)
        if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(address)  # elsewhere it may be a browser that takes the terminal

    def _render(self) -> Any:
        if self._progress is not None:
            return Group(Text(), render(self._progress))
        if not self._newest:
            return Text("")
        return Group(Text(), self._records(), Text(), self._counts())

    def _records(self) -> Table:
        table = Table(box=None, pad_edge=False, expand=True)
        for name, options in (
            ("session", {"no_wrap": True, "width": 15}),
            ("author", {"no_wrap": True, "width": 9}),
            ("text", {"no_wrap": True, "ratio": 1, "overflow": "ellipsis"}),
            ("partition", {"justify": "right", "width": 9}),
            ("offset", {"justify": "right", "width": 6}),
            ("delay", {"justify": "right", "width": 9}),
        ):
            table.add_column(name, header_style="dim", **options)  # pyright: ignore[reportArgumentType]
        for arrival, write in self._newest:
            place = str(arrival.partition), str(arrival.offset)
            table.add_row(write.session, arrival.author, _said(arrival, write), *place, _delay(write))
        return table

    def _counts(self) -> Table:
        table = Table(box=None, pad_edge=False)
        table.add_column("session", header_style="dim", width=15)
        for name in NAMES.values():
            table.add_column(name, header_style="dim", justify="right")
        for session, counts in self._sessions.items():
            table.add_row(session, *(str(counts[kind] or "") for kind in NAMES))
        return table


def _said(arrival: Arrival, write: ApplicationWrite) -> Text:
    word, colour = WHAT[write.kind]
    text = Text(f"{word} " if word else "", style=colour)
    return text.append((arrival.text or "").replace("\n", " "), style="default")


def _delay(write: ApplicationWrite) -> str:
    return f"{(write.delay or 0.0) * 1000:.1f} ms"


def print_short(console: Console, outcome: DemoOutcome, address: str) -> None:
    """Print the result in a few lines, and the inspector's address last."""
    summary, progress, example = outcome.summary, outcome.progress, outcome.example
    written = ", ".join(f"{summary.written[kind]} {name}" for kind, name in NAMES.items())
    arrived = (
        "all seen on Kafka in order" if summary.complete else "[red]not all seen on Kafka in order[/red]"
    )
    console.print(f"{written} written to MongoDB, {arrived}")
    formed = "" if outcome.finished else "; [red]not everything was formed[/red], in time or within the cap"
    console.print(
        f"{progress.decisions['ADD']} facts, {progress.reflections.total()} reflections and {len(progress.blobs)} "
        f"consolidated texts formed in {progress.windows} windows{formed}"
    )
    if (verdict := outcome.verdict) is not None:
        shares = f"recall {verdict.recall:.2f}, precision {verdict.precision:.2f}, clean {verdict.clean:.2f}"
        console.print(f"{shares}, against what a person would want remembered")
    for found in example.found[:1]:
        console.print(Text(f"a search: {example.question}"))
        console.print(Text(f"  {found.score:.2f}  [{scope_name(found.scope.key)}] {found.content}"))
    console.print(
        f"[bold]the inspector: {address}[/bold]\nCtrl-C ends it and all that the demo started", soft_wrap=True
    )


def print_result(console: Console, outcome: DemoOutcome, kept: bool) -> None:
    """Print the result, top to bottom."""
    _summary(console, outcome.summary)
    console.print("\n[bold]the memory formed from it[/bold]")
    console.print(render(outcome.progress))
    if not outcome.finished:
        console.print(
            "[bold red]not everything was formed[/bold red]: in time, or before the cap was reached"
        )
    _example(console, outcome.example)
    if outcome.verdict is not None:
        _verdict(console, outcome.verdict)
    console.print(_next_steps(kept), soft_wrap=True)


def _summary(console: Console, summary: Summary) -> None:
    written, seen = summary.written, summary.seen
    console.print("\n[bold]written to MongoDB, seen on Kafka[/bold]")
    for kind, name in NAMES.items():
        console.print(f"  {name:<10} {written[kind]:>5} {seen[kind]:>5}")
    console.print(f"  missing    {len(summary.missing):>5}   {' '.join(summary.missing[:10])}".rstrip())
    order = "as written in every session"
    if summary.out_of_order:
        order = f"not as written in {', '.join(summary.out_of_order)}"
    console.print(f"  order      {order}")
    console.print(
        f"  delay      p50 {summary.p50 * 1000:.1f} ms, p99 {summary.p99 * 1000:.1f} ms, write included"
    )


def _example(console: Console, example: Example) -> None:
    who = f"session {example.session}" + (f", user {example.user}" if example.user else "")
    console.print(f"\n[bold]what the agent reads before its next turn[/bold] ({who})")
    console.print(Panel(Text(example.context or "(nothing)"), expand=False))
    if example.question:
        console.print(f"[bold]a search[/bold]: {example.question}", markup=True)
        for found in example.found:
            line = f"  {found.score:.2f}  [{scope_name(found.scope.key)}] {found.content}"
            console.print(Text(line))
        if not example.found:
            console.print("  nothing was found")


def _verdict(console: Console, verdict: MemoryVerdict) -> None:
    expected = len(verdict.found) + len(verdict.missed)
    counted = len(verdict.wanted) + len(verdict.unlisted)
    console.print("\n[bold]against what a person would want remembered[/bold] (examples/demo.expected.yaml)")
    console.print(
        f"  recall     {verdict.recall:.2f}   {len(verdict.found)} of {expected} expected items are there"
    )
    console.print(
        f"  precision  {verdict.precision:.2f}   {len(verdict.wanted)} of {counted} facts and reflections hold one"
        " (a lower bound)"
    )
    console.print(f"  clean      {verdict.clean:.2f}   the share of them that nothing forbids")
    for ban, formed in verdict.violated:
        text = f"  not wanted {ban.id}: {formed.text[:110]} ({formed.scope})"
        console.print(Text(text, style="yellow"))
    missed = ", ".join(item.id for item in verdict.missed)
    console.print(Text(f"  missed     {missed or 'none'}", style="dim"))


def _next_steps(kept: bool) -> str:
    eden = "eden" if Path(sys.argv[0]).is_absolute() else sys.argv[0]  # `make` calls .venv/bin/eden
    where = (
        f"Look at the database `eden_demo` and the topics `eden-demo.*`; `{eden} down` stops the servers."
        if kept
        else f"Everything the demo made is gone again; `{eden} demo --keep` leaves it to look at."
    )
    return f"""
{where}
Try next:
  {eden} demo --llm openai
      the same with a real model (a key in OPENAI_API_KEY; says what it costs first)
  {eden} demo --conversation FILE
      a ChatGPT export (conversations.json), or JSON lines
  {eden} up
      start MongoDB and Kafka, and leave them running
  {eden} topics apply && {eden} setup && {eden} run
      memory for a chat collection of your own (EDEN_MESSAGES_COLLECTION, ...)
  {eden} watch
      the same view of a running system
  {eden} doctor
      what is not yet as it should be"""


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
            help="openai, anthropic, google, a URL, or local: a model server here; unset: EDEN_LLM, else rules"
        ),
    ] = None,
    cap: Annotated[float, typer.Option(min=0.0, help="US dollars that forming its memory may cost")] = 0.25,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask before a conversation is sent")] = False,
) -> None:
    """Play a chat, show the memory formed from it, and on a terminal the inspector until Ctrl-C."""
    sigterm_as_interrupt()
    port = None
    if sys.stdin.isatty() and sys.stdout.isatty():
        needs("serve", "the inspector", ", or do without the inspector: eden demo | cat")
        port = free_port(Settings().serve.port)
    # What goes wrong is said by the demo itself; a client's retries while topics are made are no news.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    console = Console(highlight=False)
    plan = DemoPlan(read_conversation(conversation), conversation != EXAMPLE, rate, keep, cap, port)
    if port is not None and port != (wanted := Settings().serve.port):
        console.print(
            f"port {wanted} is taken: the inspector moves to {port} (EDEN_SERVE_PORT names another)"
        )
    try:
        settings = _settings(console, llm)
        _agree(console, settings, plan, yes=yes)
        outcome = _run(console, settings, plan)
    except KeyboardInterrupt:
        console.print("stopped; nothing was left running")
        raise typer.Exit(130) from None
    if port is None:
        print_result(console, outcome, keep)
    else:
        console.print("stopped; " + ("what the demo made stays" if keep else "nothing was left running"))
    if not (outcome.summary.complete and outcome.finished):
        raise typer.Exit(1)


def _settings(console: Console, llm: str | None) -> Settings:
    """Return the settings for `--llm`; `eden run` gets those of a local model by the environment."""
    if llm != "local":
        return with_only_model(Settings() if llm is None else Settings(llm=llm))
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
