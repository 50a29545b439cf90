"""The installation whose pictures are taken."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from eden_memory.settings import Settings
from tests.conftest import _drop_databases, _drop_kafka, settings_on  # pyright: ignore[reportPrivateUsage]
from tests.servers import Namespace, TestServers


@contextmanager
def on_servers(servers: TestServers, folder: Path) -> Generator[Settings]:
    """Settings for a system in this process; what it made is removed after the block."""
    mine = Namespace(f"run{uuid4().hex[:8]}")
    try:
        yield settings_on(servers, mine, folder / "eden")
    finally:
        _drop_databases(servers, mine)
        _drop_kafka(servers, mine)
