"""The tools that undo an attack, and those that return and check receipts of what was forgotten."""

from typing import Annotated, Any, Literal

import orjson
from mcp.server.mcpserver import MCPServer
from pydantic import Field

from eden_memory.access.callers import demand_operator
from eden_memory.api.forgetting_receipts import checked_receipt, receipt_of
from eden_memory.api.mcp.mcp_connection import Door, Opened
from eden_memory.api.mcp.tool_answers import UndoAnswer
from eden_memory.api.mcp.tools import ERASES, READS, Call, Session, User, demand_owner, told
from eden_memory.api.undo_answers import CheckedReceiptAnswer, UndoPreviewAnswer
from eden_memory.mongo.application_ids import id_of
from eden_memory.receipts.receipt import Receipt

Causes = Literal["message", "session", "import", "call"]
Cause = Annotated[
    Causes,
    Field(description="what planted the memory; import, call: only for keys that administer everything"),
]
CauseId = Annotated[
    str,
    Field(
        min_length=1, max_length=4_096, description="its id; of an import its source, of a call as counted"
    ),
]


class UndoingTools:
    """More tools of one server; docstrings are what models read."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def register(self, server: MCPServer[Any]) -> None:
        """Register all tools."""
        add = server.add_tool
        add(told(self.preview_undo), title="Preview an undo", annotations=READS)
        add(told(self.undo), title="Undo an attack", annotations=ERASES)
        add(told(self.forget_receipt), title="Receipt", annotations=READS)
        add(told(self.verify_receipt), title="Check a receipt", annotations=READS)

    async def preview_undo(
        self,
        ctx: Call,
        cause: Cause,
        id: CauseId,  # noqa: A002
        session: Session = "",
        user: User = "",
    ) -> UndoPreviewAnswer:
        """Show what `undo` would change: all memory that a message or session led to, and what that displaced.

        Ids and versions, no texts. Show it to the user before you undo anything.
        """
        opened, target = await self._cause(ctx, cause, id, session, user)
        found = await opened.service.preview_undo(cause, target, session=opened.session, user=opened.user)
        return UndoPreviewAnswer.model_validate(found)

    async def undo(
        self,
        ctx: Call,
        cause: Cause,
        id: CauseId,  # noqa: A002
        preview: Annotated[
            str, Field(min_length=1, max_length=64, description="`preview` of `preview_undo`'s answer")
        ],
        session: Session = "",
        user: User = "",
    ) -> UndoAnswer:
        """Forget a message or session with all memory that it led to, and restore what it displaced, for ever.

        Only if the user has agreed to what `preview_undo` has shown. It cannot be undone.
        """
        opened, target = await self._cause(ctx, cause, id, session, user)
        request = await opened.service.undo(cause, target, preview, session=opened.session, user=opened.user)
        return UndoAnswer(request_id=request)

    async def forget_receipt(
        self,
        ctx: Call,
        request_id: Annotated[
            str, Field(min_length=1, max_length=4_096, description="what `forget` or `undo` has answered")
        ],
    ) -> Receipt:
        """Return the signed receipt of a request to forget or undo: what was erased, and when each store is clean.

        It names memory by ids and keyed hashes. Only for keys that administer all agents and users.
        """
        opened = await self._door.open(ctx.request_context, "admin", "", "")
        return await receipt_of(opened.memory, opened.connection.caller, request_id)

    async def verify_receipt(
        self,
        ctx: Call,
        receipt: Annotated[dict[str, Any], Field(description="exactly as `forget_receipt` returned it")],
        topics: Annotated[bool, Field(description="false: do not look in Kafka's topics")] = True,
    ) -> CheckedReceiptAnswer:
        """Check a receipt: whether it is genuine, whether anything that it names is there, what is not clean yet.

        Only for keys that administer all agents and users.
        """
        opened = await self._door.open(ctx.request_context, "admin", "", "")
        text = orjson.dumps(receipt)
        return CheckedReceiptAnswer.model_validate(
            await checked_receipt(opened.memory, opened.connection.caller, text, in_topics=topics)
        )

    async def _cause(
        self, ctx: Call, cause: Causes, name: str, session: str, user: str
    ) -> tuple[Opened, Any]:
        opened = await self._door.open(ctx.request_context, "write", session, user)
        if cause in ("import", "call"):
            demand_operator(opened.connection.caller, f"an undo of a whole {cause}")
            return opened, name
        demand_owner(opened)
        target = id_of(name, cause)
        if cause == "session":
            await self._door.demand(opened, "write", target)
        return opened, target
