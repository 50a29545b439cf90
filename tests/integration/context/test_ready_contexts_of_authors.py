"""Ready contexts of sessions that no document describes: who writes is present, whatever runs or lags.

Neither tailer nor formation-trigger runs here: only what the application has written says who is in a session.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from eden_memory.access.visible import UNNAMED, Asker
from eden_memory.assembly.mongo_setup import set_up
from eden_memory.processors.context_cache import ContextCacheStage
from eden_memory.settings import MemorySettings
from tests.integration.context.harness import Kit, now
from tests.integration.context.test_ready_contexts import ADA, AGENT, HOUR, ONE, Stage, changed, keeping

pytestmark = pytest.mark.servers


@pytest.fixture
async def stage(plain: Kit) -> AsyncGenerator[Stage]:
    """Ada's memory stands in the ready contexts of her sessions."""
    stage = Stage(plain)
    await set_up(plain.database, plain.settings.names)
    await plain.database.create_collection("messages")
    await plain.put(ADA, blob="Prefers trains.")
    for session in ("one", "two"):
        await stage.says(session, "ada")
        await stage.cache([changed(ONE if session == "one" else _of(session))])
    yield stage
    await stage.cache.close()


def _of(session: str) -> Any:
    return type(ONE).of_session("s.a", f"s.{session}", ("s.ada",))


async def test_a_new_authors_first_message_withdraws_the_context(stage: Stage) -> None:
    assert "trains" in (await stage.found("one", "ada") or "")
    assert await stage.found("one", "ada", "bob") is None
    async with keeping(stage):
        await stage.says("one", "bob")
        async with asyncio.timeout(60):
            while await stage.found("one", "ada", "bob") is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert "trains" not in (await stage.xml("one", "ada") or "")
    assert "trains" in (await stage.found("two", "ada") or "")


async def test_a_message_of_a_user_whom_nobody_names_withdraws_the_context(stage: Stage) -> None:
    assert "trains" in (await stage.found("one", "ada") or "")
    async with keeping(stage):
        await stage.says("one", None)
        async with asyncio.timeout(60):
            while "trains" in (await stage.xml("one", "ada") or ""):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with asyncio.timeout(60):
            while await stage.found("one", "ada") is None:  # noqa: ASYNC110 - it is built anew, for her
                await asyncio.sleep(0.01)
        assert "trains" not in (await stage.xml("one", "ada") or "")
    assert (await stage.contexts.concerning([("s.one", UNNAMED)], now())).lacking == []
    assert "trains" in (await stage.found("two", "ada") or "")


async def test_the_users_own_messages_and_the_assistants_leave_the_context_as_it_is(stage: Stage) -> None:
    async with keeping(stage):
        for author in ("ada", None, "ada"):
            await stage.says("one", author, "user" if author else "assistant")
        await stage.says("two", "bob")  # behind them in the stream
        async with asyncio.timeout(60):
            while "trains" in (await stage.xml("two", "ada") or ""):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert "trains" in (await stage.found("one", "ada") or "")
    assert (await stage.contexts.concerning([("s.one", "s.ada")], now())).lacking == []


async def test_an_edited_author_and_a_moved_message_withdraw_the_context(stage: Stage) -> None:
    messages = stage.kit.database["messages"]
    mine, other = await stage.says("one", "ada"), await stage.says("three", "bob")
    async with keeping(stage):
        for message, change, session in (
            (mine, {"user_id": "bob"}, "one"),
            (other, {"session_id": "two"}, "two"),
        ):
            assert "trains" in (await stage.xml(session, "ada") or "")
            await messages.update_one({"_id": message}, {"$set": change})
            async with asyncio.timeout(60):
                while "trains" in (await stage.xml(session, "ada") or ""):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


async def test_what_was_written_while_nobody_listened_is_seen_when_listening_begins(stage: Stage) -> None:
    await stage.says("one", "bob")
    async with keeping(stage), asyncio.timeout(60):
        while "trains" in (await stage.xml("one", "ada") or ""):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Overtaken:
    """A source beside whose reading Bob writes his first message."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._written = stage, False

    async def look_up(self, asked: Sequence[Asker]) -> Any:
        views = await self._stage.source.look_up(asked)
        if not self._written:
            self._written = True
            await self._stage.says("one", "bob")
        return views

    async def users(self, asked: Sequence[Asker]) -> Any:
        return await self._stage.source.users(asked)

    async def scopes_of_session(self, session_id: str) -> set[str]:
        return await self._stage.source.scopes_of_session(session_id)


async def test_a_context_that_is_built_beside_a_new_authors_message_is_built_again(stage: Stage) -> None:
    cache = ContextCacheStage(Overtaken(stage), stage.contexts, MemorySettings(), HOUR, now, 0.05, 0.0, 0.0)
    await cache([changed(AGENT)])
    assert "trains" not in (await stage.xml("one", "ada") or "")


async def test_authors_mean_nothing_where_a_document_lists_the_users(kit: Kit) -> None:
    stage = Stage(kit)
    await set_up(kit.database, kit.settings.names)
    await kit.put(ADA, blob="Prefers trains.")
    await kit.session("one", ["ada"])
    await stage.cache([changed(ONE)])
    before = await _built_at(stage, "one")
    assert not await stage.cache.withdraw([("s.one", "s.bob")])
    assert "trains" in (await stage.found("one", "ada") or "")
    assert await _built_at(stage, "one") == before


async def _built_at(stage: Stage, session: str) -> Any:
    row = await stage.kit.database["memory_contexts"].find_one({"_id": f"s.{session}/s.ada"})
    assert row is not None
    return row["built_at"]


async def test_new_messages_concern_their_authors_other_contexts_and_those_that_show_their_session(
    stage: Stage,
) -> None:
    await stage.kit.database[stage.kit.settings.names["contexts"]].update_one(
        {"session_id": "s.one"}, {"$set": {"recent_from": ["session:s.two"]}}
    )

    async def found(tags: Sequence[str], *written: tuple[str, str]) -> list[str | None]:
        pages = stage.contexts.with_new_messages(tags, now(), written)
        return sorted([ready.asked.session_id async for page in pages for ready in page], key=str)

    assert await found(["session:s.two"]) == ["s.one"]
    assert await found([], ("s.one", "s.ada")) == ["s.two"]
    assert await found(["session:s.two"], ("s.one", "s.ada")) == ["s.one", "s.two"]
    assert await found(["session:s.two"], ("s.two", "s.ada")) == ["s.one"], "once, though both concern it"
    assert await found([]) == []
