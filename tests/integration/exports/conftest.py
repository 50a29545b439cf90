"""Two installations on the same servers, and model servers, as tests of whole systems have them."""

from collections.abc import Generator
from pathlib import Path
from uuid import uuid4

import pytest

from eden_memory.settings import Settings
from tests.conftest import _drop_databases, _drop_kafka  # pyright: ignore[reportPrivateUsage]
from tests.integration.system.conftest import namespaced
from tests.servers import Namespace, TestServers


@pytest.fixture
def elsewhere(servers: TestServers, tmp_path: Path) -> Generator[Settings]:
    """Settings of another installation: a database, topics and groups of its own."""
    mine = Namespace(f"t{uuid4().hex[:12]}")
    yield namespaced(servers, mine, tmp_path / "elsewhere")
    _drop_databases(servers, mine)
    _drop_kafka(servers, mine)
