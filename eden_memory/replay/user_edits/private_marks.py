"""Private marks of one memory, as commands that mark what rests on the same messages in another. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from eden_memory.replay.user_edits.user_edits import COMMAND, PEOPLE
from eden_memory.schemas.documents import Fact, Reflection
from eden_memory.schemas.events import CommandRef, FactCommanded, MemoryCommanded, MemoryCommandRef
from eden_memory.schemas.scopes import Scope


@dataclass(frozen=True, slots=True)
class PrivateMark:
    """A fact or reflection that is private."""

    marked: Fact | Reflection
    at: datetime
    """When it was marked, or last changed since."""
    command: CommandRef | MemoryCommandRef | None

    @classmethod
    def of(cls, marked: Fact | Reflection) -> Self:
        """The mark of what is marked."""
        command = marked.command
        asked_at = None if command is None else command.asked_at
        return cls(marked, asked_at or marked.formed_at, command)

    @property
    def scope(self) -> Scope:
        """The scope of what is marked."""
        return Scope.of_key(self.marked.scope_key, self.marked.agent_id)

    def commands(self, unmarked: Iterable[Fact | Reflection]) -> list[FactCommanded | MemoryCommanded]:
        """The commands that mark these, too: the same ones, however often they are made."""
        return [self._command(found) for found in unmarked]

    def _command(self, found: Fact | Reflection) -> FactCommanded | MemoryCommanded:
        by = self.command.by if self.command is not None and self.command.by in PEOPLE else "application"
        asked_by = None if self.command is None else self.command.asked_by
        name = f"{COMMAND}private/{self.marked.id}/{found.id}"
        scope = Scope.of_key(found.scope_key, found.agent_id)
        if isinstance(found, Fact):
            return FactCommanded(
                command_id=name,
                scope=scope,
                action="mark",
                fact_id=found.id,
                private=True,
                by=by,
                asked_by=asked_by,
                asked_at=self.at,
            )
        return MemoryCommanded(
            command_id=name,
            scope=scope,
            action="edit_reflection",
            reflection_id=found.id,
            private=True,
            by=by,
            asked_by=asked_by,
            asked_at=self.at,
        )
