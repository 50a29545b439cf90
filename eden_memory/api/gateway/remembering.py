"""Read memory for a chat: its context and search results, concurrently within a time limit."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import orjson

from eden_memory.api.gateway.chat_access import ChatAccess
from eden_memory.api.gateway.chat_request import MemoryOptions
from eden_memory.api.service import Memory, MemoryService
from eden_memory.context.context_xml import FactLine, context_xml, one_line, query_of
from eden_memory.errors import NotShown
from eden_memory.limits import label_of
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_views import FactOrigin
from eden_memory.metrics import GATEWAY_DEGRADED, GATEWAY_HITS
from eden_memory.search.search_requests import FoundFact, FoundMessage
from eden_memory.settings import MemorySettings, Settings

CHANGING = ("\n  <Facts>\n", "\n  <Recent>\n")
"""Where the part of a context begins that changes from turn to turn; nothing else stands behind it."""
OPENING, CLOSING = "<MemoryContext>\n", "\n</MemoryContext>"
log = LibraryLogger()
T = TypeVar("T")


class RememberedText(NamedTuple):
    """`stable`: blobs and reflections. `changing`: facts and messages with their ages, and what this turn found."""

    stable: str
    changing: str


def memory_text(contexts: Sequence[str], found: Sequence[FactLine], now: datetime) -> RememberedText:
    """Return the texts for contexts and found facts; facts that a context shows already are not repeated."""
    lines = [line for line in found if not any(f"] {one_line(line.content)} (" in text for text in contexts)]
    parts = [parted(context) for context in contexts]
    retrieved = context_xml((), now, MemorySettings(), lines)
    return RememberedText(
        joined([stable for stable, _ in parts]), joined([*(changing for _, changing in parts), retrieved])
    )


def joined(contexts: Iterable[str]) -> str:
    """Return the elements of several contexts in one."""
    first, *rest = [text for text in contexts if text] or [""]
    return first.removesuffix(CLOSING) + "".join(map(_inside, rest)) + CLOSING if rest else first


def parted(context: str) -> tuple[str, str]:
    """Split a context into memories, and facts with messages not formed yet; no memory can split it, for markup
    inside it is escaped.
    """
    starts = [start for opening in CHANGING if (start := context.find(opening)) >= 0]
    if not starts:
        return context, ""
    notice, start = context[: context.find("\n", len(OPENING))], min(starts)
    rest = context[:start] + CLOSING
    return ("" if rest == notice + CLOSING else rest), notice + context[start:]


def _inside(context: str) -> str:
    """Return the elements behind the first line, with the line break before them."""
    return context[context.index("\n", len(OPENING)) :].removesuffix(CLOSING)


@dataclass(frozen=True, slots=True)
class Remembered:
    """The messages to be added, and `memory_hits` as JSON."""

    text: RememberedText
    hits: bytes


class Found(NamedTuple):
    """The facts found for a turn, and by fact id the message that each fact rests on."""

    facts: Sequence[FoundFact] = ()
    unformed: Sequence[FoundMessage] = ()
    origins: Mapping[str, FactOrigin] = {}


class Remembering:
    """Reads memory for chats; leaves out and counts what fails or is slow, so that no chat fails."""

    def __init__(self, memory: Memory, settings: Settings, clock: Callable[[], datetime]) -> None:
        self._agents, self._clock = memory, clock
        self._settings, self._gateway, self._memory = settings, settings.gateway, settings.memory

    async def of(
        self, who: ChatAccess, asked: MemoryOptions, message: str, *, tells: bool = True
    ) -> Remembered:
        """Return the memory for a turn whose last message of the user is `message`; `tells`: with its hits."""
        service = self._agents.agent(who.agent)
        whose = [who, who.of_global] if who.reads_global else [who]
        contexts = [
            asyncio.ensure_future(service.get_memory_context(one.session, one.user, scopes=one.scopes))
            for one in whose
        ]
        searches: list[asyncio.Future[Found]] = []
        for one in whose:  # one behind the other: the second finds its vector in the first one's cache
            search = self._search(
                service, one, asked, message, searches[-1] if searches else None, tells=tells
            )
            searches.append(asyncio.ensure_future(search))
        try:
            await asyncio.wait((*contexts, *searches), timeout=self._gateway.memory_seconds)
            return self._put_together(
                [_came("context", task) or "" for task in contexts],
                self._best([_came("search", task) or Found() for task in searches], asked),
            )
        finally:
            for task in (*contexts, *searches):
                task.cancel()

    def _best(self, found: Sequence[Found], asked: MemoryOptions) -> Found:
        """Return the most relevant of several searches: their scores cannot be compared."""
        with_facts = [of.facts for of in found if of.facts]
        facts = [fact for facts in with_facts for fact in facts]
        if len(with_facts) > 1:
            facts.sort(key=lambda fact: -fact.relevance)
        unformed = [message for of in found for message in of.unformed]
        origins = {name: origin for of in found for name, origin in of.origins.items()}
        return Found(facts[: asked.top_k], unformed, origins)

    async def _search(
        self,
        service: MemoryService,
        who: ChatAccess,
        asked: MemoryOptions,
        message: str,
        behind: asyncio.Future[Found] | None = None,
        *,
        tells: bool,
    ) -> Found:
        """Search, without facts that are hardly related, or less relevant than the caller asks for."""
        if not message or not asked.top_k or (by := self._memory.recalls_by) is None:
            return Found()
        if behind is not None:
            await asyncio.wait([behind])
        try:
            report = await service.explain_search(
                [query_of(message, self._settings)],
                session=who.session,
                user=who.user,
                top_k=asked.top_k,
                search_type=by,
                scopes=who.scopes,
                related=asked.score_threshold is None,
                as_context=True,
                recency_weight=asked.recency_weight,
            )
        except NotShown:
            return Found()
        facts = [fact for fact in report.facts if fact.relevance >= (asked.score_threshold or 0.0)]
        if not tells:
            return Found(facts)
        return Found(facts, report.unformed, await self._agents.origins(facts) if facts else {})

    def _put_together(self, contexts: Sequence[str], found: Found) -> Remembered:
        GATEWAY_HITS.inc(len(found.facts))
        lines = [FactLine(fact.scope, fact.content, fact.valid_from) for fact in found.facts]
        text = memory_text(contexts, lines, self._clock())
        if self._gateway.placement == "start":
            text = RememberedText(joined(text), "")
        hits = [_hit(fact, found.origins.get(fact.fact_id)) for fact in found.facts]
        hits += map(_unformed_hit, found.unformed)
        return Remembered(text, orjson.dumps(hits))


def _came(part: str, task: asyncio.Future[T]) -> T | None:
    if not task.done():
        GATEWAY_DEGRADED.labels(part, "slow").inc()
        return None
    error = task.exception()
    if error is None:
        return task.result()
    GATEWAY_DEGRADED.labels(part, "failed").inc()
    log.warning("a chat goes on without memory", part=part, reason=type(error).__name__)
    return None


def _hit(found: FoundFact, origin: FactOrigin | None) -> dict[str, Any]:
    return {
        "id": found.fact_id,
        "content": found.content,
        "scope": label_of(found.scope),
        "score": found.score,
        "relevance": found.relevance,
        "formed_at": found.formed_at,
        "said_at": found.said_at,
        "version": found.version,
        "role": None if origin is None else origin.role,
        "created_at": found.said_at if origin is None else origin.said_at,
    }


def _unformed_hit(found: FoundMessage) -> dict[str, Any]:
    """Return a hit that is no memory yet: `formed_at` is null, and `id` the message's."""
    return {
        "id": found.message_id,
        "content": found.content,
        "scope": "user",
        "score": found.score,
        "relevance": None,
        "formed_at": None,
        "said_at": found.said_at,
        "version": None,
        "role": "user" if found.speaker == "user" else "assistant",
        "created_at": found.said_at,
    }
