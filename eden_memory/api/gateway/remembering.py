"""What a chat is given of memory: its context and what a search finds, side by side, within a time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import orjson

from eden_memory.api.gateway.chat_access import Who
from eden_memory.api.gateway.chat_request import Asked
from eden_memory.context.context_xml import FactLine, Showing, context_xml, one_line
from eden_memory.context.recall import query_of
from eden_memory.logs import LibraryLogger
from eden_memory.metrics import GATEWAY_DEGRADED, GATEWAY_HITS
from eden_memory.scope_limits import label_of
from eden_memory.settings import Settings

FACTS, END = "\n  <Facts>\n", "\n  </Facts>"
OPENING, CLOSING = "<MemoryContext>\n", "\n</MemoryContext>"
log = LibraryLogger()


class MemoryText(NamedTuple):
    """`stable`: blobs and reflections. `changing`: facts with their ages, and what was found for this turn."""

    stable: str
    changing: str


def memory_text(context: str, found: Sequence[FactLine], now: datetime) -> MemoryText:
    """Of a context without recalled facts; `found` that it shows already are not said twice."""
    lines = [one for one in found if f"] {one_line(one.content)} (" not in context]
    stable, facts = parted(context)
    retrieved = context_xml((), now, Showing(), lines)
    if not facts or not retrieved:
        return MemoryText(stable, facts or retrieved)
    return MemoryText(stable, facts.removesuffix(CLOSING) + _inside(retrieved) + CLOSING)


def parted(context: str) -> tuple[str, str]:
    """(a context without its facts, its facts alone); markup inside memories is escaped, so the marks are its own."""
    start = context.find(FACTS)
    if start < 0:
        return context, ""
    end = context.index(END, start) + len(END)
    notice = context[: context.find("\n", len(OPENING))]
    rest = context[:start] + context[end:]
    return ("" if rest == notice + CLOSING else rest), notice + context[start:end] + CLOSING


def in_one(text: MemoryText) -> str:
    """Both in one, what is stable first."""
    if not text.stable or not text.changing:
        return text.stable or text.changing
    return text.stable.removesuffix(CLOSING) + _inside(text.changing) + CLOSING


def _inside(context: str) -> str:
    """The elements behind the first line, with the line break before them."""
    return context[context.index("\n", len(OPENING)) :].removesuffix(CLOSING)


class Agents(Protocol):
    """eden_memory.api.service.Memory, as far as the gateway needs it."""

    def agent(self, agent_id: Any = "default") -> Any:
        """An agent's MemoryService."""
        ...


@dataclass(frozen=True, slots=True)
class Remembered:
    """The messages to be added, and `memory_hits` as JSON."""

    text: MemoryText
    hits: bytes


class Remembering:
    """A chat never fails for memory: what fails or is slow is left out, and counted."""

    def __init__(self, agents: Agents, settings: Settings, clock: Callable[[], datetime]) -> None:
        self._agents, self._clock = agents, clock
        self._gateway, self._memory = settings.gateway, settings.memory

    async def of(self, who: Who, asked: Asked, message: str) -> Remembered:
        """For a turn whose last message of the user is `message`."""
        service = self._agents.agent(who.agent)
        reads = {"context": asyncio.ensure_future(service.get_memory_context(who.session, who.user))}
        most = self._gateway.top_k if asked.top_k is None else asked.top_k
        if message and most and self._memory.search:
            found = _search(service, who, asked, message, most, self._memory.recall_related)
            reads["search"] = asyncio.ensure_future(found)
        try:
            await asyncio.wait(reads.values(), timeout=self._gateway.memory_seconds)
            came = {part: self._came(part, task) for part, task in reads.items()}
        finally:
            for task in reads.values():
                task.cancel()
        return self._put_together(came.get("context") or "", came.get("search") or [])

    def _came(self, part: str, task: "asyncio.Future[Any]") -> Any:
        if not task.done():
            GATEWAY_DEGRADED.labels(part, "slow").inc()
            return None
        error = task.exception()
        if error is None:
            return task.result()
        GATEWAY_DEGRADED.labels(part, "failed").inc()
        log.warning("a chat goes on without memory", part=part, reason=type(error).__name__)
        return None

    def _put_together(self, context: str, found: list[Any]) -> Remembered:
        GATEWAY_HITS.inc(len(found))
        lines = [FactLine(one.scope, one.content, one.valid_from) for one in found]
        text = memory_text(context, lines, self._clock())
        if self._gateway.placement == "start":
            text = MemoryText(in_one(text), "")
        return Remembered(text, orjson.dumps([_hit(one) for one in found]))


def _search(
    service: Any, who: Who, asked: Asked, message: str, most: int, related: float
) -> Coroutine[Any, Any, list[Any]]:
    """What is hardly related is left out, unless the caller says which score is enough."""
    given = {"recency_weight": asked.recency_weight, "score_threshold": asked.score_threshold}
    return service.search_facts(
        [query_of(message)],
        session=who.session,
        user=who.user,
        top_k=most,
        related=related if asked.score_threshold is None else 0.0,
        **{name: value for name, value in given.items() if value is not None},
    )


def _hit(found: Any) -> dict[str, Any]:
    return {
        "id": found.fact_id,
        "content": found.content,
        "scope": label_of(found.scope),
        "score": found.score,
        "formed_at": found.formed_at,
        "said_at": found.said_at,
        "version": found.version,
    }
