"""One gateway for the tests of a file: sessions and users of their own keep them apart."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import SecretStr

from eden_memory.settings import LocalSettings, MongoSettings, Settings
from tests.conftest import _drop_databases  # pyright: ignore[reportPrivateUsage]
from tests.integration.gateway.gateway_kit import Chats, behind, chats_of
from tests.model_server.chat_upstream import ChatUpstream, chat_upstream, named
from tests.servers import Namespace, TestServers


@pytest.fixture(scope="module")
def own_settings(servers: TestServers, tmp_path_factory: pytest.TempPathFactory) -> Generator[Settings]:
    mine = Namespace(f"t{uuid4().hex[:12]}")
    folder: Path = tmp_path_factory.mktemp("gateway")
    yield Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=mine.database),  # pyright: ignore[reportCallIssue]
        local=LocalSettings(folder=folder / "eden"),  # pyright: ignore[reportCallIssue]
    )
    _drop_databases(servers, mine)


@pytest.fixture(scope="module")
async def provider() -> AsyncGenerator[ChatUpstream]:
    async with chat_upstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
async def shared_chats(own_settings: Settings, provider: ChatUpstream) -> AsyncGenerator[Chats]:
    async with chats_of(behind(own_settings, provider.openai_url), provider) as chats:
        yield chats


@pytest.fixture
async def chats(shared_chats: Chats) -> Chats:
    """The gateway with a provider that says hello."""
    shared_chats.upstream.reply = named
    shared_chats.upstream.came.clear()
    shared_chats.upstream.left = 0
    return shared_chats


@pytest.fixture
def session() -> str:
    return f"session-{uuid4().hex[:8]}"


@pytest.fixture
def user() -> str:
    return f"user-{uuid4().hex[:8]}"
