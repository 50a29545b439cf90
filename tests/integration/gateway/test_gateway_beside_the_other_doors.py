"""The gateway as `eden serve` has it: behind the same middleware as the other doors."""

import asyncio
from typing import Any

import pytest

from eden_memory.api.http.serving import create_app
from eden_memory.api.service import Memory
from eden_memory.settings import Settings
from tests.integration.gateway.gateway_kit import Chats, behind, says, turns
from tests.integration.system.running_system import until
from tests.model_server.chat_upstream import ChatUpstream, served

pytestmark = pytest.mark.servers


async def test_chats_stream_and_end_with_their_client_behind_the_middleware(
    own_settings: Settings, shared_chats: Chats, provider: ChatUpstream, session: str, user: str
) -> None:
    gate = asyncio.Event()
    provider.reply, provider.left = says("Once", " upon", " a", gate=gate), 0
    picture = "data:image/png;base64," + "A" * 2_000_000
    content = [{"type": "text", "text": "Tell"}, {"type": "image_url", "image_url": {"url": picture}}]
    messages: list[Any] = [{"role": "user", "content": content}]
    fields = {"memory_id": session, "user": user}
    async with (
        Memory(behind(own_settings, provider.openai_url)) as memory,
        served(create_app(memory), lifespan=True) as url,
        shared_chats.client(base_url=f"{url}/v1") as client,
    ):
        stream: Any = await client.chat.completions.create(
            model="m", messages=messages, stream=True, extra_body=fields
        )
        assert (await anext(stream)).memory_hits == []
        await stream.close()
        await until(lambda: _left(provider), "the provider is left")
        gate.set()
        whole = await client.chat.completions.create(model="m", messages=turns("Hi"), extra_body=fields)
        assert whole.choices[0].message.content == "Once upon a"
    assert await shared_chats.stored(session) == [
        ("user", "Tell"),
        ("assistant", "Once"),
        ("user", "Hi"),
        ("assistant", "Once upon a"),
    ]


async def _left(provider: ChatUpstream) -> bool:
    return provider.left == 1
