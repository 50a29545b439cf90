"""Scopes that are decided at the same moment share their look-ups, and each finds its own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pymongo import AsyncMongoClient, monitoring

from eden_memory.formation.decided_store import MongoDecided
from eden_memory.formation.near_fact_store import MongoFactSearch
from eden_memory.schemas.events import FactChanged
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.formation.dedup.dedup_servers import Database, write
from tests.integration.formation.dedup.test_decided import decide
from tests.names import NAMES
from tests.unit.formation.dedup.dedup_kit import WordEmbedder, proposal

pytestmark = pytest.mark.servers
SCOPES = [Scope.of_user("s.agent", f"s.user-{number}") for number in range(8)]


class Finds(monitoring.CommandListener):
    """How many queries a client sends."""

    sent = 0

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        self.sent += event.command_name == "find"

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


async def test_scopes_of_the_same_moment_share_queries_and_each_finds_its_own(
    database: Database, settings: Settings
) -> None:
    made = [
        (await decide(database, proposal(f"p{number}", "the same text", scope=scope)))[0]
        for number, scope in enumerate(SCOPES)
    ]
    for number in range(0, len(SCOPES), 2):
        more = await decide(database, proposal(f"q{number}", "another", scope=SCOPES[number]))
        await write(database, [made[number], *more])
    finds = Finds()
    assert settings.mongodb.uri is not None
    client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
        settings.mongodb.uri.get_secret_value(), event_listeners=[finds], tz_aware=True
    )
    async with client:
        again = client[settings.mongodb.database]
        decided = MongoDecided(again, NAMES)
        search = MongoFactSearch(again, NAMES, WordEmbedder().model)

        async def together(ask: Callable[[Scope, FactChanged], Awaitable[Any]]) -> list[Any]:
            finds.sent = 0
            found = await asyncio.gather(*map(ask, SCOPES, made))
            assert finds.sent <= 3, "one on its way with the first, then all the others"
            return found

        marks = [await decided.applied(scope.key) for scope in SCOPES]
        assert await together(lambda scope, _: decided.applied(scope.key)) == marks
        assert all((mark > 0) is (number % 2 == 0) for number, mark in enumerate(marks))
        beyond = await together(lambda scope, _: decided.beyond(scope.key, 0))
        assert [one[0] for one in beyond] == made
        assert [len(one) for one in beyond] == [2, 1] * 4
        assert await together(lambda _, fact: decided.given({fact.fact_id: 0})) == [
            {one.fact_id: 1} for one in made
        ]
        same = await together(lambda scope, fact: search.with_hash(scope.key, [fact.hash]))
        assert [[fact.fact_id for fact in one] for one in same] == [
            [] if number % 2 else [one.fact_id] for number, one in enumerate(made)
        ]
        named = await together(lambda _, fact: search.facts([fact.fact_id]))
        assert [list(one) for one in named] == [
            [] if number % 2 else [one.fact_id] for number, one in enumerate(made)
        ]
        blobs = MongoDecided(again, NAMES)
        assert await together(lambda scope, _: blobs.decided([f"blob:{scope.key}@1"])) == [False] * 8
