"""`eden why`: explain why something is remembered so, or is not."""

from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from eden_memory.cli import terminal
from eden_memory.cli.memory.viewer import Agent, AsJson, Session, User, ask, nothing
from eden_memory.cli.tables import console, line
from eden_memory.memory.results import Explained, ExplainedStep


def why(
    text: Annotated[str, typer.Argument(help="words of a fact, a reflection, or a message of the user's")],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    as_json: AsJson = False,
) -> None:
    """Explain why something is remembered so, or is not: message, window, calls, answer, decision.

    Examples:

    eden why "adopted a greyhound" --user ada

    eden why "prefers trains" --session s1 --user ada --json
    """
    found = ask(agent, session, user, lambda who: who.memory.why(text, **who.named))
    if as_json:
        terminal.show_json(found)
        return
    for number, explained in enumerate(found):
        console().print(*[""] * bool(number), _tree(explained), sep="\n")
    if not found:
        typer.echo(nothing("nothing that may be seen here has these words", user), err=True)


def _tree(explained: Explained) -> Tree:
    head = Text.assemble(
        (explained.what, "bold"), " ", line(explained.content or terminal.as_written(explained.id))
    )
    tree = Tree(head.append(f"\n{explained.outcome.replace('_', ' ')}: {terminal.plain(explained.because)}"))
    for step in explained.steps:
        tree.add(_step(step))
    return tree


def _step(step: ExplainedStep) -> Text:
    at = "" if step.at is None else f"  {terminal.moment(step.at)}"
    text = terminal.as_written(step.told) if step.what == "message" else step.told
    told = Text.assemble((step.what, "cyan"), " ", line(text), (at, "dim"))
    return told if step.id is None else told.append(f"  {terminal.as_written(step.id)}", style="dim")
