"""Questions to the person at the terminal, before something that cannot be undone."""

import sys

import typer

from eden_memory.errors import Invalid


def confirm(question: str) -> None:
    """Ask, and abort where the answer is no; Invalid where nobody is there to answer."""
    if not agreed(question):
        raise typer.Abort


def agreed(question: str) -> bool:
    """Ask; Invalid where standard input is no terminal and holds no answer."""
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)
        raise Invalid("nobody is there to be asked", "Give --yes to do it without a question.") from None
