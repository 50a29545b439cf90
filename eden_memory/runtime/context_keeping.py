"""Keeps ready contexts right where no event says so: who joins or leaves a session, switches, and after a start."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from eden_memory.runtime.ending import end
from eden_memory.runtime.process import State

log = structlog.get_logger()
TOGETHER_SECONDS = 0.05
AGAIN_SECONDS = 2.0


class Change(Protocol):
    """Something that contexts depend on (eden_memory.mongo.context.context_watch.Changed)."""

    @property
    def what(self) -> str:
        """`scope` (the stage hears of it itself), `session`, `user` or `everything`."""
        ...

    @property
    def id(self) -> str:
        """Of the session or user, typed."""
        ...


class Watching(Protocol):
    """Tells changes until it is cancelled."""

    async def run(self) -> None:
        """Until cancelled."""
        ...


class Refreshing(Protocol):
    """Builds contexts anew (processors.context_cache.ContextCache)."""

    async def refresh_all(self) -> None:
        """All of active sessions."""
        ...

    async def sessions_changed(self, session_ids: Iterable[str]) -> None:
        """Those of some sessions."""
        ...

    async def close(self) -> None:
        """Build what was put off."""
        ...


class ContextKeeping:
    """`watch` makes what tells changes, given who hears them and who hears whether any may be missed."""

    name = "context-keeping"

    def __init__(
        self,
        contexts: Refreshing,
        watch: Callable[[Callable[[Change], None], Callable[[bool], None]], Watching],
    ) -> None:
        self._contexts, self._watch = contexts, watch(self._heard, self._listens)
        self._sessions: set[str] = set()
        self._all, self._live = True, False
        self._wake, self._stopping = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Until `stop`."""
        watching = asyncio.create_task(self._watch.run())
        working = asyncio.create_task(self._work())
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            ended, _ = await asyncio.wait((watching, working, stopping), return_when=asyncio.FIRST_COMPLETED)
            for one in ended:
                one.result()
        finally:
            await end((watching, working, stopping))
            await self._contexts.close()

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()

    def state(self) -> State:
        """Whether changes of sessions are heard of."""
        return State(self._live, "listening" if self._live else "not listening to changes of sessions")

    def _heard(self, change: Change) -> None:
        if change.what == "session":
            self._sessions.add(change.id)
        elif change.what != "scope":
            self._all = True
        self._wake.set()

    def _listens(self, live: bool) -> None:
        self._live = live

    async def _work(self) -> None:
        while True:
            try:
                await self._refresh()
            except Exception as error:  # noqa: BLE001 - the edge of a task of its own: it tries again
                log.warning("contexts not refreshed", reason=f"{type(error).__name__}: {error}")
                await asyncio.sleep(AGAIN_SECONDS)
                self._all = True
                continue
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(TOGETHER_SECONDS)

    async def _refresh(self) -> None:
        everything, self._all = self._all, False
        sessions, self._sessions = self._sessions, set()
        if everything:
            await self._contexts.refresh_all()
        elif sessions:
            await self._contexts.sessions_changed(sessions)
