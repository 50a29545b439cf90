"""`eden demo`: a chat application writes to MongoDB; what arrives on Kafka is shown."""

import asyncio
import logging
import signal
from pathlib import Path

import typer
from rich.console import Console

from eden_memory.cli.demo_view import LineView, LiveView, print_summary
from eden_memory.demo.conversation import EXAMPLE, Conversation, read_conversation
from eden_memory.demo.journey import Summary
from eden_memory.demo.play import play, running_servers
from eden_memory.settings import Settings


def demo(
    rate: float = typer.Option(60.0, min=0.1, help="messages a second that the application writes"),
    keep: bool = typer.Option(
        False, "--keep", help="leave servers, database and topics as they are at the end"
    ),
    conversation: Path = typer.Option(
        EXAMPLE, help="JSON lines of {session, role, content, user, created_at}"
    ),
) -> None:
    """Write a demo conversation as a chat application would, and show it arriving on Kafka."""
    signal.signal(signal.SIGTERM, _as_interrupt)
    # What goes wrong is said by the demo itself; a client's retries while topics are made are no news.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    console = Console(highlight=False)
    try:
        summary = _run(console, read_conversation(conversation), rate, keep)
    except KeyboardInterrupt:
        console.print("stopped; nothing was left running")
        raise typer.Exit(130) from None
    print_summary(console, summary, keep)
    if not summary.complete:
        raise typer.Exit(1)


def _as_interrupt(number: int, frame: object) -> None:
    """SIGTERM ends the demo as Ctrl-C does, wherever it is."""
    del number, frame
    signal.raise_signal(signal.SIGINT)


def _run(console: Console, conversation: Conversation, rate: float, keep: bool) -> Summary:
    settings = Settings()
    console.print("[dim]·[/dim] MongoDB and Kafka start, unless they run")
    with running_servers(settings, keep=keep) as found, _view(console) as view:
        return asyncio.run(play(settings, found, conversation, view, rate=rate, keep=keep))


def _view(console: Console) -> LiveView | LineView:
    return LiveView(console) if console.is_terminal else LineView(console)
