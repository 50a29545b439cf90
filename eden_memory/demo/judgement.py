"""Judges the memory formed of a conversation by what a person would want remembered of it, and what not. Pure.

What the figures say:

- `recall`: share of the expected items that one memory holds, in a scope where the item may be. A blob counts line
  by line, so that a long one does not hold everything by chance. An item is recognised by its `mentions`, as
  written by a person beforehand: a garbled sentence with the right words passes, a good one in other words does not.
- `precision`: share of the facts and reflections formed that hold an expected item. It is a lower bound: true and
  useful memories that nobody listed count against it. What sessions keep of themselves (always formed, gone with the
  session) and blobs (made of reflections) are left out.
- `clean`: share of the same that nothing forbids. An upper bound: a useless memory is clean too.
- `violations` are looked for in everything, blobs and sessions included.

They cannot tell how well a memory reads, whether an unlisted one is true, or how another conversation would fare.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.api.service import MemoryService
from eden_memory.demo.conversation import EXAMPLE, Conversation, plain_text
from eden_memory.names import Names
from eden_memory.schemas.ids import split
from eden_memory.schemas.scopes import Scope
from eden_memory.search.search_requests import FoundFact
from eden_memory.settings import Settings

EXPECTED = EXAMPLE.with_suffix(".expected.yaml")
Words = tuple[tuple[str, ...], ...]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    mentions: Words
    """A memory holds the item if it has, of every inner list, one of the texts (ignoring case)."""
    messages: tuple[str, ...] = Field(alias="from")
    why: str


class ExpectedItem(_Entry):
    """Something that a person would want remembered."""

    scope: str
    others: tuple[str, ...] = Field((), alias="or")
    """Scopes that are as good."""
    says: str


class ForbiddenItem(_Entry):
    """Something that no memory of these kinds of scope may hold."""

    scopes: tuple[str, ...]
    unless: tuple[str, ...] = ()
    """A memory that has one of these texts is fine."""


class Expectations(BaseModel):
    """The expectations for a conversation (`<conversation>.expected.yaml`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1]
    facts: tuple[ExpectedItem, ...]
    reflections: tuple[ExpectedItem, ...]
    must_not: tuple[ForbiddenItem, ...]


@dataclass(frozen=True, slots=True)
class FormedMemory:
    """One active memory: a fact, a reflection (absorbed or not), or a blob."""

    kind: Literal["fact", "reflection", "blob"]
    scope: str
    """As the expectations name scopes: `agent`, `group:yard`, `user:mara`, `session:s1`."""
    text: str


@dataclass(frozen=True, slots=True)
class MemoryVerdict:
    """The items found and missed, the violations; `wanted` and `unlisted` are the facts and reflections formed."""

    found: tuple[tuple[ExpectedItem, FormedMemory], ...]
    missed: tuple[ExpectedItem, ...]
    violated: tuple[tuple[ForbiddenItem, FormedMemory], ...]
    wanted: tuple[FormedMemory, ...]
    unlisted: tuple[FormedMemory, ...]
    forbidden: int
    """The number of memories in `wanted` and `unlisted` that something forbids."""

    @property
    def recall(self) -> float:
        """0 to 1; 1 if nothing was expected."""
        return _share(len(self.found), len(self.found) + len(self.missed))

    @property
    def precision(self) -> float:
        """0 to 1; 1 where nothing was formed."""
        return _share(len(self.wanted), len(self.wanted) + len(self.unlisted))

    @property
    def clean(self) -> float:
        """0 to 1; 1 where nothing was formed."""
        formed = len(self.wanted) + len(self.unlisted)
        return _share(formed - self.forbidden, formed)


def read_expectations(path: Path = EXPECTED) -> Expectations:
    """Read a file; OSError, ValidationError."""
    return Expectations.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))


def judged(expected: Expectations, formed: Sequence[FormedMemory]) -> MemoryVerdict:
    """The verdict on a memory."""
    items = (*expected.facts, *expected.reflections)
    lines = [line for memory in formed for line in _lines(memory)]
    holders = [(item, next((line for line in lines if _holds(line, item)), None)) for item in items]
    counted = [
        memory for memory in formed if memory.kind != "blob" and not memory.scope.startswith("session")
    ]
    wanted = tuple(memory for memory in counted if any(_holds(memory, item) for item in items))
    return MemoryVerdict(
        found=tuple((item, line) for item, line in holders if line),
        missed=tuple(item for item, line in holders if not line),
        violated=tuple((ban, line) for ban in expected.must_not for line in lines if _violates(line, ban)),
        wanted=wanted,
        unlisted=tuple(memory for memory in counted if memory not in wanted),
        forbidden=sum(any(_violates(memory, ban) for ban in expected.must_not) for memory in counted),
    )


def _lines(formed: FormedMemory) -> Iterator[FormedMemory]:
    texts = formed.text.splitlines() if formed.kind == "blob" else [formed.text]
    return (FormedMemory(formed.kind, formed.scope, text) for text in texts if text.strip())


def _holds(formed: FormedMemory, item: ExpectedItem) -> bool:
    return formed.scope in (item.scope, *item.others) and _mentions(formed.text, item.mentions)


def _violates(formed: FormedMemory, ban: ForbiddenItem) -> bool:
    kind = formed.scope.split(":")[0]
    return kind in ban.scopes and _mentions(formed.text, ban.mentions) and not _any(formed.text, ban.unless)


def _mentions(text: str, words: Words) -> bool:
    return all(_any(text, some) for some in words)


def _any(text: str, some: Sequence[str]) -> bool:
    low = text.casefold()
    return any(words.casefold() in low for words in some)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


QUESTION = "When will Kittiwake be launched?"
KINDS: Mapping[str, str] = {"facts": "fact", "reflections": "reflection", "consolidated": "blob"}


@dataclass(frozen=True, slots=True)
class Example:
    """The context that an agent gets for one session and user, and the results of a search."""

    session: str
    user: str | None
    context: str
    question: str
    found: tuple[FoundFact, ...]


async def example(settings: Settings, conversation: Conversation, question: str | None) -> Example:
    """Return the context of the latest session of one user, and a search in it."""
    session, user = _latest(conversation)
    agent = next((row["agent_id"] for row in conversation.people["sessions"] if row["_id"] == session), None)
    async with MemoryService(agent or "default", settings=settings) as memory:
        context = await memory.get_memory_context(session, user)
        asked = question or _last_question(conversation, session)
        found = await memory.search_facts(asked, session=session, user=user, top_k=3) if asked else []
    return Example(session, user, context, asked, tuple(found))


async def verdict(database: AsyncDatabase[dict[str, Any]], names: Names) -> MemoryVerdict:
    """Compare the stored memory with what a person would want remembered of the example."""
    return judged(read_expectations(), await formed_memory(database, names))


async def formed_memory(
    database: AsyncDatabase[dict[str, Any]], names: Names, **of: Any
) -> list[FormedMemory]:
    """Return all active memory, or that with the given fields."""
    query = {"content": {"$type": "string"}, "active": {"$ne": False}, **of}
    return [
        _formed(kind, row) for name, kind in KINDS.items() async for row in database[names[name]].find(query)
    ]


def _formed(kind: Any, row: Mapping[str, Any]) -> FormedMemory:
    return FormedMemory(kind, _scope(row["scope_key"]), row["content"])


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
