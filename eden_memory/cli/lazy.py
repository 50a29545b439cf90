"""Import commands when they are called, so that `eden --help` loads none of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from eden_memory.errors import needs
from eden_memory.tasks import answering_within

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
