"""Commands on facts, reflections and blobs, written to `memory_inbox` after they are checked."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar

from eden_memory.directory.participants import own_session
from eden_memory.errors import Invalid
from eden_memory.limits import LONGEST_BLOB, LONGEST_FACT, LONGEST_REASON, MOST_ADDED_CHARACTERS
from eden_memory.memory.memory_views import Added
from eden_memory.mongo.application_ids import typed
from eden_memory.mongo.bson_ids import encode_id
from eden_memory.operations.inbox_requests import Message, Requests, checked, messages_of, past
from eden_memory.operations.parameters import VerbatimKind
from eden_memory.schemas.documents import Fact, InboxFactCommand, InboxMemoryCommand, Reflection
from eden_memory.schemas.events.facts import Action, By
from eden_memory.schemas.events.reflections import MemoryAction
from eden_memory.schemas.scopes import Scope

KINDS = ("fact", "reflection")


class CommandRequests(Requests):
    """Writes commands for one agent, each decided in the order of its scope and without a model."""

    by: ClassVar[By] = "application"

    async def fact_command(
        self,
        action: Action,
        fact: Fact,
        scope: Scope,
        *,
        text: str | None = None,
        expected_version: int | None = None,
        reason: str | None = None,
        replaced_by: str | None = None,
    ) -> str:
        """Request a change of a fact."""
        _demand_text(text, LONGEST_FACT)
        _demand_reason(reason)
        fields = {"action": action, "fact_id": fact.id, "expected_version": expected_version, "text": text}
        return await self._one(self._fact_command(scope, reason=reason, replaced_by=replaced_by, **fields))

    async def memory_command(
        self,
        action: MemoryAction,
        scope: Scope,
        *,
        text: str | None = None,
        reason: str | None = None,
        **fields: Any,
    ) -> str:
        """Request a change of a reflection or of a scope's blob; `fields`: the rest of InboxMemoryCommand."""
        _demand_text(text, LONGEST_BLOB if action == "edit_blob" else LONGEST_FACT)
        _demand_reason(reason)
        return await self._one(self._memory_command(scope, action=action, text=text, reason=reason, **fields))

    async def mark_private(
        self,
        fact: Fact | None,
        reflections: Sequence[Reflection],
        scope: Scope,
        *,
        private: bool,
        expected_version: int | None = None,
        reason: str | None = None,
    ) -> str:
        """Request the mark of a fact and of reflections; return the id of the last request.

        `expected_version`: of the fact, without one of the reflection.
        """
        _demand_reason(reason)
        fields: dict[str, Any] = {"private": private, "reason": reason}
        asked: list[InboxFactCommand | InboxMemoryCommand] = []
        if fact is not None:
            version, expected_version = expected_version, None
            marked = {"action": "mark", "fact_id": fact.id, "expected_version": version, **fields}
            asked.append(self._fact_command(scope, **marked))
        fields |= {"action": "edit_reflection", "expected_version": expected_version}
        asked += [
            self._memory_command(scope, reflection_id=reflection.id, **fields) for reflection in reflections
        ]
        await self._write(asked)
        return encode_id(asked[-1].id)

    async def add_verbatim(
        self,
        kind: VerbatimKind,
        texts: str | Sequence[Message],
        scope: Scope,
        *,
        session: Any = None,
        at: Any = None,
    ) -> Added:
        """Request that each text becomes a fact or reflection as it stands, said at `at` unless it says so itself.

        They belong to the session, or else to the session of added texts: forgetting it reaches them.
        """
        if kind not in KINDS:
            raise Invalid("there is no such kind of memory to add", f"Of: {', '.join(KINDS)}.")
        there = own_session(self.agent_id, scope.user_id) if session is None else session
        now = self.memory.clock()
        said_at = None if at is None else past(at, now)
        asked: list[InboxFactCommand | InboxMemoryCommand] = []
        for message in messages_of(texts, MOST_ADDED_CHARACTERS):
            _demand_text(message["text"], LONGEST_FACT)
            created: datetime | None = message.get("created_at")
            said = said_at if created is None else past(created, now)
            fields = {"text": message["text"], "said_at": said, "session_id": there}
            asked.append(
                self._fact_command(scope, action="add", **fields)
                if kind == "fact"
                else self._memory_command(scope, action="add_reflection", **fields)
            )
        await self._write(asked)
        return Added(tuple(encode_id(request.id) for request in asked), typed(there, "session"))

    def _fact_command(self, scope: Scope, **fields: Any) -> InboxFactCommand:
        return checked(InboxFactCommand, self._fields("fact_command"), scope=scope, by=self.by, **fields)

    def _memory_command(self, scope: Scope, **fields: Any) -> InboxMemoryCommand:
        return checked(InboxMemoryCommand, self._fields("memory_command"), scope=scope, by=self.by, **fields)


def _demand_text(text: str | None, most: int) -> None:
    if text is not None and (not text.strip() or len(text) > most):
        raise Invalid("the text is empty or too long", f"Give 1 to {most:,} characters.")


def _demand_reason(reason: str | None) -> None:
    if reason is not None and len(reason) > LONGEST_REASON:
        raise Invalid("the reason is too long", f"It may have {LONGEST_REASON:,} characters.")
