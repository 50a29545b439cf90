"""The installation in which a transcript is played, and the page that is written from it."""

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from uuid import uuid4

from eden_memory.local.servers import Endpoints
from eden_memory.settings import Settings
from tests.conftest import _drop_databases, _drop_kafka, settings_on  # pyright: ignore[reportPrivateUsage]
from tests.model_server.serving import model_server_process
from tests.servers import Namespace, TestServers, running_servers
from tests.transcripts.playing import Shell, formed, of_sessions

PAGES = Path(__file__).parents[2] / "docs" / "transcripts"
MODEL = "tests.transcripts.boatyard_model:answer"
SECONDS_OF_A_CALL = 1.5


@asynccontextmanager
async def stage(
    found: Endpoints, name: str, folder: Path, sessions: Collection[str] = (), seconds: float = 0.0
) -> AsyncGenerator[Shell]:
    """The demo conversation (or some sessions of it) is formed; `eden run` does not run."""
    with model_server_process(MODEL, base_seconds=seconds, dimensions=1_536) as models:
        async with formed(found, name, of_sessions(sessions), models, folder) as shell:
            yield shell


@contextmanager
def on_servers(servers: TestServers, folder: Path) -> Generator[Settings]:
    """Settings for a system in this process; what it made is removed after the block."""
    mine = Namespace(f"run{uuid4().hex[:8]}")
    try:
        yield settings_on(servers, mine, folder / "eden")
    finally:
        _drop_databases(servers, mine)
        _drop_kafka(servers, mine)


def write(page: Path, play: Callable[[Shell], Awaitable[str]]) -> None:
    """Play it, and write the page.

    On private servers, unless EDEN_MONGODB_URI and EDEN_KAFKA_BOOTSTRAP name others.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        text = asyncio.run(_played(servers, Path(folder), play))
    page.write_text(re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE))


async def _played(servers: TestServers, folder: Path, play: Callable[[Shell], Awaitable[str]]) -> str:
    found = Endpoints(servers.mongodb_uri, servers.kafka_bootstrap)
    mine = Namespace(f"transcript{uuid4().hex[:8]}")
    try:
        async with stage(found, mine.name, folder, seconds=SECONDS_OF_A_CALL) as shell:
            return await play(shell)
    finally:
        _drop_databases(servers, mine)
        _drop_kafka(servers, mine)
