"""README, docs/tutorials and docs/how-to: the commands of each page, run in one shell as a reader would.

A tutorial has only the extras that it names: the modules of all others cannot be imported.
"""

import asyncio
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from eden_memory.errors import EXTRAS
from eden_memory.local import server as ports
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from tests.integration.mcp.written import BLOCK, ROOT, blocks
from tests.integration.system.commands import environment
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import System, fast, system
from tests.model_server.serving import serving

pytestmark = [pytest.mark.servers, pytest.mark.slow, pytest.mark.timeout(280)]
SECONDS = 200.0
TUTORIALS = {
    "application-developer": ("Gaivota", "<MemoryContext>", "Porto"),
    "operator": ("live namespace", "0 to put right", "equal to live", "no dead letters"),
    "data-engineer": ("ADD", "Gaivota", "equal to live"),
}
NAMED = re.compile(r"with\s+the\s+extras ((?:`[\w-]+`(?:, | and )?)+)")
WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in {absent} or name.partition(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
"""


class PlayedPage(NamedTuple):
    """How the commands of a page are run where they cannot be as they stand."""

    changed: Mapping[str, str]
    """Text of the page, and what stands for it: a place or id of the reader's, a command that never ends."""
    says: Sequence[str]
    """What the commands say."""
    first: str = ""
    """Commands of the test before those of the page."""
    blocks: slice = slice(None)
    """Those that are played."""


UNTIL_EDITED = """
timeout 60 sh -c 'until eden facts --user ada --agent support --active all --json | grep "wants short"
do sleep 1; done'
"""
HOW_TO = {
    "correct": PlayedPage(
        {
            "edit ID": "edit $ID",
            "private ID": "private $ID",
            "merge ID DUPLICATE": "merge $ID $DUPLICATE",
            "retire ID": "retire $ID",
            "\n.venv/bin/eden blobs": UNTIL_EDITED + ".venv/bin/eden blobs",
            **{f".venv/bin/eden {verb} user:": f"true {verb} user:" for verb in ("edit", "pin", "history")},
        },
        ("Ada wants short answers.", "adds 1 text to memory"),
        first="""
set -- $(eden facts --user ada --agent support --json | python -c '
import json, sys
print(*[fact["fact_id"] for fact in json.load(sys.stdin)["items"]])')
ID=$1 DUPLICATE=$2
""",
    ),
    "forget": PlayedPage(
        {"forget session c1 --compact": "forget session c2 --compact"},
        ("c1.json",),
        first="eden setup\n",
    ),
    "keys": PlayedPage({}, ("support-app", "office")),
    # Imports need files of others, which tests/integration has; the mirror goes on until Ctrl-C.
    "move-memory": PlayedPage({}, ("Gaivota",), blocks=slice(1, 3)),
    "subscribe": PlayedPage(
        {
            ".venv/bin/eden tap": "timeout 10 .venv/bin/eden tap",
            "# from the first record kept": "|| [ $? = 124 ] #",
            "# what is said of": "|| [ $? = 124 ] #",
        },
        ("Gaivota",),
        blocks=slice(0, 1),
    ),
}
ELSEWHERE = {
    "backup-and-restore": "test_restored_backup.py restores a copy; the commands are those of the reader's servers",
    "connect-your-chat": "test_corrected_mapping.py runs `eden source reread`; the rest needs containers",
    "install": "needs Kubernetes; tests/contract/test_chart.py renders the chart",
    "undo-an-attack": "needs ids of an answer; test_undo_at_the_doors.py asks the same",
}
"""Pages whose commands are not played here, and why."""


def scripts(page: Path) -> list[str]:
    """The shell's blocks of a page."""
    return [text for language, text in BLOCK.findall(page.read_text()) if language == "sh"]


def test_the_commands_of_every_page_are_played_or_it_is_said_why_not() -> None:
    pages = {page.stem for page in (ROOT / "docs/how-to").glob("*.md") if scripts(page)}
    assert pages == {*HOW_TO, *ELSEWHERE}
    assert {page.stem for page in (ROOT / "docs/tutorials").glob("*.md")} == set(TUTORIALS)


@pytest.mark.parametrize("name", TUTORIALS)
async def test_a_tutorial_runs_as_it_is_written(name: str, settings: Settings, tmp_path: Path) -> None:
    page = ROOT / "docs/tutorials" / f"{name}.md"
    named = NAMED.search(page.read_text())
    assert named is not None
    own = {**_environment(settings, tmp_path), **_with_extras(re.findall(r"`(.+?)`", named[1]), tmp_path)}
    await _played("\n".join(scripts(page)), own, tmp_path, TUTORIALS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", HOW_TO)
async def test_a_how_to_page_runs_as_it_is_written(name: str, settings: Settings, tmp_path: Path) -> None:
    page = HOW_TO[name]
    script = "\n".join(scripts(ROOT / "docs/how-to" / f"{name}.md")[page.blocks])
    for text, instead in page.changed.items():
        assert text in script, f"{name}.md says no more: {text}"
        script = script.replace(text, instead)
    async with serving(obey) as models, system(fast(settings, models), models) as running:
        await _told(running)
        own = {**_on_path(environment(running.settings)), "EDEN_LOCAL_FOLDER": str(tmp_path / "eden")}
        await _played(page.first + script, own, tmp_path, page.says)


BEFORE = """
.venv/bin/eden serve > serve.log 2>&1 &
SERVE=$!
timeout 60 sh -c 'until curl -sf http://127.0.0.1:PORT/readyz > /dev/null; do sleep 1; done' || cat serve.log
echo 'before: context'; .venv/bin/eden context c1 --user rui
echo 'before: facts'; .venv/bin/eden facts --user rui
echo 'before: search'; .venv/bin/eden search 'Which boat?' --user rui
echo 'before: HTTP'
curl -si "http://127.0.0.1:PORT/v1/agents/default/context?session=c1&user=rui" | grep -i '^eden-empty-because'
echo 'before: end'
"""
"""What a new user asks first, when nothing is formed."""
AFTER = """
timeout 120 sh -c 'until grep -q "stage runs" run.log; do sleep 1; done'
eden session form c1
timeout 60 sh -c 'until eden facts --user rui | grep -q Gaivota; do sleep 1; done' || cat run.log
printf '\\nafter: context\\n'; eden context c1 --user rui
printf '\\nafter: search\\n'; eden search 'What is the boat called?' --user rui
printf '\\nafter: Python\\n'; python way.py
printf '\\nafter: HTTP\\n'; bash -eu way.sh
printf '\\nafter: MCP\\n'; python mcp_way.py
printf '\\nafter: inspector\\n'; curl -sL http://127.0.0.1:PORT/ui
printf '\\nafter: gateway\\n'; curl -s http://127.0.0.1:PORT/v1/chat/completions -H 'Content-Type: application/json' \
  -d '{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'
printf '\\nafter: end\\n'
kill %1 %2
wait %1 %2 || true
"""
MCP_WAY = """
import asyncio, json, os
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

async def ask():
    server = json.loads(SERVER)["mcpServers"]["eden-memory"]
    given = {name: value for name, value in os.environ.items() if name.startswith("EDEN_")}
    started = StdioServerParameters(command=server["command"], args=server["args"], env=given)
    async with Client(started) as client:
        print((await client.call_tool("list_facts", {})).structured_content)

asyncio.run(ask())
"""
DOORS = ("context", "search", "Python", "HTTP", "MCP", "inspector")
"""Those that show what was said, once memory is formed of it."""


@pytest.mark.slow
async def test_readme_leads_from_a_chat_collection_to_memory_at_every_door(
    settings: Settings, tmp_path: Path
) -> None:
    """As a new user walks, README alone: each first answer says something, or why it is empty."""
    page = (ROOT / "README.md").read_text()
    (documents,) = (
        text for language, text in BLOCK.findall(page) if language == "json" and "Gaivota" in text
    )
    (script,) = (text for text in scripts(ROOT / "README.md") if "--init --write" in text)
    export = re.search(r"^export EDEN_MONGODB_URI=.*$", script, re.MULTILINE)
    running = re.search(r"^\.venv/bin/eden run .*$", script, re.MULTILINE)
    assert export is not None
    assert running is not None
    own = _environment(settings, tmp_path)
    source = own["EDEN_SOURCE_DATABASE"] = f"{settings.mongodb.database}_app"
    port = own["EDEN_SERVE_PORT"] = str(ports.choose())
    python, http, mcp, _ = [text.replace("8787", port) for _, text in blocks("README.md", "Four ways in")]
    place = tmp_path / "empty"
    place.mkdir()
    (place / "way.py").write_text(python)
    (place / "way.sh").write_text(http)
    (place / "mcp_way.py").write_text(f"SERVER = {mcp!r}\n{MCP_WAY}")
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        await client[source]["chat_messages"].insert_many(json.loads(documents))
        script = script.replace(export[0], "").replace("make up", "eden up")
        running_too = BEFORE + ".venv/bin/eden run > run.log 2>&1 &" + AFTER
        script = script.replace(running[0], running_too.replace("PORT", port))
        try:
            said = await _played(script, own, tmp_path, ("0 to put right", "<MemoryContext>", "Gaivota"))
        finally:
            await client.drop_database(source)
    answers = dict(
        re.findall(r"^((?:before|after): \w+)\n(.*?)(?=^(?:before|after): )", said, re.DOTALL | re.M)
    )
    assert [
        door for door in ("context", "facts", "search", "HTTP") if not answers[f"before: {door}"].strip()
    ] == []
    assert [door for door in DOORS if "Gaivota" not in answers[f"after: {door}"]] == []
    assert "EDEN_GATEWAY_UPSTREAM" in answers["after: gateway"]


async def _told(running: System) -> None:
    """Two sessions of Ada and an agent of hers, each with facts."""
    for name, boat in (("c1", "Gaivota"), ("c2", "Tern")):
        await running.session("ada", id=name, agent_id="support")
        await running.told(
            name, "ada", f"fact user: Ada's boat is called {boat}.", "fact user: She sails in May."
        )


async def _played(script: str, own: Mapping[str, str], folder: Path, says: Sequence[str]) -> str:
    """Run a script in an empty folder, where `.venv` is the environment of the tests; return what it says.

    It has to say these texts.
    """
    place, log = folder / "empty", folder / "said.txt"
    (place / ".venv").mkdir(parents=True)
    (place / ".venv/bin").symlink_to(Path(sys.executable).parent)
    with log.open("w") as output:
        code = await _run(f"set -e\n{script}", place, own, output)
    said = log.read_text()
    assert code == 0, said[-4_000:]
    assert [text for text in says if text not in said] == [], said[-4_000:]
    return said


async def _run(script: str, folder: Path, own: Mapping[str, str], output: IO[str]) -> int | None:
    """Return the exit code; None where it does not come to an end. Every question is answered with yes."""
    process = await asyncio.create_subprocess_exec(
        *("bash", "-c", f"yes 2> /dev/null | bash -c {shlex.quote(script)}"),
        cwd=folder,
        env=own,
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


def _with_extras(named: Sequence[str], folder: Path) -> dict[str, str]:
    """Make what no extra named brings impossible to import, in every Python that the shell starts."""
    there = {module for extra in named for module in EXTRAS[extra]}
    absent = {module for modules in EXTRAS.values() for module in modules} - there
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(WITHOUT.format(absent=absent))
    return {"PYTHONPATH": str(folder / "site")}


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
    return _on_path({**os.environ, **own})


def _on_path(own: Mapping[str, str]) -> dict[str, str]:
    return {**own, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
