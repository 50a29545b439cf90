"""The tools: search, context, add, list, forget. What goes wrong is told to the model, without internals."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import ToolAnnotations
from pydantic import Field
from pymongo.errors import PyMongoError

from eden_memory.api.mcp.mcp_connection import Door, Opened
from eden_memory.api.mcp.tool_answers import (
    AcceptedText,
    ContextAnswer,
    ExplainedMemory,
    ForgetAnswer,
    FoundMemories,
    ListAnswer,
    ListedMemory,
    WhyAnswer,
)
from eden_memory.api.tool import DEBUG_WORDS, KIND_WORDS, SCOPE_WORDS, TYPE_WORDS
from eden_memory.constants import MOST_QUERIES
from eden_memory.errors import EdenError, Invalid
from eden_memory.logs import LibraryLogger
from eden_memory.memory.browsing_store import FactOrder
from eden_memory.mongo.application_ids import id_of
from eden_memory.search.search_requests import FACTS, FactScope, Kind, SearchedKind, SearchSort

log = LibraryLogger("eden.mcp")
P = ParamSpec("P")
T = TypeVar("T")

MOST_TEXT = 20_000
# Optional texts are "" and not null: of those that may be null the SDK reads what looks like JSON as JSON.
Call = Context[Any, Any]
Session = Annotated[
    str,
    Field(description="id of the conversation; leave it out unless you were told one", max_length=1_024),
]
User = Annotated[
    str,
    Field(description="id of the user; leave it out unless you were told one", max_length=1_024),
]
Queries = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=1_000)]],
    Field(
        min_length=1,
        max_length=MOST_QUERIES,
        description="1 to 3 different phrasings or parts of one question",
    ),
]
Text = Annotated[
    str, Field(min_length=1, max_length=MOST_TEXT, description="what to remember, in whole sentences")
]
Limit = Annotated[int, Field(ge=1, le=200)]
TopK = Annotated[int, Field(ge=1, le=50, description="facts at most")]
SearchType = Annotated[Kind, Field(description=TYPE_WORDS)]
Scopes = Annotated[list[FactScope] | None, Field(min_length=1, description=SCOPE_WORDS)]
Kinds = Annotated[list[SearchedKind] | None, Field(min_length=1, description=KIND_WORDS)]
Debug = Annotated[bool, Field(description=DEBUG_WORDS)]
AsOf = Annotated[datetime | None, Field(description="only what was known at this time (ISO 8601)")]
Occurred = Annotated[
    datetime | None,
    Field(description="only facts of what happened since or before then, not of when it was said (ISO 8601)"),
]

READS = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)
ADDS = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)
ERASES = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)


class MemoryTools:
    """The tools of one server; docstrings are what models read."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def register(self, server: MCPServer[Any]) -> None:
        """Register all tools."""
        add = server.add_tool
        add(told(self.search_facts), title="Search memory", annotations=READS)
        add(told(self.get_memory_context), title="Memory context", annotations=READS)
        add(told(self.list_memories), title="List memories", annotations=READS)
        add(told(self.why), title="Why is it remembered so", annotations=READS)
        add(told(self.add_memory), title="Remember", annotations=ADDS)
        add(told(self.forget), title="Forget", annotations=ERASES)

    async def search_facts(
        self,
        ctx: Call,
        queries: Queries,
        top_k: TopK = 10,
        search_type: SearchType = "hybrid",
        scopes: Scopes = None,
        as_of: AsOf = None,
        include_retired: bool = False,
        occurred_after: Occurred = None,
        occurred_before: Occurred = None,
        sort: Annotated[
            SearchSort, Field(description="occurred_at: what happened last comes first, of what is found")
        ] = "score",
        kinds: Kinds = None,
        debug: Debug = False,
        session: Session = "",
        user: User = "",
    ) -> FoundMemories:
        """Search long-term memory for facts: names, numbers, dates, decisions, things people said earlier.

        Use it whenever the answer may depend on earlier conversations. Facts come back best first, each with
        the time when it was said: where two contradict each other, the newer one counts.
        """
        memory = await self._door.open(ctx.request_context, "read", session, user)
        report = await memory.service.explain_search(
            queries,
            session=memory.session,
            user=memory.user,
            top_k=top_k,
            search_type=search_type,
            scopes=scopes,
            as_of=as_of,
            include_retired=include_retired,
            occurred_after=occurred_after,
            occurred_before=occurred_before,
            sort=sort,
            kinds=kinds or FACTS,
        )
        return FoundMemories.of(report, debug=debug)

    async def get_memory_context(
        self,
        ctx: Call,
        message: Annotated[
            str,
            Field(
                max_length=MOST_TEXT,
                description="the user's message: a question about the past adds what fits",
            ),
        ] = "",
        session: Session = "",
        user: User = "",
    ) -> ContextAnswer:
        """What is known here, ready for a prompt: of the agent's work, the group, the user and this conversation.

        Read it at the beginning of a conversation; `search_facts` finds what does not stand in it.
        """
        memory = await self._door.open(ctx.request_context, "read", session, user)
        xml = await memory.service.get_memory_context(memory.session, memory.user, message or None)
        return ContextAnswer(context=xml)

    async def list_memories(
        self,
        ctx: Call,
        kind: Annotated[
            Literal["facts", "reflections", "blobs"],
            Field(
                description="facts; reflections on how to work with people; blobs: their consolidated texts"
            ),
        ] = "facts",
        include_inactive: Annotated[
            bool, Field(description="also retired memories and absorbed reflections")
        ] = False,
        limit: Limit = 50,
        cursor: Annotated[str, Field(max_length=4_096, description="of the previous page")] = "",
        occurred_after: Occurred = None,
        occurred_before: Occurred = None,
        sort: Annotated[
            FactOrder, Field(description="of facts; occurred_at: only those that say when something happened")
        ] = "formed_at",
        session: Session = "",
        user: User = "",
    ) -> ListAnswer:
        """List stored memories, newest first: to review what is remembered, or to find the id of one to forget."""
        memory = await self._door.open(ctx.request_context, "read", session, user)
        page: dict[str, Any] = {"limit": limit, "cursor": cursor or None}
        if kind != "facts":
            return await _listed(memory, kind, include_inactive, **page)
        facts = await memory.service.list_facts(
            session=memory.session,
            user=memory.user,
            active=None if include_inactive else True,
            occurred_after=occurred_after,
            occurred_before=occurred_before,
            sort=sort,
            **page,
        )
        return ListAnswer(memories=[ListedMemory.of_fact(item) for item in facts.items], cursor=facts.cursor)

    async def why(
        self,
        ctx: Call,
        text: Annotated[
            str,
            Field(
                min_length=1, max_length=1_000, description="words of a memory, or of a message of the user's"
            ),
        ],
        session: Session = "",
        user: User = "",
    ) -> WhyAnswer:
        """Why something is remembered as it is, or is not: its message, window, calls, answer and decision.

        Use it when the user asks why you remember something, or why you do not.
        """
        memory = await self._door.open(ctx.request_context, "read", session, user)
        found = await memory.service.why(text, session=memory.session, user=memory.user)
        return WhyAnswer(explained=[ExplainedMemory.model_validate(explained) for explained in found])

    async def add_memory(
        self,
        ctx: Call,
        text: Text,
        scope: Annotated[
            str,
            Field(
                max_length=100,
                description="user (empty, with a user), or agent: then every user of the agent sees it; "
                "only outside of sessions",
            ),
        ] = "",
        at: Annotated[
            datetime | None,
            Field(description="when it was said or became true, if not now; UTC unless it says"),
        ] = None,
        verbatim: Annotated[
            bool, Field(description="keep the text word for word as one memory, at most 2,000 characters")
        ] = False,
        kind: Annotated[
            Literal["fact", "reflection"], Field(description="of a verbatim text: which memory it is")
        ] = "fact",
        session: Session = "",
        user: User = "",
    ) -> AcceptedText:
        """Remember a text that is worth knowing in later conversations: only what the user wants remembered.

        Facts and reflections are formed from it in the background, compared with what is known, unless it is
        verbatim; it is not searchable at once.
        """
        memory = await self._door.open(ctx.request_context, "write", session, user, new=True)
        added = await memory.service.add(
            text,
            session=memory.session,
            user=memory.user,
            scope=scope or None,
            at=at,
            verbatim=verbatim,
            kind=kind,
        )
        return AcceptedText(request_ids=list(added.request_ids), session=added.session)

    async def forget(
        self,
        ctx: Call,
        what: Literal["fact", "reflection", "message", "session"],
        id: Annotated[str, Field(min_length=1, max_length=4_096, description="id of the thing to forget")],  # noqa: A002
        session: Session = "",
        user: User = "",
    ) -> ForgetAnswer:
        """Erase one memory for ever, with everything that rests on it alone. Only if the user asks for it.

        A fact or reflection by its id from `search_facts` or `list_memories`; a message or conversation by its
        own id. It cannot be undone.
        """
        memory = await self._door.open(ctx.request_context, "write", session, user)
        target: Any = id if what in ("fact", "reflection") else id_of(id, what)
        demand_owner(memory)
        if what == "session":
            await self._door.demand(memory, "write", target)
        request = await memory.service.forget(what, target, session=memory.session, user=memory.user)
        return ForgetAnswer(request_id=request)


async def _listed(memory: Opened, kind: str, inactive: bool, limit: int, cursor: str | None) -> ListAnswer:
    service, about = memory.service, {"session": memory.session, "user": memory.user}
    if kind == "reflections":
        absorbed = None if inactive else False
        page = await service.list_reflections(**about, absorbed=absorbed, limit=limit, cursor=cursor)
        return ListAnswer(
            memories=[ListedMemory.of_reflection(item) for item in page.items], cursor=page.cursor
        )
    blobs = await service.list_blobs(**about)
    return ListAnswer(memories=[ListedMemory.of_blob(blob) for blob in blobs])


def demand_owner(memory: Opened) -> None:
    """A key that is bound to agents or users says whose thing it wants forgotten: it is checked to be theirs."""
    if memory.connection.caller.is_bound and memory.session is None and memory.user is None:
        raise Invalid("the owner of the memory is not named", "Name its session or user.")


def told(tool: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """A tool whose refusals and faults become tool errors that a model can read; internals go to the log."""

    @wraps(tool)
    async def telling(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await tool(*args, **kwargs)
        except EdenError as error:
            raise ToolError(" ".join(_sentences(error))) from None
        except PyMongoError as error:
            log.warning("MongoDB does not answer", tool=tool.__name__, reason=type(error).__name__)
            raise ToolError("the memory cannot be reached at this moment, try again later") from None
        except (ToolError, MCPError):
            raise
        except Exception as error:  # the SDK would give the model the error's text, which may hold content
            log.error("a tool failed", tool=tool.__name__, reason=type(error).__name__, exc_info=error)
            raise ToolError("this call failed; the server's log says why") from None

    return telling


def _sentences(error: EdenError) -> Sequence[str]:
    return [f"{error.what}.", *([error.hint] if error.hint else [])]
