"""`eden edit`, `eden retire`, `eden pin`, `eden unpin`: request a correction; `eden run` carries it out."""

from typing import Annotated

import typer

from eden_memory.cli import terminal
from eden_memory.cli.memory.viewer import Agent, AsJson, Session, User, Viewer, ask
from eden_memory.errors import Invalid

MemoryId = Annotated[
    str, typer.Argument(metavar="ID", help="its id, as `eden facts` and `eden reflections` show it")
]
Version = Annotated[int | None, typer.Option("--version", min=0, help="only if this version still stands")]
Reason = Annotated[str | None, typer.Option(help="kept in the history")]
ScopeOfBlob = Annotated[
    str, typer.Argument(metavar="SCOPE", help="the blob's scope, as `eden blobs --json` shows its key")
]
Sentence = Annotated[str, typer.Argument(help="the sentence, word for word")]


def edit(
    fact: Annotated[
        str, typer.Argument(metavar="ID", help="of a fact or reflection, or the key of a blob's scope")
    ],
    text: Annotated[str | None, typer.Argument(help="what it is to say")] = None,
    private: Annotated[
        bool | None,
        typer.Option(
            "--private/--not-private",
            help="in place of a text: mark a fact or reflection as private",
        ),
    ] = None,
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    version: Version = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Change the text of a fact, reflection or blob; the old text stays in its history.

    A blob needs --version, the version that the text was written for, and keeps its pinned sentences.

    Examples:

    eden edit FACT "Ada lives in Turin." --user ada --version 2

    eden edit user:s.support:s.ada "Ada likes boats." --user ada --agent support --version 4

    eden edit REFLECTION --private --user ada
    """
    if (text is None) == (private is None):
        raise Invalid("give either a text or --private", "`eden edit ID TEXT`, or `eden edit ID --private`.")
    if text is not None and not text.strip():
        raise Invalid("the text is empty", "`eden retire` takes a fact or reflection out of memory.")

    async def work(who: Viewer) -> str:
        if text is None:
            return await who.memory.mark_private(
                fact, bool(private), **who.named, expected_version=version, reason=reason
            )
        return await who.memory.edit(fact, text, **who.named, expected_version=version, reason=reason)

    _asked(ask(agent, session, user, work), as_json=as_json)


def retire(
    fact: MemoryId,
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    version: Version = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Remove a fact or reflection from search and context; its history stays (`eden forget` deletes that too).

    Example:

    eden retire FACT --user ada --reason "no longer so"
    """

    async def work(who: Viewer) -> str:
        return await who.memory.retire(fact, **who.named, expected_version=version, reason=reason)

    _asked(ask(agent, session, user, work), as_json=as_json)


def pin(
    scope: ScopeOfBlob,
    sentence: Sentence,
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Pin a sentence: the blob holds it, and every consolidation keeps it word for word.

    Example:

    eden pin user:s.support:s.ada "Never call Ada before nine." --user ada --agent support
    """

    async def work(who: Viewer) -> str:
        return await who.memory.pin(scope, sentence, **who.named, reason=reason)

    _asked(ask(agent, session, user, work), as_json=as_json)


def unpin(
    scope: ScopeOfBlob,
    sentence: Sentence,
    agent: Agent = None,
    session: Session = None,
    user: User = None,
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Unpin a sentence: it stays in the blob until a consolidation rewords it.

    Example:

    eden unpin user:s.support:s.ada "Never call Ada before nine." --user ada --agent support
    """

    async def work(who: Viewer) -> str:
        return await who.memory.unpin(scope, sentence, **who.named, reason=reason)

    _asked(ask(agent, session, user, work), as_json=as_json)


def _asked(request: str, *, as_json: bool) -> None:
    if as_json:
        terminal.show_json({"request": request})
    else:
        typer.echo(f"asked (request {request}): `eden run` carries it out")
