"""The tools that correct memory: edit, retire, pin, unpin, mark as private."""

from typing import Annotated, Any

from mcp.server.mcpserver import MCPServer
from pydantic import Field

from eden_memory.api.mcp.mcp_connection import Door, Opened
from eden_memory.api.mcp.tool_answers import CorrectionAnswer
from eden_memory.api.mcp.tools import ADDS, Call, Session, User, told
from eden_memory.constants import LONGEST_BLOB, LONGEST_FACT, LONGEST_REASON

MemoryId = Annotated[
    str,
    Field(
        min_length=1,
        max_length=4_096,
        description="id of a fact or reflection, from `search_facts` or `list_memories`",
    ),
]
ScopeOfBlob = Annotated[
    str,
    Field(
        min_length=1,
        max_length=4_096,
        description="scope of the blob: its id from `list_memories` without `@<version>`",
    ),
]
Sentence = Annotated[
    str, Field(min_length=1, max_length=LONGEST_FACT, description="one sentence, word for word")
]
NewText = Annotated[
    str, Field(min_length=1, max_length=LONGEST_BLOB, description="the whole text that it is to have")
]
Expected = Annotated[
    int | None,
    Field(ge=0, le=2**31, description="only if this version still stands; a blob needs it"),
]
Why = Annotated[str, Field(max_length=LONGEST_REASON, description="why, for the history")]


class CorrectingTools:
    """More tools of one server; docstrings are what models read."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def register(self, server: MCPServer[Any]) -> None:
        """Register all tools."""
        add = server.add_tool
        add(told(self.edit_memory), title="Edit a memory", annotations=ADDS)
        add(told(self.retire_memory), title="Retire a memory", annotations=ADDS)
        add(told(self.pin_sentence), title="Pin a sentence", annotations=ADDS)
        add(told(self.unpin_sentence), title="Unpin a sentence", annotations=ADDS)
        add(told(self.mark_private), title="Mark as private", annotations=ADDS)

    async def edit_memory(
        self,
        ctx: Call,
        id: Annotated[  # noqa: A002
            str,
            Field(
                min_length=1,
                max_length=4_096,
                description="id of a fact or reflection, or the scope of a blob: its id without `@<version>`",
            ),
        ],
        text: NewText,
        expected_version: Expected = None,
        reason: Why = "",
        session: Session = "",
        user: User = "",
    ) -> CorrectionAnswer:
        """Give a fact, reflection or blob another text. Only if the user wants it corrected.

        The earlier text stays in the history. A blob keeps its pinned sentences; a reflection that a blob has
        absorbed is corrected in the blob.
        """
        opened = await self._door.open(ctx.request_context, "write", session, user)
        return CorrectionAnswer(
            request_id=await opened.service.edit(
                id, text, expected_version=expected_version, **_about(opened, reason)
            )
        )

    async def retire_memory(
        self,
        ctx: Call,
        id: MemoryId,  # noqa: A002
        expected_version: Expected = None,
        reason: Why = "",
        session: Session = "",
        user: User = "",
    ) -> CorrectionAnswer:
        """Take a fact or reflection out of use, its history stays; `forget` erases. Only if the user wants it."""
        opened = await self._door.open(ctx.request_context, "write", session, user)
        return CorrectionAnswer(
            request_id=await opened.service.retire(
                id, expected_version=expected_version, **_about(opened, reason)
            )
        )

    async def pin_sentence(
        self,
        ctx: Call,
        scope: ScopeOfBlob,
        sentence: Sentence,
        reason: Why = "",
        session: Session = "",
        user: User = "",
    ) -> CorrectionAnswer:
        """Put a sentence into a blob that every later version keeps word for word. Only if the user wants it."""
        opened = await self._door.open(ctx.request_context, "write", session, user)
        return CorrectionAnswer(
            request_id=await opened.service.pin(scope, sentence, **_about(opened, reason))
        )

    async def unpin_sentence(
        self,
        ctx: Call,
        scope: ScopeOfBlob,
        sentence: Sentence,
        reason: Why = "",
        session: Session = "",
        user: User = "",
    ) -> CorrectionAnswer:
        """Let later versions of a blob reword a pinned sentence. Only if the user wants it."""
        opened = await self._door.open(ctx.request_context, "write", session, user)
        return CorrectionAnswer(
            request_id=await opened.service.unpin(scope, sentence, **_about(opened, reason))
        )

    async def mark_private(
        self,
        ctx: Call,
        id: Annotated[str, Field(min_length=1, max_length=4_096, description="id of a reflection or fact")],  # noqa: A002
        private: Annotated[bool, Field(description="false takes the mark away")] = True,
        reason: Why = "",
        session: Session = "",
        user: User = "",
    ) -> CorrectionAnswer:
        """Mark a reflection or fact as private: nothing of it reaches a broader scope, such as the agent's.

        With a fact, the reflections that rest on the same messages are marked, too.
        """
        opened = await self._door.open(ctx.request_context, "write", session, user)
        return CorrectionAnswer(
            request_id=await opened.service.mark_private(id, private, **_about(opened, reason))
        )


def _about(opened: Opened, reason: str) -> dict[str, Any]:
    return {"session": opened.session, "user": opened.user, "reason": reason or None}
