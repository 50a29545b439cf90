"""A message that goes while a context with it is built does not stay in that context."""

from collections.abc import AsyncGenerator, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.context.ready_contexts import Built, Ready
from eden_memory.memory.memory_views import RecentMessage
from eden_memory.processors.context_cache import ContextCacheStage
from eden_memory.settings import MemorySettings
from tests.unit.context.parts import NOON

READY = Ready(Asker("s.a", "s.two", "s.ann"), NOON + timedelta(hours=1))


class Stored:
    """The stored contexts; the message is forgotten while the first one is on its way."""

    def __init__(self) -> None:
        self.built: dict[str, Built] = {}
        self.contexts: ContextCacheStage | None = None
        self.messages = [RecentMessage("s.m", "s.one", "user", "the safe opens with 4711", NOON)]

    async def known(self, asked: Iterable[Asker]) -> dict[Asker, Ready]:
        return {}

    async def of_sessions(self, session_ids: Iterable[str], now: datetime) -> AsyncGenerator[Sequence[Ready]]:
        yield [READY]

    async def with_new_messages(
        self, tags: Iterable[str], now: datetime, written: Iterable[tuple[str, str]] = ()
    ) -> AsyncGenerator[Sequence[Ready]]:
        wanted = set(tags)
        yield [READY for context in self.built.values() if wanted.intersection(context.recent_from)]

    async def put(self, built: Sequence[Built]) -> Sequence[Ready]:
        if self.messages:
            self.messages = []
            assert self.contexts is not None
            await self.contexts.shown_changed(["message:s.m"])
        self.built |= {context.before.name: context for context in built}
        return ()

    async def remove(self, gone: Sequence[Ready]) -> None: ...


class Readers:
    """The stores that contexts are built from."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored

    async def look_up(self, asked: Sequence[Asker]) -> dict[Asker, VisibleMemory]:
        return dict.fromkeys(asked, VisibleMemory((), ()))

    async def users(self, asked: Sequence[Asker]) -> dict[Asker, frozenset[str] | None]:
        return dict.fromkeys(asked, None)

    async def of_each(self, views: dict[Asker, VisibleMemory]) -> dict[Asker, Sequence[RecentMessage]]:
        return dict.fromkeys(views, tuple(self._stored.messages))


async def test_a_message_that_is_forgotten_between_its_reading_and_the_write_is_not_shown() -> None:
    stored: Any = Stored()
    readers: Any = Readers(stored)
    stage = ContextCacheStage(
        readers, stored, MemorySettings(), timedelta(hours=1), lambda: NOON, recent=readers
    )
    stored.contexts = stage
    await stage.sessions_changed(["s.two"])
    (context,) = stored.built.values()
    assert "4711" not in context.xml
    assert context.recent_from == ()
