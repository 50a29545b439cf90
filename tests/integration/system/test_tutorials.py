"""docs/tutorials: all commands of each page, run in one shell as a reader would, in an empty folder."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from eden_memory.settings import Settings
from tests.integration.mcp.written import BLOCK, ROOT

pytestmark = [pytest.mark.servers, pytest.mark.timeout(280)]
SECONDS = 200.0
PAGES = {
    "application-developer": ("Gaivota", "<MemoryContext>", "Porto"),
    "operator": ("live namespace", "equal to live", "no dead letters"),
    "data-engineer": ("ADD", "Gaivota", "equal to live"),
}


@pytest.mark.parametrize("name", PAGES)
async def test_a_tutorial_runs_as_it_is_written(name: str, settings: Settings, tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorials" / f"{name}.md").read_text()
    script = "\n".join(["set -e", *(text for language, text in BLOCK.findall(page) if language == "sh")])
    (tmp_path / "empty").mkdir()
    log = tmp_path / "said.txt"
    with log.open("w") as output:
        code = await _run(script, tmp_path / "empty", _environment(settings, tmp_path), output)
    said = log.read_text()
    assert code == 0, said[-4_000:]
    assert [text for text in PAGES[name] if text not in said] == [], said[-4_000:]


async def _run(script: str, folder: Path, environment: dict[str, str], output: IO[str]) -> int | None:
    """Return the exit code; None where it does not come to an end."""
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        script,
        cwd=folder,
        env=environment,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
    try:
        return await asyncio.wait_for(process.wait(), SECONDS)
    except TimeoutError:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


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
