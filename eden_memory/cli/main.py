"""The `eden` command: a line for each command family, whose module is imported when it is called."""

import gc
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from types import TracebackType
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from eden_memory.errors import Conflict, EdenError, Invalid, NotFound, explained, needs
from eden_memory.tasks import answering_within, claim_process

ANSWER_SECONDS = 2.0
"""For a server's first answer to a command that a person waits for: with the imports, no more than 3 s."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The module of a command or command family, and its line in the list of commands."""

    where: str
    """`module:attribute` under eden_memory.cli; a function, or a Typer app."""
    help: str
    patient: bool = False
    """It waits for servers that do not answer at once: it runs for long, or starts them."""
    extra: str | None = None
    """The extra that it cannot do without."""

    def load(self, name: str) -> Any:
        """Import the command; MissingExtra if its extra is not installed."""
        if self.extra is not None:
            needs(self.extra, f"`eden {name}`")
        module, _, attribute = self.where.partition(":")
        found: Any = getattr(import_module(f"eden_memory.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            command: Any = typer.main.get_group(found)
        else:
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command(name)(found)
            command = typer.main.get_command(alone)
        command.name = name
        _give_debug(command)
        return command


def _give_debug(command: Any) -> None:
    """Give each command `--debug`; `eden_memory.cli.main` handles it unless the command defines its own."""
    if isinstance(command, TyperGroup):
        for subcommand in command.commands.values():
            _give_debug(subcommand)
    elif all(param.name != "debug" for param in command.params):
        command.params.append(_debug())


def _debug() -> Any:
    """Return the option; the command's function does not receive it."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def _(debug: Annotated[bool, typer.Option("--debug", help="stack traces")] = False) -> None:
        del debug

    (option,) = typer.main.get_command(app).params
    option.expose_value = False
    return option


class _Standing(TyperCommand):
    """A placeholder for a command until its arguments are read."""

    def __init__(self, name: str, entry: Entry, panel: str) -> None:
        super().__init__(name, help=entry.help, rich_help_panel=panel)
        self._entry = entry

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        assert self.name is not None
        context = self._entry.load(self.name).make_context(info_name, args, parent, **extra)
        if not self._entry.patient:
            context.with_resource(answering_within(ANSWER_SECONDS))
        return context


def lazy_group(entries: Mapping[str, Entry], panels: Mapping[str, Sequence[str]]) -> type[TyperGroup]:
    """Return a group of these commands, under their headings and in their order, beside what its app registers."""

    class LazyGroup(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = {
                **{
                    name: _Standing(name, entries[name], panel)
                    for panel, names in panels.items()
                    for name in names
                },
                **self.commands,
            }

    return LazyGroup


COMMANDS: Mapping[str, Entry] = {
    "up": Entry(
        "server_commands:up",
        "Start MongoDB and Kafka locally, unless EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP name others.",
        patient=True,
    ),
    "down": Entry("server_commands:down", "Stop the local servers; their data stays.", patient=True),
    "status": Entry(
        "server_commands:status",
        "Show which servers run and what is waiting; for an agent, session or user, when it consolidates.",
    ),
    "doctor": Entry(
        "doctor:doctor",
        "Check servers, rights, topics, mapping, models, dead letters, and all that `eden run` refuses.",
        extra="run",
    ),
    "setup": Entry(
        "setup:setup",
        "Create memory's collections, validators and indexes where they are missing; safe to repeat.",
    ),
    "run": Entry(
        "run:run",
        "Run the tailer and the stages until SIGTERM; any number of copies may run.",
        patient=True,
        extra="run",
    ),
    "serve": Entry(
        "serve:serve",
        "Serve the HTTP API, the inspector (/ui), the gateway and MCP until SIGTERM.",
        patient=True,
        extra="serve",
    ),
    "demo": Entry(
        "demo:demo",
        "Play a chat, show the memory formed from it, and on a terminal the inspector until Ctrl-C.",
        patient=True,
        extra="run",
    ),
    "try": Entry(
        "demo:demo",
        "Play a chat, show the memory formed from it, and on a terminal the inspector until Ctrl-C.",
        patient=True,
        extra="run",
    ),
    "eval": Entry(
        "eval:eval_",
        "Compare memory systems on questions about conversations: accuracy over tokens, errors of each step.",
        patient=True,
        extra="eval",
    ),
    "context": Entry(
        "context:context", "Print the context of a session's user: the XML for the agent's prompt."
    ),
    "search": Entry(
        "memory.commands:search", "Search the facts, or reflections, that a user may see, as an agent would."
    ),
    "facts": Entry(
        "memory.commands:facts", "List the facts that a user may see; those formed last come first."
    ),
    "reflections": Entry(
        "memory.commands:reflections", "List the reflections that a user may see, newest first."
    ),
    "blobs": Entry("memory.commands:blobs", "Show the consolidated text of every scope that a user may see."),
    "history": Entry(
        "memory.own_commands:history",
        "Show all versions of a fact, reflection or blob: the reason for each, its sources and its cost.",
    ),
    "why": Entry(
        "memory.commands:why",
        "Explain why something is remembered so, or is not: message, window, calls, answer, decision.",
    ),
    "stats": Entry(
        "memory.commands:stats",
        "Count memory scope by scope: words, versions, reflections, facts, times.",
    ),
    "audit": Entry(
        "memory.commands:audit",
        "Count facts that memory would be better without, with examples; retire all of one kind.",
    ),
    "add": Entry(
        "memory.own_commands:add",
        "Remember a text without a chat: memory is formed from it as from a chat message.",
    ),
    "capture": Entry(
        "capture_command:capture",
        "Write a coding agent's turn, which its hook gives as JSON, into the chat collection.",
    ),
    "import": Entry(
        "import_command:import_",
        "Import memories from another system; repeat the command to continue: nothing is taken twice.",
        patient=True,
        extra="run",
    ),
    "edit": Entry(
        "memory.commands:edit",
        "Change the text of a fact, reflection or blob; the old text stays in its history.",
    ),
    "merge": Entry(
        "memory.commands:merge",
        "Make one of two facts that say the same; the second one retires, and its history stays.",
    ),
    "private": Entry(
        "memory.commands:private",
        "Mark a fact or reflection as private: nothing of it reaches a broader scope.",
    ),
    "retire": Entry(
        "memory.commands:retire",
        "Remove a fact or reflection from search and context; its history stays (`eden forget` deletes that too).",
    ),
    "pin": Entry(
        "memory.commands:pin",
        "Pin a sentence: the blob holds it, and every consolidation keeps it word for word.",
    ),
    "unpin": Entry(
        "memory.commands:unpin",
        "Unpin a sentence: it stays in the blob until a consolidation rewords it.",
    ),
    "mirror": Entry(
        "memory.mirror_command:mirror",
        "Mirror memory to a folder of Markdown files, and take edits of the files back, until Ctrl-C.",
        patient=True,
        extra="mirror",
    ),
    "forget": Entry(
        "forget:forget",
        "Forget a message, session, user or fact, and everything derived from it; summaries are rebuilt.",
    ),
    "mcp": Entry(
        "mcp:mcp",
        "Serve memory to an MCP host over standard input and output, until the host closes it.",
        patient=True,
        extra="mcp",
    ),
    "pause": Entry(
        "stage_commands:pause",
        "Pause a stage: it keeps its offsets and partitions, and starts nothing new.",
        extra="run",
    ),
    "resume": Entry(
        "stage_commands:resume",
        "Resume a stage that was paused by hand or for its dead letters; an outage ends by itself.",
        extra="run",
    ),
    "reembed": Entry(
        "setup:reembed",
        "Embed all facts of another embedding model again; safe to stop and repeat.",
        patient=True,
        extra="run",
    ),
    "rebuild": Entry(
        "replay.rebuild:rebuild",
        "Rebuild memory from its topics into a namespace, without a model; safe to stop and repeat.",
        patient=True,
        extra="run",
    ),
    "reform": Entry(
        "replay.reform:app",
        "Form memory again in a namespace: `eden reform NAME [OPTIONS]` (options: `eden reform run --help`).",
        patient=True,
        extra="run",
    ),
    "namespace": Entry("replay.namespace:app", "List namespaces, and choose which one is live.", extra="run"),
    "export": Entry(
        "export:export",
        "Write memory with its whole history to a file of JSON lines, which `eden import eden FILE` takes.",
        patient=True,
        extra="run",
    ),
    "tap": Entry(
        "following_commands:tap", "Show the records of a topic, until Ctrl-C.", patient=True, extra="run"
    ),
    "watch": Entry(
        "following_commands:watch",
        "Show windows, facts with their decisions, reflections, blobs, calls, cost and lag, until Ctrl-C.",
        patient=True,
        extra="run",
    ),
    "windows": Entry(
        "sessions:windows", "Show a session's windows: why they closed, and what is still waiting."
    ),
    "source": Entry(
        "source_commands:app", "Read messages again after a corrected field mapping.", extra="run"
    ),
    "session": Entry("sessions:app", "Form a session's waiting messages now, or end the session."),
    "stream": Entry(
        "streams:app",
        "Configure an agent's scopes and shards: guidance, thresholds, limits, switches.",
    ),
    "sharing": Entry(
        "sharing_commands:app",
        "Show what came from users into shared memory; give it back to its user, or retire it.",
    ),
    "budget": Entry("budget_commands:app", "Limit what formation may spend."),
    "cost": Entry("cost:app", "Show what models cost: today, this month, or for one memory."),
    "trace": Entry(
        "following_commands:trace",
        "Trace a message to the memories formed from it, or a memory back to its messages.",
        extra="run",
    ),
    "dead": Entry("dead:app", "List, retry and drop dead letters.", extra="run"),
    "groups": Entry(
        "stage_commands:groups", "Restart a consumer group that has lost its offsets.", extra="run"
    ),
    "restored": Entry(
        "stage_commands:restored",
        "Say that a backup of MongoDB was restored: `eden run` forgets again what was forgotten since.",
        extra="run",
    ),
    "keys": Entry("keys:app", "Manage API keys of `eden serve`; only their hashes are stored."),
    "webhooks": Entry("webhooks:app", "Tell other programs of changes by HTTP."),
    "models": Entry("models:app", "Check language models and embedders."),
    "topics": Entry(
        "topic_commands:app",
        "Compare a broker's topics with topics.yaml, and create or change them.",
        extra="run",
    ),
    "schemas": Entry(
        "schemas:app", "Export the contract: JSON Schemas, AsyncAPI, reference pages.", extra="run"
    ),
}
"""A command's line is the first sentence of its docstring."""
PANELS: Mapping[str, Sequence[str]] = {
    "Remember": (
        "context",
        "search",
        "facts",
        "reflections",
        "blobs",
        "history",
        "why",
        "stats",
        "add",
        "edit",
        "merge",
        "private",
        "retire",
        "pin",
        "unpin",
        "forget",
        "import",
        "export",
        "mirror",
        "capture",
        "session",
        "windows",
        "mcp",
        "stream",
        "sharing",
        "demo",
        "try",
    ),
    "Operate": (
        "up",
        "down",
        "setup",
        "doctor",
        "status",
        "run",
        "serve",
        "watch",
        "tap",
        "cost",
        "budget",
        "pause",
        "resume",
        "dead",
        "groups",
        "keys",
        "webhooks",
        "topics",
        "models",
        "schemas",
        "source",
        "restored",
        "audit",
        "reembed",
    ),
    "Prove": (
        "rebuild",
        "reform",
        "namespace",
        "trace",
        "eval",
    ),
}
"""The headings of `eden --help`, and the commands under each, in order."""

app = typer.Typer(
    name="eden",
    cls=lazy_group(COMMANDS, PANELS),
    help="Long-term memory for AI agents, formed in the background from chat writes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"eden {version('eden-memory')}")
        raise typer.Exit


@app.callback()
def _eden(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Long-term memory for AI agents, formed in the background from chat writes."""


def _refuse_no_text(arguments: Sequence[str]) -> None:
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise Invalid(f"an argument is not valid UTF-8: {argument!r}", "Give it as text.") from None


def main() -> None:
    """Run the command; print an error that people can fix as a sentence, with a stack trace only by `--debug`.

    Stack traces hold no content either: what a long-running command prints ends in logs.
    """
    sys.excepthook = _print_trace
    # A shell starts what runs in the background with Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    claim_process()
    # Modules and classes stay: looking for garbage among them takes a tenth of the start.
    gc.set_threshold(100_000)
    try:
        _refuse_no_text(sys.argv[1:])
        app()
    except Exception as error:  # the edge of every command
        said = None if "--debug" in sys.argv else _said(error)
        if said is None:
            raise
        typer.secho(said.what, err=True, fg="red", bold=True)
        if said.hint:
            typer.echo(said.hint, err=True)
        sys.exit(exit_code(said))


def _said(error: Exception) -> EdenError | None:
    if isinstance(error, EdenError):
        return error
    if isinstance(error, ModuleNotFoundError) and (missing := explained(error)):
        return missing
    from eden_memory.cli.error_messages import told  # noqa: PLC0415 - drivers, of which few commands load all

    return told(error)


def _print_trace(_: type[BaseException], error: BaseException, __: TracebackType | None) -> None:
    from eden_memory.errors import describe_with_trace  # noqa: PLC0415 - pydantic, as above

    typer.echo(describe_with_trace(error), err=True)


def exit_code(error: EdenError) -> int:
    """Return the exit code: 2 for wrong input, 3 for something missing, 4 for a conflict, else 1."""
    codes = {Invalid: 2, NotFound: 3, Conflict: 4}
    return next((code for kind, code in codes.items() if isinstance(error, kind)), 1)


if __name__ == "__main__":
    sys.exit(main())
