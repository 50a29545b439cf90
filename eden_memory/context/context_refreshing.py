"""Keeps ready contexts right where no event says so: who writes in, joins or leaves a session, switches, a start.

Sessions and authors have a task of their own: while all contexts are built anew, a context that no longer holds is
withdrawn all the same.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from eden_memory.context.context_feed import Client, ContextChange, ContextFeed
from eden_memory.error_text import describe
from eden_memory.logs import LibraryLogger
from eden_memory.settings import Settings
from eden_memory.stages.process import State
from eden_memory.task_ending import run_until_first

log = LibraryLogger()
TOGETHER_SECONDS = 0.05
AGAIN_SECONDS = 2.0
STALE_SECONDS = 10.0
"""Contexts of which a fact has expired are looked for so often."""


class Refreshing(Protocol):
    """Builds contexts anew (processors.context_cache.ContextCache)."""

    async def refresh_all(self) -> None:
        """All of active sessions."""
        ...

    async def refresh_stale(self) -> None:
        """Those that show a fact which has expired."""
        ...

    async def sessions_changed(self, session_ids: Iterable[str]) -> None:
        """Those of some sessions."""
        ...

    async def written(self, authors: Iterable[tuple[str, str]]) -> None:
        """Withdraw and build anew those that do not hold for the author of one of these (session, author)."""
        ...

    async def close(self) -> None:
        """Build what was put off."""
        ...


class ContextKeeping:
    """Follows the change streams of what contexts depend on, messages' authors included."""

    name = "context-keeping"

    def __init__(
        self,
        contexts: Refreshing,
        client: Client,
        settings: Settings,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        self._contexts = contexts
        self._feed = ContextFeed(client, settings, self._heard, self._listens, authors=True)
        self._stale_seconds = stale_seconds
        self._sessions: set[str] = set()
        self._authors: set[tuple[str, str]] = set()
        self._all, self._live = True, False
        self._some_changed, self._all_changed = asyncio.Event(), asyncio.Event()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Until `stop`."""
        try:
            await run_until_first(
                self._feed.run(),
                self._work(self._all_changed, self._refresh_all),
                self._work(self._some_changed, self._refresh_some),
                self._stale_rounds(),
                self._stopping,
            )
        finally:
            await self._contexts.close()

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Whether changes of sessions are heard of."""
        return State(self._live, "listening" if self._live else "not listening to changes of sessions")

    def _heard(self, change: ContextChange) -> None:
        if change.what == "author":
            self._authors.add((change.id, change.author))
        elif change.what == "session":
            self._sessions.add(change.id)
        elif change.what != "scope":
            self._all = True
            self._all_changed.set()
        self._some_changed.set()

    def _listens(self, live: bool) -> None:
        self._live = live

    async def _work(self, changed: asyncio.Event, refresh: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await refresh()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it tries again
                log.warning("contexts not refreshed", reason=describe(error))
                self._all = True
                self._all_changed.set()
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            await changed.wait()
            changed.clear()
            await asyncio.sleep(TOGETHER_SECONDS)

    async def _stale_rounds(self) -> None:
        while True:
            try:
                await self._contexts.refresh_stale()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: the next round tries again
                log.warning("expired facts still shown", reason=describe(error))
            await asyncio.sleep(self._stale_seconds)

    async def _refresh_all(self) -> None:
        everything, self._all = self._all, False
        if everything:
            await self._contexts.refresh_all()

    async def _refresh_some(self) -> None:
        authors, self._authors = self._authors, set()
        sessions, self._sessions = self._sessions, set()
        if authors:
            await self._contexts.written(authors)
        if sessions:
            await self._contexts.sessions_changed(sessions)
