"""context-cache on a real MongoDB: what lies ready in `memory_contexts` is what the stored memory says."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from eden_memory.access.visible import Asker
from eden_memory.assembly.mongo_setup import set_up
from eden_memory.context.context_refreshing import ContextKeeping
from eden_memory.context.ready_context_store import MongoContexts, MongoContextSource
from eden_memory.context.ready_contexts import Ready
from eden_memory.directory.stream_store import MongoStreams
from eden_memory.processors import context_cache
from eden_memory.processors.context_cache import AT_ONCE, TOGETHER, ContextCacheStage
from eden_memory.schemas.documents import Context
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import ScopeChanged
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import MemorySettings
from eden_memory.stages.stage import Delivery
from tests.integration.context.harness import Kit, now

pytestmark = pytest.mark.servers
AGENT, ADA = Scope.of_agent("s.a"), Scope.of_user("s.a", "s.ada")
ONE = Scope.of_session("s.a", "s.one", ("s.ada",))
HOUR = timedelta(hours=1)


def changed(scope: Scope, time: datetime | None = None) -> Delivery:
    event = ScopeChanged(
        scope=scope,
        revision=1,
        changed=("blob",),
        applied=0,
        active_facts=0,
        buffered=0,
        blob_version=0,
        committed_at=now(),
    )
    envelope = Envelope("e", event.NAME, 1, "test", time or now(), event.subject(), event.ordering_key())
    return Delivery(envelope, event, "memory.changes", event.key())


class Stage:
    """The handler, and its collection."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        prefix = kit.settings.names
        streams = MongoStreams(kit.database, prefix)
        self.source = MongoContextSource(kit.database, kit.database, kit.settings, streams)
        self.contexts = MongoContexts(kit.database, prefix)
        self.cache = ContextCacheStage(
            self.source, self.contexts, MemorySettings(), HOUR, now, 0.05, 0.0, 0.0
        )

    async def says(self, session: str, user: str | None, role: str = "user") -> Any:
        """A chat message, as the application writes it; its id."""
        message = {"session_id": session, "user_id": user, "role": role, "content": "Hello"}
        return (await self.kit.database["messages"].insert_one(message)).inserted_id

    async def found(self, session: str, user: str, *present: str) -> str | None:
        """The ready text by the documented query, for those whom the application knows to be present."""
        everybody = [f"s.{one}" for one in (user, *present)]
        query = {"session_id": f"s.{session}", "user_id": f"s.{user}", "users": {"$all": everybody}}
        row = await self.kit.database["memory_contexts"].find_one(query)
        return None if row is None else row["xml"]

    async def xml(self, session: str, user: str) -> str | None:
        row = await self.kit.database["memory_contexts"].find_one({"_id": f"s.{session}/s.{user}"})
        return None if row is None else row["xml"]

    async def rows(self) -> list[dict[str, Any]]:
        return await self.kit.database["memory_contexts"].find(sort=[("_id", 1)]).to_list()

    async def until(self, session: str, user: str, text: str | None) -> None:
        async with asyncio.timeout(60):
            while True:
                xml = await self.xml(session, user)
                if (xml is None) if text is None else (xml is not None and text in xml):
                    return
                await asyncio.sleep(0.01)


@pytest.fixture
async def stage(kit: Kit) -> AsyncGenerator[Stage]:
    stage = Stage(kit)
    await set_up(kit.database, kit.settings.names)
    yield stage
    await stage.cache.close()


async def opened(stage: Stage, *sessions: str) -> None:
    """Sessions of Ada's, active."""
    for session in sessions:
        await stage.kit.session(session, ["ada"])
    await stage.cache([changed(Scope.of_session("s.a", f"s.{one}", ("s.ada",))) for one in sessions])


async def test_a_sessions_own_change_makes_the_contexts_of_its_audience(stage: Stage) -> None:
    await stage.kit.session("one", ["ada", "bob"])
    both = Scope.of_session("s.a", "s.one", ("s.ada", "s.bob"))
    await stage.kit.put(both, blob="plans a trip")
    await stage.kit.put(ADA, blob="private")
    assert await stage.cache([changed(both)]) == ()
    for row in await stage.rows():
        context = Context.model_validate(row, strict=False)
        assert "plans a trip" in context.xml
        assert "private" not in context.xml
        assert context.scopes == {both.key: 1}
        assert set(context.scope_keys) == {AGENT.key, both.key}
    assert [row["user_id"] for row in await stage.rows()] == ["s.ada", "s.bob"]


async def test_a_change_of_any_scope_reaches_the_active_sessions_that_see_it(stage: Stage) -> None:
    await opened(stage, "one", "two")
    await stage.kit.put(ADA, blob="Prefers trains.")
    await stage.cache([changed(ADA)])
    await stage.kit.put(AGENT, blob="Helps with travel.")
    await stage.cache([changed(AGENT)])
    for session in ("one", "two"):
        xml = await stage.xml(session, "ada")
        assert xml is not None
        assert "trains" in xml
        assert "travel" in xml


async def test_what_an_agents_document_keeps_unshown_is_in_no_ready_context(stage: Stage) -> None:
    await stage.kit.database["agents"].update_one(
        {"_id": "a"}, {"$set": {"memory_reflections": "form"}}, upsert=True
    )
    await stage.kit.put(ADA, blob="Prefers trains.")
    await opened(stage, "one")
    assert "trains" not in (await stage.xml("one", "ada") or "")
    await stage.kit.database["agents"].update_one({"_id": "a"}, {"$set": {"memory_reflections": "on"}})
    await stage.cache([changed(ADA)])
    assert "trains" in (await stage.xml("one", "ada") or "")


async def test_an_old_session_is_not_made_active_by_a_replay(stage: Stage) -> None:
    await stage.kit.session("one", ["ada"])
    await stage.cache([changed(ONE, now() - 2 * HOUR)])
    assert await stage.rows() == []


async def test_what_is_no_longer_active_is_left_as_it_is(stage: Stage) -> None:
    await opened(stage, "one")
    past = {"$set": {"active_until": now() - HOUR}}
    await stage.kit.database["memory_contexts"].update_one({}, past)
    await stage.kit.put(ADA, blob="Prefers trains.")
    await stage.cache([changed(ADA)])
    assert all("trains" not in row["xml"] for row in await stage.rows())


async def test_the_server_removes_what_is_no_longer_active(stage: Stage) -> None:
    indexes = await stage.kit.database["memory_contexts"].index_information()
    assert [one["key"] for one in indexes.values() if one.get("expireAfterSeconds") == 0] == [
        [("active_until", 1)]
    ]


async def test_a_scope_of_many_sessions_is_built_in_rounds(stage: Stage) -> None:
    names = [f"n{number:03}" for number in range(AT_ONCE + 20)]
    for name in names:
        await stage.kit.session(name, ["ada"])
    await stage.cache([changed(Scope.of_session("s.a", f"s.{one}", ("s.ada",))) for one in names])
    assert len(await stage.rows()) == len(names)
    await stage.kit.put(AGENT, blob="for everyone")
    await stage.cache([changed(AGENT)])
    assert not any("for everyone" in row["xml"] for row in await stage.rows())
    await stage.until(names[-1], "ada", "for everyone")
    await stage.cache.close()
    assert all("for everyone" in row["xml"] for row in await stage.rows())


class Counting:
    """The source, and for how many contexts it was asked at once."""

    def __init__(self, source: MongoContextSource) -> None:
        self._source = source
        self.asked: list[int] = []

    async def look_up(self, asked: Sequence[Asker]) -> Any:
        self.asked.append(len(asked))
        return await self._source.look_up(asked)

    async def users(self, asked: Sequence[Asker]) -> Any:
        return await self._source.users(asked)

    async def scopes_of_session(self, session_id: str) -> set[str]:
        return await self._source.scopes_of_session(session_id)


async def test_a_session_of_many_users_is_built_in_rounds_a_part_at_a_time(stage: Stage) -> None:
    users = [f"u{number:04}" for number in range(3 * TOGETHER + 20)]
    many = Scope.of_session("s.a", "s.one", tuple(f"s.{one}" for one in users))
    await stage.kit.session("one", users)
    await stage.kit.put(many, blob="plans a trip")
    source = Counting(stage.source)
    cache = ContextCacheStage(source, stage.contexts, MemorySettings(), HOUR, now, 3_600.0, 0.0, 0.0)
    await cache([changed(many)])
    assert source.asked == [], "nothing is built in the unit"
    rows = await stage.rows()
    assert [row["user_id"] for row in rows] == [f"s.{one}" for one in users]
    assert {row["xml"] for row in rows} == {""}, "what is to be built survives a crash"
    await cache.close()
    assert all("plans a trip" in row["xml"] for row in await stage.rows())
    assert (max(source.asked), sum(source.asked)) == (TOGETHER, len(users))
    later = now() + timedelta(minutes=30)
    await stage.kit.put(many, blob="plans two trips")
    await cache([changed(many, later)])
    await stage.cache.refresh_all()  # another process, after this one was killed
    rows = await stage.rows()
    assert all("plans two trips" in row["xml"] for row in rows)
    await cache.close()
    assert min(row["active_until"] for row in await stage.rows()) >= later + HOUR - timedelta(milliseconds=1)
    assert sum(source.asked) == 2 * len(users), "each once"


async def test_a_session_of_too_many_users_has_no_ready_contexts_and_costs_its_unit_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_cache, "MOST_READY_USERS", 20)
    users = [f"u{number:02}" for number in range(20)]
    crowd = Scope.of_session("s.a", "s.one", tuple(f"s.{one}" for one in users))
    source = Counting(stage.source)
    cache = ContextCacheStage(source, stage.contexts, MemorySettings(), HOUR, now, 3_600.0, 0.0, 0.0)
    await stage.kit.session("one", users)
    await stage.kit.put(crowd, blob="plans a trip")
    await cache([changed(crowd)])
    assert len(await stage.rows()) == len(users)
    assert sum(source.asked) == len(users)
    await stage.kit.session("one", [*users, "late"])
    larger = Scope.of_session("s.a", "s.one", tuple(f"s.{one}" for one in (*users, "late")), 2)
    await stage.kit.put(larger, blob="plans a party")
    await cache([changed(larger)])
    assert sum(source.asked) == len(users), "none is built in the unit"
    await cache.close()
    assert await stage.rows() == [], "those of the smaller session hold no more"
    await cache([changed(larger)])
    await cache.close()
    assert await stage.rows() == []
    assert sum(source.asked) == 2 * len(users)


async def test_a_scope_of_many_sessions_hides_none_of_another_asked_about_with_it(stage: Stage) -> None:
    await stage.kit.put(ONE, blob="of one")
    for name in ("one", "two", "three"):
        await opened(stage, name)
    keys, asked = [AGENT.key, ONE.key, "user:s.a:s.nobody"], stage.contexts.concerned
    for most in (2, 9):
        found = await asked(keys, now(), most)
        assert {key: len(ready) for key, ready in found.items()} == dict(
            zip(keys, (min(most, 3), 1, 0), strict=True)
        )
        assert [one.asked.session_id for one in found[ONE.key]] == ["s.one"]


async def test_what_was_put_off_is_built_after_a_restart(stage: Stage) -> None:
    await opened(stage, "one")
    await stage.kit.put(AGENT, blob="while nobody ran")
    await Stage(stage.kit).cache.refresh_all()
    assert "while nobody ran" in (await stage.xml("one", "ada") or "")


async def test_the_context_of_one_who_has_left_is_removed(stage: Stage) -> None:
    both = Scope.of_session("s.a", "s.one", ("s.ada", "s.bob"))
    await stage.kit.session("one", ["ada", "bob"])
    await stage.cache([changed(both)])
    await stage.kit.session("one", ["ada"])
    await stage.cache([changed(AGENT)])
    assert [row["user_id"] for row in await stage.rows()] == ["s.ada"]


async def test_a_tombstone_of_a_scope_builds_what_it_was_in(stage: Stage) -> None:
    await stage.kit.put(ADA, blob="Prefers trains.")
    await opened(stage, "one")
    await stage.kit.database["memory_snapshots"].delete_one({"_id": ADA.key})
    tombstone = changed(ADA)
    await stage.cache([Delivery(tombstone.envelope, None, tombstone.topic, ADA.key)])
    assert await stage.xml("one", "ada") == ""


class Late:
    """A source that is slow at handing over what it has read: others build meanwhile."""

    def __init__(self, source: MongoContextSource, dice: random.Random) -> None:
        self._source, self._dice = source, dice

    async def look_up(self, asked: Sequence[Asker]) -> Any:
        views = await self._source.look_up(asked)
        for _ in range(self._dice.randrange(4)):
            await asyncio.sleep(0)
        await asyncio.sleep(self._dice.random() / 100)
        return views

    async def users(self, asked: Sequence[Asker]) -> Any:
        return await self._source.users(asked)

    async def scopes_of_session(self, session_id: str) -> set[str]:
        return await self._source.scopes_of_session(session_id)


async def test_builders_that_overlap_never_leave_an_older_state_behind(stage: Stage) -> None:
    dice = random.Random(5)
    await opened(stage, "one")
    caches = [
        ContextCacheStage(Late(stage.source, dice), stage.contexts, MemorySettings(), HOUR, now)
        for _ in range(3)
    ]

    async def writer(scope: Scope, cache: ContextCacheStage) -> None:
        for number in range(15):
            await stage.kit.put(scope, blob=f"{scope.kind} {number};")
            await cache([changed(scope)])

    await asyncio.gather(*(writer(*one) for one in zip((AGENT, ADA, ONE), caches, strict=True)))
    xml = await stage.xml("one", "ada") or ""
    assert [kind for kind in ("agent", "user", "session") if f"{kind} 14;" in xml] == [
        "agent",
        "user",
        "session",
    ]


async def test_of_two_who_build_the_same_one_stores_it_and_the_other_is_told(stage: Stage) -> None:
    await opened(stage, "one")
    (known,) = (await stage.contexts.known([Asker("s.a", "s.one", "s.ada")])).values()
    built = stage.cache._built  # pyright: ignore[reportPrivateUsage]
    views = await stage.source.look_up([known.asked])
    first, second = (built(known, views[known.asked], now() + HOUR) for _ in range(2))
    assert await stage.contexts.put([first]) == []
    assert await stage.contexts.put([replace(second, revisions={AGENT.key: 9})]) == [known]
    new = Ready(Asker("s.a", "s.two", "s.ada"), now() + HOUR)
    anew = replace(second, before=new)
    assert await stage.contexts.put([anew]) == []
    assert await stage.contexts.put([replace(anew, revisions={AGENT.key: 9})]) == [new]


@asynccontextmanager
async def keeping(stage: Stage) -> AsyncGenerator[ContextKeeping]:
    kit = stage.kit
    keeper = ContextKeeping(stage.cache, kit.client, kit.settings)
    running = asyncio.create_task(keeper.run())
    async with asyncio.timeout(60):
        while not keeper.state().ready:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    try:
        yield keeper
    finally:
        keeper.stop()
        await running


async def test_who_joins_or_leaves_changes_the_ready_contexts_without_an_event(stage: Stage) -> None:
    await stage.kit.put(ADA, blob="Prefers trains.")
    await stage.kit.put(AGENT, blob="Helps.")
    await opened(stage, "one")
    assert "trains" in (await stage.xml("one", "ada") or "")
    async with keeping(stage):
        await stage.kit.session("one", ["ada", "bob"])
        async with asyncio.timeout(60):
            while "trains" in (await stage.xml("one", "ada") or ""):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await stage.kit.session("one", ["bob"])
        await stage.until("one", "ada", None)
