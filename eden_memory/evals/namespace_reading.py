"""Reads a namespace of ours as an agent would: facts that a search finds, then the lines of the context."""

from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import fromstring

from eden_memory.api.service import Memory
from eden_memory.evals.dataset import EvalConversation, QuestionLine
from eden_memory.evals.measures import K
from eden_memory.evals.systems import MemoryItem
from eden_memory.mongo.bson_ids import decode_id
from eden_memory.mongo.given_ids import typed
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.ids import split
from eden_memory.search.search_requests import FoundFact
from eden_memory.settings import Settings

FOUND = 200
"""Facts that are asked for: more than the largest budget takes."""


class NamespaceReading:
    """An async context manager. `prefixed`: ids in the application have the conversation's name before them."""

    def __init__(self, settings: Settings, *, prefixed: bool) -> None:
        """`settings` of the namespace."""
        self._settings, self._prefixed = settings, prefixed
        self._memory = Memory(settings)

    async def __aenter__(self) -> "NamespaceReading":
        await self._memory.__aenter__()
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._memory.close()

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """Ten facts, the context, and what else the search finds."""
        agent = self._memory.agent(decode_id(typed(question.agent or conversation.id)))
        last = conversation.last_session(question)
        session = self._id(conversation, last.id if last else question.session)
        user, at = self._id(conversation, question.user), question.at
        found = await agent.search_facts(question.text, session=session, user=user, top_k=FOUND, asked_at=at)
        facts = await self._items(conversation, found)
        known = {item.text for item in facts}
        context = await agent.get_memory_context(session or "eden-eval", user)
        lines = [MemoryItem(text=line) for line in lines_of(context) if line not in known]
        return [*facts[:K], *lines, *facts[K:]]

    def _id(self, conversation: EvalConversation, name: str | None) -> Any:
        if name is None:
            return None
        return prefixed(conversation.id, name) if self._prefixed else decode_id(typed(name))

    async def _items(self, conversation: EvalConversation, found: Sequence[FoundFact]) -> list[MemoryItem]:
        facts = self._memory.database[self._settings.names[Fact.COLLECTION]]
        query = {"_id": {"$in": [fact.fact_id for fact in found]}}
        rows = {row["_id"]: row async for row in facts.find(query, {"message_ids": 1})}
        before = f"{conversation.id}-" if self._prefixed else ""
        return [
            MemoryItem(
                text=fact.content,
                at=fact.valid_from,
                bears=frozenset(
                    split(name)[1].removeprefix(before)
                    for name in rows.get(fact.fact_id, {}).get("message_ids", ())
                ),
            )
            for fact in found
        ]


def prefixed(conversation: str, name: str) -> str:
    """Return an id that no other conversation has."""
    return f"{conversation}-{name}"


def lines_of(context: str) -> list[str]:
    """Return the memories in a context's XML, one a line, without the facts: a search finds those."""
    if not context:
        return []
    root = fromstring(context)  # noqa: S314 - our own
    for facts in root.findall("Facts"):
        root.remove(facts)
    lines = (line.strip().removeprefix("- ") for text in root.itertext() for line in text.splitlines())
    return list(dict.fromkeys(line for line in lines if line))
