"""docs/tutorials: all commands of each page, run in one shell as a reader would, in an empty folder."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from eden_memory.settings import Settings
from tests.integration.mcp.written import BLOCK, ROOT

pytestmark = [pytest.mark.servers, pytest.mark.timeout(280)]
PAGES = {
    "application-developer": ("Gaivota", "<MemoryContext>", "Porto"),
    "operator": ("live namespace", "equal to live", "no dead letters"),
    "data-engineer": ("ADD", "My boat is called Gaivota", "equal to live"),
}


@pytest.mark.parametrize("name", PAGES)
async def test_a_tutorial_runs_as_it_is_written(name: str, settings: Settings, tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorials" / f"{name}.md").read_text()
    script = "\n".join(["set -e", *(text for language, text in BLOCK.findall(page) if language == "sh")])
    (tmp_path / "empty").mkdir()
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script,
        cwd=tmp_path / "empty",
        env=_environment(settings, tmp_path),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()[-4_000:]
    assert [text for text in PAGES[name] if text not in said.decode()] == [], said.decode()[-4_000:]


def _environment(settings: Settings, folder: Path) -> dict[str, str]:
    """A namespace of its own on the servers of the tests; everything else as it comes."""
    assert settings.mongodb.uri is not None
    assert settings.kafka.bootstrap is not None
    own = {
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_SOURCE_DATABASE": settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": settings.kafka.bootstrap,
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": settings.kafka.group_prefix,
        "EDEN_LOCAL_FOLDER": str(folder / "eden"),
    }
    return {**os.environ, **own, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
