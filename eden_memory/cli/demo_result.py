"""What the demo shows at its end: the way into Kafka, the memory formed, a context, a search, what to try next."""

import sys
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from eden_memory.cli.demo_view import NAMES
from eden_memory.cli.memory_view import render, scope_name
from eden_memory.demo.journey import Summary
from eden_memory.demo.judgement import Verdict
from eden_memory.demo.memory import Example
from eden_memory.demo.play import Outcome


def print_result(console: Console, outcome: Outcome, kept: bool) -> None:
    """All of it, top to bottom."""
    _summary(console, outcome.summary)
    console.print("\n[bold]the memory that formed of it[/bold]")
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


def _verdict(console: Console, verdict: Verdict) -> None:
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
