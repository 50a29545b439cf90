"""One running system for the tests of a file, and namespaces of their own for those that need one."""

from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import SecretStr

from eden_memory.settings import KafkaSettings, LocalSettings, MongoSettings, Settings
from tests.conftest import _drop_databases, _drop_kafka  # pyright: ignore[reportPrivateUsage]
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, system
from tests.model_server.serving import Serving, serving
from tests.servers import Namespace, TestServers


@pytest.fixture(scope="module")
def shared_settings(servers: TestServers, tmp_path_factory: pytest.TempPathFactory) -> Generator[Settings]:
    """A namespace for the tests of one file."""
    mine = Namespace(f"t{uuid4().hex[:12]}")
    yield namespaced(servers, mine, tmp_path_factory.mktemp("shared"))
    _drop_databases(servers, mine)
    _drop_kafka(servers, mine)


def namespaced(servers: TestServers, mine: Namespace, folder: Path) -> Settings:
    return Settings(
        mongodb=MongoSettings(uri=SecretStr(servers.mongodb_uri), database=mine.database),  # pyright: ignore[reportCallIssue]
        kafka=KafkaSettings(  # pyright: ignore[reportCallIssue]
            bootstrap=servers.kafka_bootstrap,
            topic_prefix=mine.topic_prefix,
            group_prefix=mine.group_prefix,
        ),
        local=LocalSettings(folder=folder / "eden"),  # pyright: ignore[reportCallIssue]
    )


@pytest.fixture(scope="module")
async def shared_models() -> AsyncGenerator[Serving]:
    async with serving(obey) as models:
        yield models


@pytest.fixture(scope="module")
async def shared(shared_settings: Settings, shared_models: Serving) -> AsyncGenerator[System]:
    """Everything running, for all tests of a file; each uses users and sessions of its own."""
    async with system(fast(shared_settings, shared_models), shared_models) as running:
        yield running


@pytest.fixture
async def models(shared_models: Serving) -> AsyncGenerator[Serving]:
    """The model server as a test may change it; afterwards it is as before."""
    before = shared_models.config
    yield shared_models
    shared_models.config = before
