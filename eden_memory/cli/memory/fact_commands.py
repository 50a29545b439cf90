"""`eden add`, `eden edit`, `eden retire`: request a change through the inbox; `eden run` carries it out."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from eden_memory.cli import terminal
from eden_memory.cli.memory.viewer import Agent, AsJson, Session, User, Viewer, ask
from eden_memory.errors import Invalid
from eden_memory.formation.offline.statements import statements
from eden_memory.formation.prompt_material import TranscriptLine
from eden_memory.memory.results import Added
from eden_memory.models.providers.catalogue import chat_providers
from eden_memory.scope_limits import STANDARD
from eden_memory.settings import Settings

FactId = Annotated[str, typer.Argument(metavar="FACT", help="its id, as `eden facts` shows it")]
Version = Annotated[
    int | None, typer.Option("--version", min=1, help="only if the fact still stands at this version")
]
Reason = Annotated[str | None, typer.Option(help="kept in the fact's history")]


def add(
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT…", help="what to remember; - reads standard input")
    ],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    scope: Annotated[
        str | None,
        typer.Option(help="whose memory it becomes: user (unset, with a user) or agent, which all users see"),
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="when it was said, if not now: ISO, UTC unless it says", metavar="TIME")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remember a text without a chat: memory is formed from it as from a chat message.

    Examples:

    eden add "Ada moved to Turin." --user ada

    eden add "Ada lives in Oslo." --user ada --at 2024-03-01

    eden add - --user ada < notes.txt

    eden add "We ship on Fridays." --user ada --scope agent
    """
    given = [sys.stdin.read() if text == "-" else text for text in texts]

    async def work(who: Viewer) -> Added:
        messages = [{"role": "user", "content": text} for text in given]
        return await who.memory.add(messages, **who.named, scope=scope, at=at)

    added = ask(agent, session, user, work)
    if as_json:
        terminal.show_json(added)
    else:
        texts_said = "1 text" if len(given) == 1 else f"{len(given)} texts"
        whose = _whose(session, user, scope)
        typer.echo(terminal.plain(f"asked: `eden run` forms {texts_said} into memory of {whose}"))
    _say_what_rules_leave(given)


def _whose(session: str | None, user: str | None, scope: str | None) -> str:
    if user is not None and scope != "agent":
        return f"user {user}"
    return "the agent" if session is None or scope == "agent" else f"session {session}"


def _say_what_rules_leave(texts: Sequence[str]) -> None:
    """Warn if memory is formed by rules, and they find nothing in some of the texts."""
    if chat_providers(Settings()):
        return
    lines = [TranscriptLine("User", "user", datetime.now(UTC), text) for text in texts]
    left = sum(not statements([line], STANDARD.fact_words) for line in lines)
    if left:
        of = "it" if len(texts) == 1 else f"{left} of them"
        typer.echo(
            f"No language model is used, and the rules in its place find nothing to remember in {of}: they keep "
            'only plain statements such as "I live in Oslo." Set EDEN_LLM to use a model.',
            err=True,
        )


def edit(
    fact: FactId,
    text: Annotated[str, typer.Argument(help="what the fact is to say")],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    version: Version = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Change the text of a fact; the old text stays in its history.

    Example:

    eden edit FACT "Ada lives in Turin." --user ada --version 2
    """
    if not text.strip():
        raise Invalid("the text is empty", "`eden retire` takes a fact out of memory.")

    async def work(who: Viewer) -> str:
        return await who.memory.edit(fact, text, **who.named, expected_version=version, reason=reason)

    _asked(ask(agent, session, user, work), as_json=as_json)


def retire(
    fact: FactId,
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    version: Version = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Remove a fact from search and context; its history stays (`eden forget` deletes that too).

    Example:

    eden retire FACT --user ada --reason "no longer so"
    """

    async def work(who: Viewer) -> str:
        return await who.memory.retire(fact, **who.named, expected_version=version, reason=reason)

    _asked(ask(agent, session, user, work), as_json=as_json)


def _asked(request: str, *, as_json: bool) -> None:
    if as_json:
        terminal.show_json({"request": request})
    else:
        typer.echo(f"asked (request {request}): `eden run` carries it out")
