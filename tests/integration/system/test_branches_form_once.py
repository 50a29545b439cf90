"""LibreChat's conversations: of what was said again on another branch, only what is shown forms memory."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.settings import Settings
from tests.integration.system.running_system import AGENT, System, fast, system, until
from tests.model_server.serving import Serving

pytestmark = pytest.mark.servers
MESSAGES = {
    "session_id": "conversationId",
    "role": "isCreatedByUser",
    "content": ("content", "text"),
    "user_id": "user",
    "created_at": "createdAt",
    "roles": {"true": "user", "false": "assistant"},
    "exclude": ("isTemporary", "error"),
}
SESSIONS = {"id": "conversationId", "users": "user", "exclude": ("isTemporary",)}
ROOT = "00000000-0000-0000-0000-000000000000"


def said(session: str, name: str, parent: str, text: str, at: datetime, **fields: Any) -> dict[str, Any]:
    return {
        "messageId": name,
        "parentMessageId": parent,
        "conversationId": session,
        "user": "ana",
        "isCreatedByUser": True,
        "text": text,
        "createdAt": at,
        **fields,
    }


async def conversation(at: System, name: str, **fields: Any) -> None:
    row = {"conversationId": name, "user": "ana", "agent_id": AGENT, **fields}
    await at.source["sessions"].insert_one(row)


async def test_what_was_said_again_forms_once_and_temporary_conversations_form_nothing(
    settings: Settings, shared_models: Serving
) -> None:
    mapped = fast(settings, shared_models, messages=MESSAGES, sessions=SESSIONS, users={"collection": None})
    async with system(mapped, shared_models) as at:
        now, messages = datetime.now(UTC), at.source["messages"]
        await messages.insert_one(said("t", "t1", ROOT, "fact user: The dog is called Skot.", now))

        async def is_recorded() -> bool:
            return await at.memory("messages").find_one({"session_id": "s.t"}) is not None

        await until(is_recorded, "the message before its conversation")
        await conversation(at, "t", isTemporary=True)
        await conversation(at, "c")
        await conversation(at, "asks")
        texts = ("fact user: The boat is called Gaivota.", "fact user: The boat is called Pardal.")
        answers = ("fact user: The pier is long.", "fact user: The pier is short.")
        rows = [
            said("c", "u", ROOT, texts[0], now),
            said("c", "a", "u", answers[0], now, isCreatedByUser=False),
            said("c", "v", ROOT, texts[1], now),
            said("c", "b", "v", answers[0], now, isCreatedByUser=False),
            said("c", "d", "v", answers[1], now, isCreatedByUser=False),
            said("c", "e", ROOT, "It failed.", now, isCreatedByUser=False, error=True),
            said("c", "f", "v", "", now, isCreatedByUser=False),
        ]
        for number, row in enumerate(rows):
            row["createdAt"] += timedelta(milliseconds=number)
        await messages.insert_many(rows)
        await at.shows("asks", "ana", "<Recent>", "Pardal", "short", without=["Gaivota", "long", "Skot"])
        for session in ("t", "c"):
            await at.form(session)
        await at.shows("asks", "ana", "Pardal", without=["<Recent>", "Gaivota", "Skot"])
        facts = await at.facts("ana")
        assert [fact for fact in facts if "Gaivota" in fact or "long" in fact or "Skot" in fact] == []
        assert any("Pardal" in fact for fact in facts)
