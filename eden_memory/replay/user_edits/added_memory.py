"""Reflections and pinned sentences that people gave one memory, as commands to another. Pure."""

from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Self

from eden_memory.formation.memory_commands import added_reflection_id
from eden_memory.replay.user_edits.user_edits import COMMAND
from eden_memory.schemas.documents import Consolidated, Reflection
from eden_memory.schemas.events import MemoryCommanded, MemoryCommandRef
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope


@dataclass(frozen=True, slots=True)
class AddedMemory:
    """A reflection as it reads now, or a pinned sentence."""

    scope: Scope
    text: str
    command_id: str
    """Of the command that gives it to another memory: always the same."""
    command: MemoryCommandRef | None
    at: datetime
    reflection_ids: tuple[str, ...] = ()
    """Of a reflection: its own, the one that the command leads to, and the one that it was made from itself."""
    private: bool = False
    said_at: datetime | None = None
    sources: tuple[SourceMessage, ...] = ()

    @classmethod
    def of_reflection(cls, reflection: Reflection) -> Self:
        """A reflection that people added."""
        command_id = f"{COMMAND}{reflection.id}"
        versions = (reflection, *reflection.history)
        first = next((version.command for version in versions if version.version == 1), None)
        given = first.command_id.removeprefix(COMMAND) if first is not None else ""
        return cls(
            Scope.of_key(reflection.scope_key, reflection.agent_id),
            reflection.content,
            command_id,
            reflection.command,
            reflection.formed_at,
            (reflection.id, added_reflection_id(command_id), given),
            reflection.private,
            reflection.said_at,
            reflection.sources,
        )

    @classmethod
    def of_pin(cls, blob: Consolidated, sentence: str) -> Self:
        """A sentence that a blob keeps."""
        scope = Scope.of_key(blob.scope_key, blob.agent_id)
        name = blake2b(f"{scope.key}\x00{sentence}".encode(), digest_size=16).hexdigest()
        return cls(scope, sentence, f"{COMMAND}pin/{name}", blob.command, blob.last_consolidated_at)

    def commanded(self) -> MemoryCommanded:
        """The command that gives it to another memory."""
        is_reflection = bool(self.reflection_ids)
        return MemoryCommanded(
            command_id=self.command_id,
            scope=self.scope,
            action="add_reflection" if is_reflection else "pin",
            text=self.text,
            private=self.private if is_reflection else None,
            sources=self.sources,
            by="application" if self.command is None else self.command.by,
            asked_by=None if self.command is None else self.command.asked_by,
            reason=None if self.command is None else self.command.reason,
            asked_at=self.at,
            said_at=self.said_at,
        )
