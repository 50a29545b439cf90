"""Refresh ready contexts where no event asks for it: authors, joins, leaves, switches, a start.

Authors, sessions and everything have a task each: while contexts are built anew, one that no longer holds is
withdrawn all the same.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from eden_memory.context.context_feed import (
    LONG_AWAIT_SECONDS,
    Client,
    ContextChange,
    ContextFeed,
    feeds,
    messages_feed,
)
from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.settings import Settings
from eden_memory.stages.process import State
from eden_memory.tasks import run_until_first

log = LibraryLogger()
TOGETHER_SECONDS = 0.05
"""Changes within this time of the last refresh are taken together."""
AGAIN_SECONDS = 2.0
STALE_SECONDS = 10.0
"""Seconds between two scans for contexts of which a fact has expired."""


RECENT_SECONDS = 3.0
"""Seconds between two rounds that add messages which are not formed yet."""
OF_MESSAGES = ("message:", "session:", "user:")
"""Beginnings of the marks of forgetting that reach messages."""


class _ShownMessages:
    """Collects changes of the messages that contexts show: new ones wait for a round, removed ones act at once."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        """Tags of messages that were changed or forgotten, or whose session was."""
        self.changed = asyncio.Event()
        self._written: set[tuple[str, str]] = set()
        self._answered: set[str] = set()

    def heard(self, change: ContextChange) -> None:
        """Note a change of a message, its session, or a mark of forgetting."""
        if change.what == "author" and change.author:
            self._written.add((change.id, change.author))
        elif change.what == "author":
            self._answered.add(f"session:{change.id}")
        elif change.what in ("message", "session", "state"):
            self._leave(f"{'message' if change.what == 'message' else 'session'}:{change.id}")
        elif change.what == "forgotten" and change.id.startswith(OF_MESSAGES):
            self._leave(change.id.rpartition("/")[0])

    def take_new(self) -> tuple[set[tuple[str, str]], set[str]]:
        """Take (session, author) of new messages, and tags of sessions with new answers or unnamed messages."""
        taken = self._written, self._answered
        self._written, self._answered = set(), set()
        return taken

    def put_back(self, written: set[tuple[str, str]], answered: set[str]) -> None:
        """Keep them for the next round."""
        self._written |= written
        self._answered |= answered

    def _leave(self, tag: str) -> None:
        self.gone.add(tag)
        self.changed.set()


class Refreshing(Protocol):
    """Rebuilds contexts (processors.context_cache.ContextCache)."""

    async def refresh_all(self) -> None:
        """Rebuild all contexts of active sessions."""
        ...

    async def refresh_stale(self) -> None:
        """Rebuild the contexts that show an expired fact."""
        ...

    async def sessions_changed(self, session_ids: Iterable[str]) -> None:
        """Rebuild the contexts of some sessions."""
        ...

    async def memory_hidden(self, session_ids: Iterable[str]) -> None:
        """Rebuild the contexts that may show memory of some sessions."""
        ...

    async def withdraw(self, authors: Iterable[tuple[str, str]]) -> set[str]:
        """Empty the contexts that lack the author of one of these (session, author); return their sessions."""
        ...

    async def written(self, authors: Iterable[tuple[str, str]], tags: Iterable[str]) -> None:
        """Rebuild the contexts that new messages concern.

        Those of users in their other sessions, where (session, author) wrote a message, and those that show messages
        not formed yet with one of these tags.
        """
        ...

    async def shown_changed(self, tags: Iterable[str]) -> None:
        """Rebuild the contexts that show messages not formed yet with one of these tags."""
        ...

    async def close(self) -> None:
        """Build the postponed contexts."""
        ...


class ContextKeeping:
    """Follows the change streams of the sources of contexts, messages' authors included."""

    name = "context-keeping"

    def __init__(
        self,
        contexts: Refreshing,
        client: Client,
        settings: Settings,
        stale_seconds: float = STALE_SECONDS,
        recent_seconds: float = RECENT_SECONDS,
    ) -> None:
        self._contexts = contexts
        followed = feeds(settings, marks=settings.memory.recent, scopes=False)
        followed["/messages"] = messages_feed(settings)
        self._feed = ContextFeed(client, followed, self._heard, self._listens, LONG_AWAIT_SECONDS)
        self._stale_seconds, self._recent_seconds = stale_seconds, recent_seconds
        self._sessions: set[str] = set()
        self._hiding: set[str] = set()
        """Sessions of which memory may be hidden now, or shown again."""
        self._authors: set[tuple[str, str]] = set()
        self._all, self._live = True, False
        self._recent = _ShownMessages()
        self._authors_changed, self._sessions_changed = asyncio.Event(), asyncio.Event()
        self._all_changed = asyncio.Event()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run until `stop`."""
        try:
            await run_until_first(
                self._feed.run(),
                self._work(self._all_changed, self._refresh_all),
                self._work(self._authors_changed, self._withdraw),
                self._work(self._sessions_changed, self._refresh_sessions),
                self._work(self._recent.changed, self._refresh_changed),
                self._recent_rounds(),
                self._stale_rounds(),
                self._stopping,
            )
        finally:
            await self._contexts.close()

    def stop(self) -> None:
        """Stop `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Return whether changes of sessions are reported."""
        return State(self._live, "listening" if self._live else "not listening to changes of sessions")

    def _heard(self, change: ContextChange) -> None:
        self._recent.heard(change)
        if change.what == "author" and change.author is not None:
            self._authors.add((change.id, change.author))
            self._authors_changed.set()
        elif change.what in ("session", "state"):
            self._sessions.add(change.id)
            if change.what == "state":
                self._hiding.add(change.id)
            self._sessions_changed.set()
        elif change.what not in ("author", "message", "forgotten"):
            self._all = True
            self._all_changed.set()

    def _listens(self, live: bool) -> None:
        self._live = live

    async def _work(self, changed: asyncio.Event, refresh: Callable[[], Awaitable[None]]) -> None:
        while True:
            begun = time.monotonic()
            try:
                await refresh()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it tries again
                log.warning("failed to refresh contexts", reason=describe(error))
                self._all = True
                self._all_changed.set()
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            await changed.wait()
            changed.clear()
            await asyncio.sleep(max(0.0, begun + TOGETHER_SECONDS - time.monotonic()))

    async def _stale_rounds(self) -> None:
        while True:
            try:
                await self._contexts.refresh_stale()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: the next round tries again
                log.warning("failed to remove expired facts from contexts", reason=describe(error))
            await asyncio.sleep(self._stale_seconds)

    async def _recent_rounds(self) -> None:
        """Show new messages, at most every few seconds."""
        while True:
            await asyncio.sleep(self._recent_seconds)
            written, tags = self._recent.take_new()
            try:
                await self._contexts.written(written, tags)
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: the next round tries again
                log.warning(
                    "failed to add messages that are not formed yet to contexts", reason=describe(error)
                )
                self._recent.put_back(written, tags)

    async def _refresh_changed(self) -> None:
        """Rebuild at once what shows a message that was changed or forgotten, or whose session was."""
        gone, self._recent.gone = self._recent.gone, set()
        try:
            if gone:
                await self._contexts.shown_changed(gone)
        except Exception:
            self._recent.gone |= gone
            raise

    async def _refresh_all(self) -> None:
        everything, self._all = self._all, False
        if everything:
            await self._contexts.refresh_all()

    async def _withdraw(self) -> None:
        authors, self._authors = self._authors, set()
        if not authors:
            return
        try:
            sessions = await self._contexts.withdraw(authors)
        except Exception:
            self._authors |= authors
            self._authors_changed.set()
            raise
        if sessions:
            self._sessions |= sessions
            self._sessions_changed.set()

    async def _refresh_sessions(self) -> None:
        sessions, self._sessions = self._sessions, set()
        hiding, self._hiding = self._hiding, set()
        if sessions:
            await self._contexts.sessions_changed(sessions)
        if hiding:
            await self._contexts.memory_hidden(hiding)
