"""The memory that the demo has formed, as people and the judgement read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.api.search.requests import FoundFact
from eden_memory.api.service import MemoryService
from eden_memory.demo.conversation import Conversation, plain_text
from eden_memory.demo.judgement import Formed, Verdict, judged, read_expectations
from eden_memory.domain.names import Names
from eden_memory.settings import Settings
from schemas.ids import split
from schemas.scopes import Scope

QUESTION = "When will Kittiwake be launched?"
KINDS: Mapping[str, str] = {"facts": "fact", "reflections": "reflection", "consolidated": "blob"}


@dataclass(frozen=True, slots=True)
class Example:
    """What an agent would get: the context of one session and user, and what a search finds."""

    session: str
    user: str | None
    context: str
    question: str
    found: tuple[FoundFact, ...]


async def example(settings: Settings, conversation: Conversation, question: str | None) -> Example:
    """The context of the longest one-person session, and a search in it."""
    session, user = _longest(conversation)
    agent = next((one["agent_id"] for one in conversation.people["sessions"] if one["_id"] == session), None)
    async with MemoryService(agent or "default", settings=settings) as memory:
        context = await memory.get_memory_context(session, user)
        asked = question or _last_question(conversation, session)
        found = await memory.search_facts(asked, session=session, user=user, top_k=3) if asked else []
    return Example(session, user, context, asked, tuple(found))


async def verdict(database: AsyncDatabase[dict[str, Any]], names: Names) -> Verdict:
    """What a person would want remembered of the example, against what is there."""
    formed = [
        _formed(kind, row)
        for name, kind in KINDS.items()
        async for row in database[names[name]].find(
            {"content": {"$type": "string"}, "active": {"$ne": False}}
        )
    ]
    return judged(read_expectations(), formed)


def _formed(kind: Any, row: Mapping[str, Any]) -> Formed:
    return Formed(kind, _scope(row["scope_key"]), row["content"])


def _scope(key: str) -> str:
    """`agent`, `group:yard`, `user:mara`, `session:s1`."""
    scope = Scope.of_key(key, "s.")
    named = scope.user_id or scope.group_id or scope.session_id
    return f"{scope.kind}:{split(named)[1]}" if named else scope.kind


def _longest(conversation: Conversation) -> tuple[str, str | None]:
    users: dict[str, set[str]] = {}
    lengths: dict[str, int] = {}
    for message in conversation.messages:
        lengths[message.session] = lengths.get(message.session, 0) + 1
        if message.user is not None:
            users.setdefault(message.session, set()).add(message.user)
    alone = [session for session in lengths if len(users.get(session, ())) == 1] or list(lengths)
    session = max(alone, key=lambda one: lengths[one])
    return session, next(iter(users.get(session, ())), None)


def _last_question(conversation: Conversation, session: str) -> str:
    texts = [plain_text(one.content) for one in conversation.messages if one.session == session and one.user]
    return next((text for text in reversed(texts) if text.rstrip().endswith("?")), "")
