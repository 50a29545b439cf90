"""Requests that the application makes while the tailer reads its collection in form all that was written before."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from eden_memory.mongo.change_stream import ChangeStream
from eden_memory.settings import Settings
from eden_memory.source.inbox_store import MongoInbox
from eden_memory.source.leader import FencedPublisher, PublishFailed
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, stages, system, until
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
FAST_CLOCK = timedelta(minutes=1)
"""How far the application's clock is ahead: then `created_at` does not tell what was written before a request."""


@dataclass
class Application:
    """Writes a session and requests its memory at once, as often as it is told to."""

    running: System
    sessions: list[str] = field(default_factory=list[str])

    async def writes(self) -> None:
        session = await self.running.session("ana")
        ahead = datetime.now(UTC) + FAST_CLOCK
        await self.running.write(session, "ana", f"fact user: Ana was in {session}", at=ahead)
        await self.running.form(session)
        self.sessions.append(session)

    def beside(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """The method of the tailer's, before and after which the application writes."""

        async def slow(*given: Any) -> Any:
            await self.writes()
            answer = await method(*given)
            await self.writes()
            return answer

        return slow

    def beside_batches(
        self, method: Callable[..., AsyncGenerator[Any]]
    ) -> Callable[..., AsyncGenerator[Any]]:
        """The method of the tailer's, before and after each of whose batches the application writes."""

        async def slow(*given: Any) -> AsyncGenerator[Any]:
            await self.writes()
            async for batch in method(*given):
                await self.writes()
                yield batch

        return slow

    async def remembered(self) -> None:
        """Until a fact of each session is stored."""

        async def stored() -> bool:
            return await self.running.facts("ana") == sorted(f"Ana was in {one}" for one in self.sessions)

        await until(stored, "every session is remembered")


async def test_what_is_written_and_requested_at_any_moment_of_the_reading_in_is_formed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serving(obey) as models,
        system(fast(settings, models), models, run=False) as running,
    ):
        application = Application(running)
        await application.writes()
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(ChangeStream, "now", application.beside(ChangeStream.now))
            meanwhile.setattr(MongoInbox, "waiting", application.beside_batches(MongoInbox.waiting))
            async with stages(running.settings):
                await until(lambda: _follows(running), "the collection is read in")
                await application.remembered()


async def test_what_a_killed_reading_in_has_requested_covers_what_only_the_next_one_reads(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first leader publishes the requests, and ends before its position says so."""
    async with (
        serving(obey) as models,
        system(fast(settings, models, tailer={"commit_seconds": 60.0}), models, run=False) as running,
    ):
        application = Application(running)
        await application.writes()
        waiting, confirmed = MongoInbox.waiting, FencedPublisher.confirmed
        asked: list[MongoInbox] = []
        failed: list[FencedPublisher] = []

        async def waiting_behind_a_session(inbox: MongoInbox, kind: str | None = None) -> AsyncGenerator[Any]:
            if not asked:
                await application.writes()
            asked.append(inbox)
            async for batch in waiting(inbox, kind):
                yield batch

        async def confirmed_unknown_to_the_leader(publisher: FencedPublisher) -> bool:
            anything = await confirmed(publisher)
            if asked and not failed:
                failed.append(publisher)
                raise PublishFailed("the broker does not answer")
            return anything

        monkeypatch.setattr(MongoInbox, "waiting", waiting_behind_a_session)
        monkeypatch.setattr(FencedPublisher, "confirmed", confirmed_unknown_to_the_leader)
        async with stages(running.settings):
            await until(lambda: failed, "another leader begins from the saved position")
            await application.remembered()


async def _follows(running: System) -> bool:
    position = await running.memory("positions").find_one({})
    return position is not None and position.get("phase") == "stream"
