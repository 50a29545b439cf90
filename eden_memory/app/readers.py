"""The readers of one namespace, and the move of a process to the next one without a failed read."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from eden_memory.access.visible import VisibleMemory, VisibleScope
from eden_memory.app.searching import Searching
from eden_memory.context.cached_contexts import Contexts
from eden_memory.context.recent_message_store import RecentMessages
from eden_memory.errors import MemoryRestored
from eden_memory.formation.consolidation_rules import due
from eden_memory.limits import label_of, words_of
from eden_memory.logs import LibraryLogger
from eden_memory.memory.memory_views import ConsolidationStatus, ScopeStats
from eden_memory.names import Names, Placement
from eden_memory.observability.why_store import Explanations
from eden_memory.replay.namespaces.namespace_store import is_restored, placed
from eden_memory.schemas.documents import Live, Reflection
from eden_memory.settings import Settings
from eden_memory.tasks import Unawaited, end

log = LibraryLogger()
READY_SECONDS = 0.5
"""Seconds to wait for a new namespace's change stream and search; then they become ready while they are used."""
AGAIN_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Readers:
    """Contexts, search, messages not formed yet and explanations of one namespace."""

    settings: Settings
    contexts: Contexts
    searching: Searching
    recent: RecentMessages
    explanations: Explanations

    async def take_over(self, former: "Readers") -> None:
        """Become ready if the former readers were in use: open the stream, load the search."""
        if former.contexts.watching is not None:
            self.contexts.watch()
        with suppress(TimeoutError):
            async with asyncio.timeout(READY_SECONDS):
                await self.searching.take_over(former.searching)
                if former.contexts.cache.live:
                    await self.contexts.ready()

    async def close(self) -> None:
        """Stop following changes once calls in progress have ended."""
        await self.contexts.close()
        await self.searching.close()


class LiveReaders:
    """`live` reads the pointer to what is live; the former readers go on until the new are ready.

    `fixed`: which namespace is live does not matter.
    """

    def __init__(
        self,
        settings: Settings,
        readers: Callable[[Settings, Callable[[], None]], Readers],
        live: Callable[[], Awaitable[Live | None]],
        unawaited: Unawaited,
        *,
        fixed: bool,
    ) -> None:
        self._readers, self._live, self._fixed, self._unawaited = readers, live, fixed, unawaited
        self._known = False
        self._moving = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None
        self._again = self._closed = False
        self._closing: set[asyncio.Task[None]] = set()
        self.now = readers(settings, self.look_again)

    async def current(self) -> Readers:
        """Return the readers of the live namespace; the first call looks up which that is. Errors are MongoDB's.

        MemoryRestored while a restored backup may hold what was forgotten since.
        """
        if not self._known:
            async with self._moving:
                if not self._known:
                    await self._look()
        return self.now

    def watch(self) -> None:
        """Listen to changes of the namespace that is live, once it is known."""
        if self._known:
            self.now.contexts.watch()
        else:
            self.look_again()

    def look_again(self) -> None:
        """Look again: another namespace may be live."""
        if self._closed:
            return
        self._again = True
        if self._looking is None or self._looking.done():
            looking = asyncio.create_task(self._look_until_known(), name="which namespace is live")
            self._looking = self._unawaited.add(looking)

    async def close(self) -> None:
        """Close all that reads."""
        self._closed = True
        await end([self._looking] if self._looking is not None else [])
        await self.now.close()
        await asyncio.gather(*self._closing)

    async def _look_until_known(self) -> None:
        while self._again:
            self._again = False
            try:
                async with self._moving:
                    await self._look()
                self.now.contexts.watch()
            except MemoryRestored:  # calls are refused meanwhile
                self._again = True
                await asyncio.sleep(AGAIN_SECONDS)
            except PyMongoError as error:
                log.warning("it is not known which namespace is live", reason=type(error).__name__)
                self._again = True
                await asyncio.sleep(AGAIN_SECONDS)

    async def _look(self) -> None:
        live = await self._live()
        if is_restored(live):
            self._known = False
            raise MemoryRestored
        if not self._fixed and placed(live) != self.now.settings.placement:
            await self._move(placed(live))
        self._known = True

    async def _move(self, placement: Placement) -> None:
        former, new = self.now, self._readers(self.now.settings.placed(placement), self.look_again)
        await new.take_over(former)
        self.now = new
        new.contexts.tell_listeners_of(former.contexts)
        closing = asyncio.create_task(former.close(), name="close a former namespace")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def scope_stats(
    database: AsyncDatabase[dict[str, Any]], names: Names, view: VisibleMemory
) -> dict[str, ScopeStats]:
    """By label (`agent`, `user`, `shard:<name>`, …)."""
    reflections = database[names[Reflection.COLLECTION]]
    counts = await asyncio.gather(
        *(reflections.count_documents({"scope_key": shown.scope.key}) for shown in view.shown)
    )
    return {
        label_of(shown.scope): _stats(shown, count) for shown, count in zip(view.shown, counts, strict=True)
    }


def consolidation_status(view: VisibleMemory) -> dict[str, ConsolidationStatus]:
    """By label."""
    return {label_of(shown.scope): _status(shown) for shown in view.shown}


def _stats(shown: VisibleScope, reflections: int) -> ScopeStats:
    snapshot = shown.snapshot
    return ScopeStats(
        scope_key=shown.scope.key,
        words=words_of(snapshot.blob or ""),
        blob_version=snapshot.blob_version,
        reflections=reflections,
        buffered=len(snapshot.buffer),
        facts=snapshot.active_facts,
        consolidated_at=snapshot.consolidated_at,
        changed_at=snapshot.changed_at,
    )


def _status(shown: VisibleScope) -> ConsolidationStatus:
    snapshot = shown.snapshot
    return ConsolidationStatus(
        scope_key=shown.scope.key,
        buffered=len(snapshot.buffer),
        threshold=shown.limits.threshold,
        due=due(snapshot, shown.limits) is not None,
        consolidated_at=snapshot.consolidated_at,
    )
