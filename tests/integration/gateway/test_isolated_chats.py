"""A `memory_id` without a user has memory of its own, which no other reads; all read that of `global`."""

from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

import pytest
from openai import BadRequestError, PermissionDeniedError

from eden_memory.api.gateway.chat_access import isolated_user
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of, running, says
from tests.integration.system.running_system import prepare, stages, until
from tests.model_server.chat_upstream import ChatUpstream, named

pytestmark = pytest.mark.servers
SECRET, SHARED = "Keeps gold under the floor.", "The office closes at noon on Fridays."
BORN, QUESTION = "My daughter Ines was born on 12 May 2019.", "When was my daughter Ines born?"


@pytest.fixture(scope="module")
async def isolating(own_settings: Settings, provider: ChatUpstream) -> AsyncGenerator[Chats]:
    async with chats_of(behind(own_settings, provider.openai_url, default_id="default"), provider) as chats:
        await chats.kit.put(Scope.of_agent("s.default"), blob=SHARED)
        yield chats


@pytest.fixture
def isolated(isolating: Chats) -> Chats:
    isolating.upstream.reply = named
    isolating.upstream.came.clear()
    return isolating


async def test_it_sees_its_own_memory_and_neither_anothers_nor_the_agents(
    isolated: Chats, session: str, user: str
) -> None:
    await isolated.remembers(isolated_user(session), SECRET)
    await isolated.say("Hi", memory_id=session)
    assert SECRET in isolated.came.raw.decode()
    assert SHARED not in isolated.came.raw.decode()
    for other in (f"other-{session}", f"s.{session}", f"{session} "):
        await isolated.say("Hi", memory_id=other)
        assert len(isolated.came.messages) == 1
    await isolated.say("Hi", memory_id=f"own-{session}", user=user)
    assert SHARED in isolated.came.raw.decode()
    assert SECRET not in isolated.came.raw.decode()


async def test_a_number_and_its_digits_are_two_memories(isolated: Chats) -> None:
    number = uuid4().int % 10**9
    await isolated.remembers(isolated_user(number), SECRET)
    await isolated.say("Hi", memory_id=str(number))
    assert SECRET not in isolated.came.raw.decode()
    await isolated.say("Hi", memory_id=number)
    assert SECRET in isolated.came.raw.decode()


async def test_all_read_what_is_global_and_it_reads_nobodys(isolated: Chats, session: str, user: str) -> None:
    await isolated.remembers(isolated_user("global"), "Prices are in euros.", "The yard is in Porto.")
    await isolated.remembers(isolated_user(session), SECRET, "The keel is of oak.")
    await isolated.say("Hi", memory_id=session)
    for text in ("Prices are in euros.", "The yard is in Porto.", SECRET, "The keel is of oak."):
        assert isolated.came.raw.decode().count(text) == 1
    await isolated.say("Hi", memory_id="global")
    assert "Prices are in euros." in isolated.came.raw.decode()
    assert SECRET not in isolated.came.raw.decode()
    key, _ = await isolated.keys.create(f"key-{uuid4().hex}", users=[f"s.{user}"])
    for asked in ({"memory_id": f"own-{session}", "user": user}, {"memory_id": f"own-{session}", "key": key}):
        await isolated.say("Hi", **asked)
        assert "euros" not in isolated.came.raw.decode(), "a user's chat reads only what the user may see"
    for asked in ({"user": user}, {"key": key}):
        with pytest.raises(BadRequestError, match="Name no user"):
            await isolated.say("Hi", memory_id="global", **asked)


async def test_a_chat_without_ids_is_of_the_id_that_the_settings_name(isolated: Chats, user: str) -> None:
    await isolated.remembers(isolated_user("default"), "Likes tables.")
    await isolated.say("Hi there")
    assert "Likes tables." in isolated.came.raw.decode()
    assert ("user", "Hi there") in await isolated.stored("default")
    await isolated.say("Hello", user=user)
    assert "Likes tables." not in isolated.came.raw.decode()
    key, _ = await isolated.keys.create(f"key-{uuid4().hex}", users=[f"s.{user}"])
    await isolated.say("Hello", key=key)
    assert "Likes tables." not in isolated.came.raw.decode()
    assert all(text != "Hello" for _, text in await isolated.stored("default"))


async def test_it_cannot_be_the_session_of_texts_that_are_for_all_users(isolated: Chats) -> None:
    with pytest.raises(BadRequestError, match="eden:added:"):
        await isolated.say("Hi", memory_id="eden:added:s.default")
    assert await isolated.rows("eden:added:s.default") == []
    assert isolated.upstream.came == []


async def test_its_turns_are_its_own_users(isolated: Chats, session: str) -> None:
    body: dict[str, Any] = {"memory_id": session}
    assert (await isolated.say("Hi", **body)).choices[0].message.content == "Hello there."
    authors = {row["role"]: row.get("user_id") for row in await isolated.rows(session)}
    assert authors["user"] == isolated_user(session)


async def test_a_user_who_is_named_or_is_the_keys_is_not_isolated(
    isolated: Chats, session: str, user: str
) -> None:
    await isolated.remembers(user, SECRET)
    key, _ = await isolated.keys.create(f"key-{uuid4().hex}", users=[f"s.{user}"])
    await isolated.say("Hi", key=key, memory_id=session)
    assert SECRET in isolated.came.raw.decode()
    with pytest.raises(PermissionDeniedError):
        await isolated.say("Hi", key=key, memory_id=f"b-{session}", user=isolated_user(session))
    several, _ = await isolated.keys.create(f"key-{uuid4().hex}", users=["s.x", "s.y"])
    with pytest.raises(PermissionDeniedError):
        await isolated.say("Hi", key=several, memory_id=f"c-{session}")


async def test_what_is_said_under_one_memory_id_is_formed_and_found_there_alone(
    settings: Settings, provider: ChatUpstream
) -> None:
    here = running(settings, provider.openai_url)
    here = here.model_copy(update={"memory": here.memory.model_copy(update={"sharing": "team"})})
    provider.reply = says("Noted.")
    await prepare(here)
    async with stages(here), chats_of(here, provider) as chats:
        await chats.say(BORN, memory_id="a")
        await chats.gateway.keeping.idle()
        service = chats.memory.agent()
        await service.on_session_end("a")

        async def formed() -> bool:
            return bool(await service.search_facts(QUESTION, session="a", user=isolated_user("a")))

        await until(formed, "the fact is found")
        said = await chats.say(QUESTION, memory_id="a")
        (hit,) = said.model_extra["memory_hits"]
        assert "2019" in hit["content"]
        assert (hit["role"], hit["created_at"]) == ("user", hit["said_at"])
        assert 0 < hit["relevance"] < 1
        for least, found in ((hit["relevance"] - 0.01, 1), (hit["relevance"] + 0.01, 0)):
            said = await chats.say(QUESTION, memory_id="a", memory_score_threshold=least)
            assert len(said.model_extra["memory_hits"]) == found
        other = await chats.say(QUESTION, memory_id="b")
        assert other.model_extra["memory_hits"] == []
        assert "2019" not in chats.came.raw.decode()
        await chats.say("Our office in Porto closes at noon on 4 May 2026.", memory_id="global")
        await chats.gateway.keeping.idle()
        await service.on_session_end("global")
        for name in ("a", "b"):

            async def told(name: str = name) -> bool:
                asked = await chats.say("When does our office in Porto close?", memory_id=name)
                hits = asked.model_extra["memory_hits"]
                return any("noon" in one["content"] and one["formed_at"] is not None for one in hits)

            await until(told, "the fact of `global` is found under every id")
