"""Adapters: a namespace of ours as an agent reads it, and mem0 where it is installed."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar
from xml.etree.ElementTree import fromstring

from pydantic import ConfigDict

from eden_memory.api.service import Memory
from eden_memory.errors import EdenError
from eden_memory.evals.dataset import EvalConversation, QuestionLine, SaidMessage
from eden_memory.evals.spending import EvalModels
from eden_memory.evals.systems import EvalSetup, K, MemoryItem
from eden_memory.models.question import Prompt
from eden_memory.mongo.ids import decode_id, typed_or_text
from eden_memory.schemas.answers import ModelAnswer
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.ids import split
from eden_memory.search.search_requests import FoundFact
from eden_memory.settings import Settings

FOUND = 200
"""Facts that are requested: more than the largest budget takes."""


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
        agent = self._memory.agent(decode_id(typed_or_text(question.agent or conversation.id)))
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
        return prefixed(conversation.id, name) if self._prefixed else decode_id(typed_or_text(name))

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
    """Return the memories in a context's XML, one a line, without its note and facts: a search finds those."""
    if not context:
        return []
    root = fromstring(context)  # noqa: S314 - our own
    for facts in root.findall("Facts"):
        root.remove(facts)
    texts = (text for part in root for text in part.itertext())
    lines = (line.strip().removeprefix("- ") for text in texts for line in text.splitlines())
    return list(dict.fromkeys(line for line in lines if line))


MEM0_FOUND, TURN = 200, 2

ANSWER_TOKENS = 4_000

PROMPT = "mem0/1"

T = TypeVar("T")


class Mem0Statement(ModelAnswer):
    """One memory, in the form that mem0's prompt asks for."""

    model_config = ConfigDict(extra="ignore", strict=False)

    id: str
    text: str
    attributed_to: str
    linked_memory_ids: list[str]


class Mem0Statements(ModelAnswer):
    """The answer to mem0's only prompt."""

    memory: list[Mem0Statement]


class Mem0Memory:
    """A MemorySystem; a user of mem0 is a user of one conversation."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    async def ingest(self, conversations: Sequence[EvalConversation]) -> None:
        """Add turn by turn, as its guide shows: a message and its answer."""
        for conversation in conversations:
            for session in sorted(conversation.sessions, key=lambda session: session.at):
                for at in range(0, len(session.messages), TURN):
                    turn = session.messages[at : at + TURN]
                    for user in session.users:
                        await self._add(turn, f"{conversation.id}/{user}", session.at)

    async def _add(self, turn: Sequence[SaidMessage], user: str, at: datetime) -> None:
        said = [
            {"role": "user" if message.role == "user" else "assistant", "content": message.text}
            for message in turn
        ]
        metadata = {"said_at": at.isoformat(), "messages": json.dumps([message.id for message in turn])}
        await asyncio.to_thread(self._memory.add, said, user_id=user, metadata=metadata)

    async def retrieve(self, conversation: EvalConversation, question: QuestionLine) -> Sequence[MemoryItem]:
        """Return what its search finds, each with the turn with which it was added."""
        filters = {"user_id": f"{conversation.id}/{question.user}"}
        search = self._memory.search
        found = await asyncio.to_thread(
            search, question.text, filters=filters, top_k=MEM0_FOUND, threshold=0.0
        )
        return [_item(row) for row in found["results"]]


def _item(row: dict[str, Any]) -> MemoryItem:
    metadata: dict[str, Any] = row.get("metadata") or {}
    said_at = metadata.get("said_at")
    at = datetime.fromisoformat(said_at) if said_at else None
    return MemoryItem(text=row["memory"], at=at, bears=frozenset(json.loads(metadata.get("messages", "[]"))))


class SameModel:
    """Replaces mem0's language model and embedder; mem0 calls it from its own threads."""

    def __init__(self, models: EvalModels, loop: asyncio.AbstractEventLoop) -> None:
        self._models, self._loop = models, loop

    def generate_response(self, messages: list[dict[str, str]], **_: Any) -> str:
        """Return the text of an answer."""
        system = "\n".join(message["content"] for message in messages if message["role"] == "system")
        user = "\n".join(message["content"] for message in messages if message["role"] != "system")
        prompt = Prompt(PROMPT, system, user, None, ANSWER_TOKENS)
        answered, _spent = self._run(self._models.ask(prompt, Mem0Statements))
        return answered.model_dump_json()

    def embed(self, text: str, *_: Any, **__: Any) -> list[float]:
        """Return the vector of a text."""
        return self.embed_batch([text])[0]

    def embed_batch(self, texts: list[str], *_: Any, **__: Any) -> list[list[float]]:
        """Return the vectors of texts."""
        return self._run(self._models.vectors(texts)).tolist()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@asynccontextmanager
async def mem0_memory(setup: EvalSetup) -> AsyncGenerator[Mem0Memory]:
    """Open an empty memory; EdenError where mem0 is not installed, or no model is named."""
    if setup.models.named(None) is None:
        raise EdenError("mem0 needs a language model", "Name one: --llm openai, anthropic, google or a URL.")
    same = SameModel(setup.models, asyncio.get_running_loop())
    dimensions = (await setup.models.vectors(["."])).shape[1]
    memory = await asyncio.to_thread(_opened, setup.folder, dimensions, same)
    try:
        yield Mem0Memory(memory)
    finally:
        await asyncio.to_thread(memory.close)


def _opened(folder: Path, dimensions: int, same: SameModel) -> Any:
    os.environ |= {"MEM0_DIR": str(folder), "MEM0_TELEMETRY": "False"}
    try:
        mem0: Any = import_module("mem0")
    except ImportError:
        raise EdenError("mem0 is not installed", "pip install mem0ai") from None
    store = {"path": str(folder / "qdrant"), "embedding_model_dims": dimensions, "on_disk": True}
    unused: Callable[[str], dict[str, Any]] = lambda model: {  # noqa: E731 - its clients want a key
        "provider": "openai",
        "config": {"model": model, "api_key": "unused"},
    }
    config = {
        "vector_store": {"provider": "qdrant", "config": store},
        "history_db_path": str(folder / "history.db"),
        "llm": unused("gpt-5-mini"),
        "embedder": unused("text-embedding-3-small"),
    }
    memory = mem0.Memory.from_config(config)
    memory.llm = memory.embedding_model = same
    return memory
