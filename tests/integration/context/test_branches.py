"""The messages in whose place others are shown, as MongoDB has them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.directory import tree_store
from eden_memory.directory.directory_store import MongoDirectory
from eden_memory.directory.participants import SessionFacts
from eden_memory.settings import MessagesSettings, Settings

pytestmark = pytest.mark.servers
NOW, ROOT = datetime(2026, 1, 1, tzinfo=UTC), "00000000"
TREES = MessagesSettings(
    session_id="conversationId",
    role="isCreatedByUser",
    content=("content", "text"),
    created_at="createdAt",
    exclude=("error", "content.hidden"),
)
LISTS = MessagesSettings(
    list="messages",
    session_id="_id",
    role="messages.from",
    content="messages.content",
    created_at="messages.createdAt",
    user_id="userId",
)


async def replaced(settings: Settings, database: AsyncDatabase[dict[str, Any]]) -> dict[str, set[str]]:
    directory = MongoDirectory(database, database["memory_streams"], settings)
    found = await directory.look_up(["s.c", "s.d", "s.none"], branches_of=["s.c", "s.none"])
    facts = {name: one.replaced for name, one in found.items() if isinstance(one, SessionFacts)}
    return {name: set(names) for name, names in facts.items()}


async def test_what_failed_replaces_nothing_and_an_odd_id_hides_no_other_message(
    settings: Settings, database: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = database["messages"]

    def row(name: Any, parent: str, **fields: Any) -> dict[str, Any]:
        at, own = NOW + timedelta(seconds=len(rows)), str(name)
        said = {"conversationId": "c", "messageId": own, "parentMessageId": parent, "createdAt": at}
        return {"_id": name, "isCreatedByUser": True, "text": "Hello", **said, **fields}

    rows: list[dict[str, Any]] = []
    rows.append(row("u", ROOT))
    rows.append(row("a", "u"))
    rows.append(row("b", "u", content=[{"type": "text", "text": "Hi"}]))
    rows.append(row({"odd": 1}, "u"))
    rows.append(row("failed", ROOT, error=True))
    rows.append(row("empty", ROOT, text="  "))
    rows.append(row("begun", "b", text=""))
    await messages.insert_many([*rows, row("other", ROOT, conversationId="d")])
    mapped = settings.model_copy(update={"messages": TREES})
    expected = {"s.c": {"s.a", "s.failed", "s.empty"}, "s.d": set[str](), "s.none": set[str]()}
    assert await replaced(mapped, database) == expected
    monkeypatch.setattr(tree_store, "MOST_OF_TREE", 1)
    assert (await replaced(mapped, database))["s.c"] == set(), "what is not read replaces nothing"


async def test_elements_of_other_branches_are_replaced_and_no_other_session_is_looked_at(
    settings: Settings, database: AsyncDatabase[dict[str, Any]]
) -> None:
    chats = database["messages"]

    def element(name: str, *ancestors: str) -> dict[str, Any]:
        return {"id": name, "from": "user", "content": name, "ancestors": list(ancestors), "children": []}

    listed = [element("s"), element("u", "s"), element("a", "s", "u"), element("b", "s", "u")]
    await chats.insert_many([{"_id": name, "userId": "ana", "messages": listed} for name in ("c", "d")])
    mapped = settings.model_copy(update={"messages": LISTS})
    expected = {"s.c": {"s.s.c%2Fs.a"}, "s.d": set[str](), "s.none": set[str]()}
    assert await replaced(mapped, database) == expected
