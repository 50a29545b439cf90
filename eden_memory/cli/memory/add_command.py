"""`eden add`: request through the inbox that a text is remembered; `eden run` carries it out."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

import typer

from eden_memory.cli import terminal
from eden_memory.cli.memory.viewer import Agent, AsJson, Session, User, Viewer, ask
from eden_memory.formation.offline.statements import statements
from eden_memory.formation.prompt_material import TranscriptLine
from eden_memory.limits import STANDARD
from eden_memory.memory.memory_views import Added
from eden_memory.models.catalogue import chat_providers
from eden_memory.settings import Settings


class AddedKind(StrEnum):
    """Which memory a verbatim text becomes (api.command_requests.VerbatimKind)."""

    FACT = "fact"
    REFLECTION = "reflection"


def add(
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT…", help="what to remember; - reads standard input")
    ],
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    scope: Annotated[
        str | None,
        typer.Option(
            help="whose memory it becomes: user (unset, with a user), or agent or shard:NAME, which all users see"
        ),
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="when it was said, if not now: ISO, UTC unless it says", metavar="TIME")
    ] = None,
    verbatim: Annotated[
        bool, typer.Option("--verbatim", help="each text is a fact as it stands, without a model")
    ] = False,
    kind: Annotated[AddedKind, typer.Option(help="of a verbatim text: which memory it is")] = AddedKind.FACT,
    as_json: AsJson = False,
) -> None:
    """Remember a text without a chat: memory is formed from it as from a chat message.

    Examples:

    eden add "Ada moved to Turin." --user ada

    eden add "Ada lives in Oslo." --user ada --at 2024-03-01

    eden add - --user ada < notes.txt

    eden add "We ship on Fridays." --user ada --scope agent

    eden add "A cabin costs 400 euros." --scope shard:pricing

    eden add "Ada's boat is called Tern." --user ada --verbatim
    """
    given = [sys.stdin.read() if text == "-" else text for text in texts]

    async def work(who: Viewer) -> Added:
        messages = [{"role": "user", "content": text} for text in given]
        return await who.memory.add(
            messages, **who.named, scope=scope, at=at, verbatim=verbatim, kind=kind.value
        )

    added = ask(agent, session, user, work)
    if as_json:
        terminal.show_json(added)
    else:
        texts_said = "1 text" if len(given) == 1 else f"{len(given)} texts"
        whose = _whose(session, user, scope)
        does = "adds" if verbatim else "forms"
        into = "to" if verbatim else "into"
        typer.echo(terminal.plain(f"asked: `eden run` {does} {texts_said} {into} memory of {whose}"))
    if not verbatim:
        _say_what_rules_leave(given)


def _whose(session: str | None, user: str | None, scope: str | None) -> str:
    if scope is not None and scope.startswith("shard:"):
        return f"the shard {scope.removeprefix('shard:')}"
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
