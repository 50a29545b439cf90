"""Whoever leaves or breaks, nothing hangs, and what was said is stored."""

import asyncio
from typing import Any

import pytest
from openai import APIError, InternalServerError
from pydantic import SecretStr

from eden_memory.api.gateway import exchange
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of, replies, says, turns
from tests.integration.system.running_system import until
from tests.model_server.chat_upstream import ChatUpstream, Reply

pytestmark = pytest.mark.servers


async def _streamed(client: Any, session: str, user: str) -> Any:
    fields = {"memory_id": session, "user": user}
    return await client.chat.completions.create(
        model="m", messages=turns("Tell"), stream=True, extra_body=fields
    )


async def test_a_client_that_leaves_stops_the_provider_and_what_was_said_is_stored(
    chats: Chats, session: str, user: str
) -> None:
    chats.upstream.reply = says("Once", " upon", gate=asyncio.Event())
    async with chats.client() as client:
        stream = await _streamed(client, session, user)
        assert (await anext(stream)).choices[0].delta.content == "Once"
        await stream.close()
        await until(lambda: chats.upstream.left == 1, "the provider is left")
    await until(lambda: _stored(chats, session, 2), "both turns stored")
    assert await chats.stored(session) == [("user", "Tell"), ("assistant", "Once")]


async def test_a_client_that_leaves_before_the_answer_stops_the_provider_and_its_turn_is_stored(
    chats: Chats, session: str, user: str
) -> None:
    chats.upstream.reply = says("Once", gate=asyncio.Event())
    asked = asyncio.create_task(chats.say("Tell", memory_id=session, user=user))
    await until(lambda: len(chats.upstream.came) == 1, "the provider is asked")
    asked.cancel()
    await until(lambda: chats.upstream.left == 1, "the provider is left")
    await until(lambda: _stored(chats, session, 1), "its turn is stored")
    assert await chats.stored(session) == [("user", "Tell")]


async def test_a_provider_that_breaks_off_breaks_off_for_the_client_and_the_rest_is_stored(
    chats: Chats, session: str, user: str
) -> None:
    chats.upstream.reply = says("Once", " upon", " a", cut=True)
    async with chats.client() as client:
        stream = await _streamed(client, session, user)
        assert [(await anext(stream)).choices[0].delta.content for _ in range(2)] == ["Once", " upon"]
        with pytest.raises(APIError):
            await anext(stream)
    await until(lambda: _stored(chats, session, 2), "both turns stored")
    assert await chats.stored(session) == [("user", "Tell"), ("assistant", "Once upon")]


async def test_a_whole_answer_that_breaks_off_is_a_502(chats: Chats, session: str, user: str) -> None:
    chats.upstream.reply = says("Once", cut=True)
    with pytest.raises(InternalServerError) as error:
        await chats.say("Tell", memory_id=session, user=user)
    assert error.value.status_code == 502


async def test_a_provider_that_is_away_is_a_502_and_the_turn_is_stored(
    own_settings: Settings, provider: ChatUpstream, session: str, user: str
) -> None:
    async with chats_of(behind(own_settings, "http://127.0.0.1:1/v1"), provider) as chats:
        with pytest.raises(InternalServerError) as error:
            await chats.say("Tell", memory_id=session, user=user)
        assert (error.value.status_code, error.value.response.headers["content-type"]) == (
            502,
            "application/problem+json",
        )
        assert "cannot be reached" in str(error.value)
        assert await chats.stored(session) == [("user", "Tell")]
        async with chats.client() as client:
            with pytest.raises(InternalServerError):
                await client.models.list()


async def test_a_provider_that_says_nothing_is_a_504(
    own_settings: Settings, provider: ChatUpstream, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "SILENCE_SECONDS", 0.2)
    provider.reply = says("Once", gate=asyncio.Event())
    async with chats_of(behind(own_settings, provider.openai_url), provider) as chats:
        with pytest.raises(InternalServerError) as error:
            await chats.say("Tell", memory_id=session)
    assert error.value.status_code == 504


async def test_the_clients_own_retries_store_a_turn_once(chats: Chats, session: str, user: str) -> None:
    failing = Reply(response=(503, [(b"retry-after-ms", b"1")], b"{}"))
    chats.upstream.reply = replies(failing, failing, Reply())
    async with chats.client(max_retries=2) as client:
        fields = {"memory_id": session, "user": user}
        await client.chat.completions.create(model="m", messages=turns("Tell"), extra_body=fields)
    assert len(chats.upstream.came) == 3
    assert await chats.stored(session) == [("user", "Tell"), ("assistant", "Hello there.")]


async def test_a_chat_goes_on_without_memory_while_mongodb_is_away(
    chats: Chats, session: str, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = SecretStr("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=60000")
    settings = behind(chats.settings, chats.upstream.openai_url, memory_seconds=0.1)
    settings = settings.model_copy(
        update={
            "mongodb": settings.mongodb.model_copy(update={"uri": away}),
            "run": settings.run.model_copy(update={"drain_seconds": 0.1}),
        }
    )
    monkeypatch.setattr("eden_memory.api.gateway.exchange.PAUSES", ())
    async with chats_of(settings, chats.upstream) as without:
        for named in ({"user": user}, {}):
            said = await without.say("Tell", memory_id=session, **named)
            assert said.choices[0].message.content == "Hello there."
            assert [one["role"] for one in chats.came.messages] == ["user"]


async def test_where_no_provider_is_set_the_gateway_says_so(
    own_settings: Settings, provider: ChatUpstream
) -> None:
    settings = own_settings.model_copy(
        update={"gateway": own_settings.gateway.model_copy(update={"upstream": None})}
    )
    async with chats_of(settings, provider) as chats:
        with pytest.raises(InternalServerError, match="EDEN_GATEWAY_UPSTREAM"):
            await chats.say("Hi")


async def _stored(chats: Chats, session: str, number: int) -> bool:
    return len(await chats.stored(session)) == number
