"""One watched system for all tests of a file; a namespace of its own for each of the others."""

from collections.abc import AsyncGenerator
from uuid import uuid4

import pytest

from tests.conftest import _drop_databases, _drop_kafka  # pyright: ignore[reportPrivateUsage]
from tests.dashboards.live import Live, live
from tests.integration.system.conftest import namespaced
from tests.servers import Namespace, TestServers


@pytest.fixture(scope="module")
async def watched(servers: TestServers, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Live]:
    """A system that has had its day and is quiet again."""
    mine = Namespace(f"t{uuid4().hex[:12]}")
    folder = tmp_path_factory.mktemp("watched")
    async with live(namespaced(servers, mine, folder), folder) as running:
        await running.day()
        await running.quiet()
        yield running
    _drop_databases(servers, mine)
    _drop_kafka(servers, mine)
