"""The commands that are operations, made from the table: arguments, options and JSON; tables are in shown.py."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from inspect import Parameter as Argument
from inspect import Signature
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from eden_memory.cli.memory import shown
from eden_memory.cli.memory.viewer import Agent, AsJson, Session, User, Viewer, ask, say_why
from eden_memory.cli.terminal import parse_time
from eden_memory.errors import Invalid
from eden_memory.operations.empty_because import EmptyBecause, empty_because
from eden_memory.operations.operation import Parameter, plain_type
from eden_memory.operations.parameters import UNSET
from eden_memory.operations.table import BY_NAME

FLAGS: Mapping[str, str] = {
    "search_type": "--type",
    "kinds": "--kind",
    "scopes": "--scope",
    "include_retired": "--retired",
    "score_threshold": "--threshold",
    "expected_version": "--version",
    "absorbed": "--absorbed/--not-absorbed",
    "private": "--private/--not-private",
}
"""Options that are not called as their parameter; of a list, an option names one, and may be repeated."""
METAVARS: Mapping[str, str] = {
    "duplicate_id": "DUPLICATE",
    "fact_id": "FACT",
    "memory_id": "ID",
    "queries": "QUESTION…",
    "scope": "SCOPE",
    "sentence": "SENTENCE",
    "text": "TEXT",
}
ABOUT: dict[str, Any] = {"agent": Agent, "session": Session, "user": User, "as_json": AsJson}


def _command(name: str, show: Callable[[Any, str | None], None], words: str) -> Callable[..., None]:
    """Return an operation as a command; `words` are its help, `show` prints an answer for people."""
    operation = BY_NAME[name]
    parameters = {parameter.name: parameter for parameter in operation.parameters}

    def run(**given: Any) -> None:
        agent, session, user, as_json = (given.pop(option) for option in ABOUT)
        asked = {option: value for option, value in given.items() if value is not None}
        for option, value in asked.items():
            if parameters[option].default is UNSET:
                _demand_text(option, value)

        async def work(viewer: Viewer) -> tuple[Any, EmptyBecause | None]:
            call = viewer.call
            found = operation.shown(await operation.asked(call, asked))
            return found, await empty_because(call, operation, found)

        found, because = ask(agent, session, user, work)
        if as_json:
            typer.echo(json.dumps(operation.json.dump_python(found, mode="json"), indent=2))
        else:
            show(found, user)
        say_why(because)

    annotations = {name: _option(parameter) for name, parameter in parameters.items()} | ABOUT
    made: Any = run
    made.__doc__, made.__annotations__ = words, annotations
    made.__signature__ = Signature(
        [
            Argument(
                name, Argument.KEYWORD_ONLY, annotation=found, default=_default(parameters.get(name), name)
            )
            for name, found in annotations.items()
        ]
    )
    return run


def _demand_text(name: str, value: Any) -> None:
    """Raise Invalid for a blank argument."""
    texts: Sequence[str] = [value] if isinstance(value, str) else value
    if not all(text.strip() for text in texts):
        raise Invalid(f"{METAVARS.get(name, name.upper())} is empty", "Give a text, or a few words.")


def _default(parameter: Parameter | None, name: str) -> Any:
    if parameter is None:
        return False if name == "as_json" else None
    if parameter.default is UNSET:
        return Argument.empty
    return None if get_origin(_inner(parameter)) is list else parameter.default


def _inner(parameter: Parameter) -> Any:
    """Return the type without limits, and without None."""
    found = plain_type(parameter)
    if get_origin(found) is UnionType or NoneType in get_args(found):
        (found,) = (inner for inner in get_args(found) if inner is not NoneType)
    return plain_type(Parameter("", found))


def _option(parameter: Parameter) -> Any:
    """Return a parameter as Typer reads it: what is required as an argument, the rest as options."""
    inner, optional = _inner(parameter), NoneType in get_args(plain_type(parameter))
    described = [
        found for found in getattr(parameter.type, "__metadata__", ()) if isinstance(found, FieldInfo)
    ]
    options: dict[str, Any] = {
        "help": next((found.description for found in described if found.description), None)
    }
    limits = [limit for found in described for limit in found.metadata]
    for name, limit in (("min", "ge"), ("max", "le")):
        for found in limits:
            if hasattr(found, limit) and inner in (int, float):
                options[name] = getattr(found, limit)
    taken: Any = inner
    if inner is datetime:
        options |= {"parser": parse_time, "metavar": "TIME"}
    if get_origin(inner) is list:
        item = plain_type(Parameter("", get_args(inner)[0]))
        taken, optional = list[_choice(item)], parameter.default is not UNSET  # type: ignore[misc]
    if optional:
        taken = taken | None
    if parameter.default is UNSET:
        return Annotated[taken, typer.Argument(metavar=METAVARS.get(parameter.name), **options)]
    flag = FLAGS.get(parameter.name, "--" + parameter.name.replace("_", "-"))
    return Annotated[taken, typer.Option(flag, **options)]


def _choice(item: Any) -> Any:
    """Return the type of an option that may be repeated: Typer takes no lists of literals."""
    if get_origin(item) is not Literal:
        return item
    names: Sequence[str] = get_args(item)
    return StrEnum("Choice", {name.upper(): name for name in names})


search = _command(
    "search",
    shown.search,
    """Search the facts, or reflections, that a user may see, as an agent would.

    Examples:

    eden search "where does Ada live?" --user ada

    eden search Lyon "next trip" --session s1 --debug

    eden search office --as-of 2026-03-01 --json

    eden search "which tea does she like?" --user ada --kind facts --kind reflections
    """,
)
facts = _command(
    "list facts",
    shown.facts,
    """List the facts that a user may see; those formed last come first.

    They stand in the order of the column "formed"; --since and --until go by "since": from when a fact holds.

    Examples:

    eden facts --user ada

    eden facts --session s1 --scope agent --since 2026-03-01

    eden facts --user ada --active all --json
    """,
)
reflections = _command(
    "list reflections",
    shown.reflections,
    """List the reflections that a user may see, newest first.

    Examples:

    eden reflections --user ada

    eden reflections --session s1 --scope session --not-absorbed
    """,
)
blobs = _command(
    "list blobs",
    shown.blobs,
    """Show the consolidated text of every scope that a user may see.

    Examples:

    eden blobs --user ada

    eden blobs --session s1 --scope session --json
    """,
)
why = _command(
    "why",
    shown.why,
    """Explain why something is remembered so, or is not: message, window, calls, answer, decision.

    Examples:

    eden why "adopted a greyhound" --user ada

    eden why "prefers trains" --session s1 --user ada --json
    """,
)
stats = _command(
    "stats",
    shown.stats,
    """Count memory scope by scope: words, versions, reflections, facts, times.

    Examples:

    eden stats --user ada

    eden stats --session s1 --json
    """,
)
edit = _command(
    "edit",
    shown.requested,
    """Change the text of a fact, reflection or blob; the old text stays in its history.

    A blob needs --version, the version that the text was written for, and keeps its pinned sentences.

    Examples:

    eden edit FACT "Ada lives in Turin." --user ada --version 2

    eden edit user:s.support:s.ada "Ada likes boats." --user ada --agent support --version 4
    """,
)
private = _command(
    "mark private",
    shown.requested,
    """Mark a fact or reflection as private: nothing of it reaches a broader scope.

    With a fact, the reflections that rest on the same messages are marked, too.

    Examples:

    eden private REFLECTION --user ada

    eden private REFLECTION --not-private --user ada
    """,
)
merge = _command(
    "merge facts",
    shown.requested,
    """Make one of two facts that say the same; the second one retires, and its history stays.

    Example:

    eden merge FACT DUPLICATE --user ada
    """,
)
retire = _command(
    "retire",
    shown.requested,
    """Remove a fact or reflection from search and context; its history stays (`eden forget` deletes that too).

    Example:

    eden retire FACT --user ada --reason "no longer so"
    """,
)
pin = _command(
    "pin",
    shown.requested,
    """Pin a sentence: the blob holds it, and every consolidation keeps it word for word.

    Example:

    eden pin user:s.support:s.ada "Never call Ada before nine." --user ada --agent support
    """,
)
unpin = _command(
    "unpin",
    shown.requested,
    """Unpin a sentence: it stays in the blob until a consolidation rewords it.

    Example:

    eden unpin user:s.support:s.ada "Never call Ada before nine." --user ada --agent support
    """,
)
audit = _command(
    "audit",
    shown.audit,
    """Count facts that memory would be better without, with examples; retire all of one kind.

    Facts of one agent, or with --all-agents of all; with --user of that user alone. The counts end with a line to
    retire each kind; what was retired is active again after the undo that the command names.

    Examples:

    eden audit --all-agents

    eden audit --user ada --retire near_duplicate --preview 1f0c65a0b7d94e2f8a31c5d6e7f80912
    """,
)
