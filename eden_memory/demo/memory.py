"""The memory that the demo has formed, as people and the judgement read it."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.api.service import MemoryService
from eden_memory.demo.conversation import Conversation, plain_text
from eden_memory.demo.judgement import Formed, Verdict, judged, read_expectations
from eden_memory.names import Names
from eden_memory.schemas.ids import split
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_requests import FoundFact
from eden_memory.settings import Settings

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
    """Return the context of the latest session of one user, and a search in it."""
    session, user = _latest(conversation)
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


def _latest(conversation: Conversation) -> tuple[str, str | None]:
    """The session with the newest message among those of one user, so that earlier sessions show in its context."""
    users: dict[str, set[str]] = {}
    for message in conversation.messages:
        users.setdefault(message.session, set()).update({message.user} if message.user is not None else ())
    by_time = sorted(conversation.messages, key=attrgetter("created_at"), reverse=True)
    newest = list(dict.fromkeys(message.session for message in by_time))
    session = next((name for name in newest if len(users[name]) == 1), newest[0])
    return session, next(iter(users[session]), None)


def _last_question(conversation: Conversation, session: str) -> str:
    texts = [
        plain_text(message.content)
        for message in conversation.messages
        if message.session == session and message.user
    ]
    return next((text for text in reversed(texts) if text.rstrip().endswith("?")), "")
