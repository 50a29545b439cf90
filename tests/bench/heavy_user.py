"""A user who has written a lot in the last day, and one who has written little; both with what memory holds."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from pymongo import IndexModel
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.models.local_embedder import MODEL, LocalEmbedder
from eden_memory.schemas.scopes import Scope
from tests.bench.search_facts import facts, store

HEAVY, LIGHT = "hugo", "lena"
MESSAGES = {HEAVY: 2_000, LIGHT: 10}
FACTS, DIMENSIONS = 300, 384
SESSIONS = 4
"""Of each, in which the messages are; they ask in another one, whose group has them as its only member."""
TEXT = "We talked about the boat, its engine and the way to the island. " * 16
"""1 kB."""
INDEXES = (
    IndexModel([("session_id", 1), ("role", 1), ("user_id", 1)]),
    IndexModel([("session_id", 1), ("created_at", -1), ("_id", -1)]),
    IndexModel([("user_id", 1), ("created_at", -1), ("_id", -1)]),
)
"""Those that `eden doctor` asks for."""
Database = AsyncDatabase[dict[str, Any]]


async def put(database: Database) -> None:
    """Messages of both, an answer to each; facts of the heavy one, as the local embedder would have left them."""
    await database["messages"].create_indexes(list(INDEXES))
    for user, count in MESSAGES.items():
        sessions = [f"{user}{number}" for number in range(SESSIONS)]
        rows = [{"_id": name, "agent_id": "a", "users": [user]} for name in sessions]
        asking = {"_id": user, "agent_id": "a", "users": [user], "group_id": f"{user}-group"}
        await database["sessions"].insert_many([*rows, asking])
        await database["messages"].insert_many(_messages(user, sessions, count))
    made = facts(FACTS, [Scope.of_user("s.a", f"s.{HEAVY}")], DIMENSIONS, seed=1)
    embedder = LocalEmbedder()
    found = await embedder.embed([fact.text for fact in made.told])
    await embedder.close()
    made.vectors[:] = [np.frombuffer(one.vector, "<f4") for one in found]
    await store(database, made)
    await database["memory_facts"].update_many({}, {"$set": {"embedding_model": MODEL}})


def _messages(user: str, sessions: list[str], count: int) -> list[dict[str, Any]]:
    now, each = datetime.now(UTC), timedelta(hours=23) / count
    return [
        {
            "_id": f"{user}-{number}",
            "session_id": sessions[number * len(sessions) // count],
            "content": f"{number}. {TEXT}",
            "created_at": now - each * (count - number),
            **({"role": "assistant"} if number % 2 else {"role": "user", "user_id": user}),
        }
        for number in range(count)
    ]
