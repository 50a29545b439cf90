"""The calls of MemoryService that undo an attack: what would change first, then the undo itself."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from eden_memory.access.admission_store import Refused
from eden_memory.access.visible import Asker
from eden_memory.errors import Conflict, Invalid, needs_extra
from eden_memory.mongo.application_ids import typed
from eden_memory.operations import parameters as p
from eden_memory.operations.long_reads import LongRead
from eden_memory.operations.writing import ForgetPermission, WriteCalls
from eden_memory.replay.installation import Installation
from eden_memory.schemas.events import FactChanged, ReflectionFormed
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.unpoison.attack_rules import Attack, AttackPlan, CauseKind, UndoPreview, preview_of

if TYPE_CHECKING:
    from eden_memory.unpoison.attack_store import AttackUndo

PLANNING = LongRead("preview or undo of an attack", "eden forget --caused-by")


class UndoCalls(WriteCalls):
    """Both read Kafka. `cause` and `target`: a message, session or user by its id, an import or call by its text.

    With a `user` or `session` only a message or session that is theirs alone, NotFound otherwise; Refused where what
    would change is not theirs alone. Without, it is the application that asks; imports and calls are its alone.
    Conflict while the process runs another one.
    """

    async def preview_undo(
        self, cause: CauseKind, target: Any, *, session: p.Session = None, user: p.User = None
    ) -> UndoPreview:
        """Return what would change, as ids and versions without texts; its `preview` is what :meth:`undo` takes."""
        async with self._undoing(cause, target, session, user) as (_, attack, plan):
            return preview_of(attack, plan)

    async def undo(
        self, cause: CauseKind, target: Any, preview: str, *, session: p.Session = None, user: p.User = None
    ) -> str:
        """Forget what caused memory and all that it led to, and restore what it displaced; return the request's id.

        Conflict if something else would change than what `preview` has shown: preview it again.
        """
        async with self._undoing(cause, target, session, user) as (work, attack, plan):
            if preview_of(attack, plan).preview != preview:
                raise Conflict("something else would change than was shown", "Preview the undo again.")
            return await work.ask(attack, plan, self._asked_by)

    @asynccontextmanager
    async def _undoing(
        self, cause: CauseKind, target: Any, session: Any, user: Any
    ) -> AsyncGenerator[tuple["AttackUndo", Attack, AttackPlan]]:
        with needs_extra("undoing an attack", "run"):
            from eden_memory.kafka.connection import answering  # noqa: PLC0415
            from eden_memory.unpoison.attack_store import AttackUndo  # noqa: PLC0415

        asked, attack = await self._attack(cause, target, session, user)
        work = AttackUndo(Installation((await self.memory.current()).settings, self.memory.database))
        with answering():
            async with PLANNING.turn():
                plan = await work.plan(attack)
            self._demand_own_plan(plan, asked)
            yield work, attack, plan

    async def _attack(self, cause: CauseKind, target: Any, session: Any, user: Any) -> tuple[Asker, Attack]:
        """Return who asks, and the attack; an EdenError where it is not theirs to undo."""
        asked, view, readers = await self._seen(session, user)
        if cause in ("message", "session", "user"):
            permission = ForgetPermission(self.memory, readers.settings, self._browsing(readers))
            await permission.demand(cause, target, asked, view)
            return asked, Attack(cause, typed(target, cause))
        if (asked.session_id, asked.user_id, self.changes_shared) != (None, None, None):
            raise Refused("imports and calls concern all users", "Name no session and no user.")
        if not isinstance(target, str):
            raise Invalid("an import or call is named by text", "`mem0`, or a call as `eden trace` shows it.")
        return asked, Attack(cause, target)

    def _demand_own_plan(self, plan: AttackPlan, asked: Asker) -> None:
        """Raise Refused if anything changes that is not the asker's alone."""
        if asked.user_id is None and asked.session_id is None and self.changes_shared is None:
            return
        for memory in _memories(plan):
            scope, user = memory.scope, asked.user_id
            if scope.agent_id != asked.agent_id or (user and scope.user_id not in (None, user)):
                raise Refused("memory of others would change, too", "Ask as the operator.")
            self._demand_own(scope, user, memory.sources)
            if user and scope.kind == "session" and not self.changes_shared:
                _demand_only(user, memory.sources)


def _demand_only(user: str, sources: Sequence[SourceMessage]) -> None:
    """Raise Refused if session memory rests on messages of other users, too; the agent's messages do not count."""
    if {source.user_id for source in sources} - {user, None}:
        raise Refused("memory of the session rests on messages of others, too", "Ask as the operator.")


def _memories(plan: AttackPlan) -> Iterable[FactChanged | ReflectionFormed]:
    return (*plan.removed, *(restored.fact for restored in plan.restored), *plan.returning, *plan.reflections)
