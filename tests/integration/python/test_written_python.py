"""docs/python.md: its examples run as written, and its table names every call; docs/cli.md names every command."""

import asyncio
import os
import re
import sys

import pytest

from eden_memory.api.service import MemoryService
from eden_memory.cli.main import COMMANDS
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.integration.context.harness import kit_for
from tests.integration.mcp.written import BLOCK, ROOT
from tests.integration.python.stored import fact, store

PYTHON = (ROOT / "docs/python.md").read_text(encoding="utf-8")
CLI = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
SAID = "Rui's boat is due on 9 March."


@pytest.mark.servers
async def test_the_examples_run_as_they_are_written(settings: Settings) -> None:
    pytest.importorskip("onnxruntime")
    rui = Scope.of_user("s.support", "s.rui")
    async with kit_for(settings) as kit:
        await kit.authors("c1", "rui")
        await store(kit, [fact("f", rui, SAID)])
        await kit.put(rui, blob="Sails.", active_facts=1)
    assert settings.mongodb.uri is not None
    environment = {
        **os.environ,
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
    }
    examples = [text for language, text in BLOCK.findall(PYTHON) if language == "python"]
    printed = await asyncio.gather(*(_run(text, environment) for text in examples))
    assert ["Sails." in one or SAID in one for one in printed] == [True] * 4


async def _run(text: str, environment: dict[str, str]) -> str:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", text, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


def test_the_table_names_every_call_and_no_other() -> None:
    table = PYTHON[PYTHON.index("| call |") : PYTHON.index("Results are frozen")]
    named = set(re.findall(r"`(\w+)\(", table))
    calls = {name for name in dir(MemoryService) if not name.startswith("_")} - {"memory", "agent_id"}
    assert named == calls


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_the_command_line_has_every_commands_line(name: str) -> None:
    assert f"| `eden {name}` | {COMMANDS[name].help.rstrip('.')} |" in CLI
