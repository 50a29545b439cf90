"""The calls of MemoryService that are for operators: streams, what came from users, and undoing an attack."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from eden_memory.access.admission_store import Refused
from eden_memory.access.visible import Asker
from eden_memory.directory.stream_store import StreamName, StreamStore
from eden_memory.errors import Conflict, Invalid, NotFound, needs_extra
from eden_memory.memory.memory_views import SharedView
from eden_memory.memory.user_memory_store import SharedItem, SharedItems, taken_back
from eden_memory.mongo.ids import encode_id, typed
from eden_memory.operations import parameters as p
from eden_memory.operations.correcting import seen_by_others
from eden_memory.operations.reading import ReadCalls
from eden_memory.operations.writing import ForgetPermission, WriteCalls
from eden_memory.replay.installation import Installation
from eden_memory.schemas.documents import InboxForget, Stream
from eden_memory.schemas.events import FactChanged, ReflectionFormed
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import ask_all
from eden_memory.unpoison.attack_rules import Attack, AttackPlan, CauseKind, UndoPreview, preview_of

if TYPE_CHECKING:
    from eden_memory.unpoison.attack_store import AttackUndo


MOST_SECONDS = 60.0


class LongRead:
    """One kind of request; `what` names it in errors, `instead` is the command for what takes longer."""

    def __init__(self, what: str, instead: str, seconds: float = MOST_SECONDS) -> None:
        self._what, self._instead, self._seconds = what, instead, seconds
        self._running = Lock()  # not of asyncio: the synchronous service has an event loop of its own

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Raise Conflict at once while another request is running, or when this one takes too long."""
        if not self._running.acquire(blocking=False):
            raise Conflict(f"another {self._what} is running", "Ask again when it has ended.")
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise Conflict(
                f"the {self._what} took more than {self._seconds:g} s", f"Use `{self._instead}`."
            ) from None
        finally:
            self._running.release()


class OperatorCalls(ReadCalls):
    """Refused where the caller may not change what others see."""

    async def _changing_shared(self) -> Settings:
        """Return the settings of the live namespace."""
        if self.changes_shared is False:
            raise seen_by_others("agent")
        return (await self.memory.current()).settings


class StreamCalls(OperatorCalls):
    """A scope is named by its label: `agent`, `group`, `user`, `session`, or `shard:NAME`.

    Stages follow within 30 seconds, for windows that are requested from then on. Guidance becomes instructions of the
    prompts and a model may be an endpoint, so these calls are for operators: Refused where the caller may not change
    what others see.
    """

    async def list_streams(self) -> Sequence[Stream]:
        """Return the agent's streams."""
        return await (await self._stream_store()).list(self._agent_id)

    async def get_stream(self, scope: str) -> Stream:
        """Return a scope's stream. NotFound."""
        return await (await self._stream_store()).get(StreamName.parse(self._agent_id, scope))

    async def set_stream(self, scope: str, **fields: Any) -> Stream:
        """Set fields of a scope's stream, None unsets one; without a stream it is made, and a shard with it.

        `active=False` switches the scope or shard off: nothing of it is formed, consolidated or shown, and what is
        stored stays. Invalid, with the name of the field.
        """
        return await (await self._stream_store()).set(StreamName.parse(self._agent_id, scope), fields)

    async def _stream_store(self) -> StreamStore:
        return StreamStore(self.memory.database, await self._changing_shared())


class SharingCalls(OperatorCalls):
    """What came from users into memory that others see."""

    async def list_shared(self, *, limit: p.Limit = 50) -> list[SharedView]:
        """Return what came from users into memory of the agent, its shards and its groups, newest first.

        `limit`: 1 to 200.
        """
        return [_view(item) for item in await (await self._shared()).newest(limit, self._agent_id)]

    async def take_back(self, memory_id: p.MemoryId, *, move: p.Move = False) -> str:
        """Retire an item of :meth:`list_shared`, or (`move`) give it to the one user who said it.

        What says the same is not shared again. The id of the request; NotFound; Conflict for a move of what rests
        on the words of several users, or of none that is known.
        """
        found = await (await self._shared()).of([memory_id], self._agent_id)
        if not found:
            raise NotFound("there is no such shared memory here")
        if move and len(found[0].users) != 1:
            raise Conflict(
                "it rests on the words of several users, or of none that is known", "Retire it instead."
            )
        documents = taken_back(found[0], self._asked_by[:256], move=move)
        inbox = self.memory.source[self.memory.settings.names[InboxForget.COLLECTION]]
        await ask_all(inbox, documents)
        return encode_id(documents[0]["_id"])

    async def _shared(self) -> SharedItems:
        settings = await self._changing_shared()
        return SharedItems(self.memory.database, settings.names, forgets=settings.messages.forgets)


def _view(item: SharedItem) -> SharedView:
    return SharedView(
        item.kind, item.id, item.scope, item.content, item.said_at, item.session_ids, item.users
    )


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
