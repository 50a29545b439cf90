"""The wheel without extras, in an environment of its own, at both ends of the range of each dependency.

Facts are stored by the real writer; the environment reads them, as an application that has no Kafka would.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient

from eden_memory.cli.main import COMMANDS
from eden_memory.schemas.scopes import Scope
from eden_memory.settings import Settings
from tests.contract.test_the_wheel import ROOT, build
from tests.integration.search.search_kit import fact, prepared, write

pytestmark = pytest.mark.servers
RUI = Scope.of_user("s.default", "s.rui")
MESSAGE = {
    "_id": 1,
    "session_id": "c1",
    "user_id": "rui",
    "role": "user",
    "content": "My boat is called Gaivota.",
    "created_at": datetime(2026, 3, 2, 12, tzinfo=UTC),
}
UV = Path(sys.executable).with_name("uv")
ENDS = {
    "lowest": ("--resolution", "lowest-direct"),
    "locked": ("--constraint", str(ROOT / "requirements.lock")),
}
"""How each end is resolved: the least that pyproject.toml allows, and what the project's own tests run with."""

LIBRARY = """
import asyncio, json, sys
from eden_memory.api import MemoryService
from eden_memory.errors import MissingExtra

async def asked(memory, kind):
    try:
        found = await memory.search_facts("the boat Gaivota", user="rui", search_type=kind)
        return [fact.content for fact in found]
    except MissingExtra as error:
        return error.hint

async def main():
    async with MemoryService() as memory:
        await memory.ready()
        context = await memory.get_memory_context("c1", "rui", None)
        facts = await memory.list_facts(user="rui")
        print(json.dumps({
            "context": context,
            "facts": [fact.content for fact in facts.items],
            "words": await asked(memory, "text"),
            "hybrid": await asked(memory, "hybrid"),
            "meaning": await asked(memory, "semantic"),
            "loaded": sorted({"aiokafka", "confluent_kafka", "openai", "fastapi"} & set(sys.modules)),
        }))

asyncio.run(main())
"""
PROVIDER = """
import asyncio, json
from eden_memory.api import SyncMemoryService
from eden_memory.errors import MissingExtra
with SyncMemoryService() as memory:
    try:
        memory.search_facts("boat", user="rui", search_type="semantic")
    except MissingExtra as error:
        print(json.dumps([error.extra, error.hint]))
"""
EXTRAS_OF_COMMANDS = """
import json
from eden_memory.cli.main import COMMANDS
from eden_memory.errors import MissingExtra
told = {}
for name, entry in COMMANDS.items():
    try:
        entry.load(name)
        told[name] = None
    except MissingExtra as error:
        told[name] = error.hint
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Base:
    """An environment with the wheel and nothing but what it requires."""

    folder: Path
    variables: dict[str, str]

    def run(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs."""
        return subprocess.run(
            [str(self.folder / "bin" / words[0]), *words[1:]],
            env={"PATH": os.environ["PATH"], **self.variables, **variables},
            cwd=self.folder,
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def json(self, program: str, **variables: str) -> Any:
        """Return what a Python program prints."""
        done = self.run("python", "-c", program, **variables)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the checkout."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module", params=[pytest.param("lowest", marks=pytest.mark.slow), "locked"])
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Made by uv, mostly from its cache."""
    folder = tmp_path_factory.mktemp(request.param)
    subprocess.run([UV, "venv", "-q", "--clear", "--python", sys.executable, folder], check=True)
    wanted = [UV, "pip", "install", "-q", *ENDS[request.param], str(wheel)]
    installed = subprocess.run(
        wanted, env={**os.environ, "VIRTUAL_ENV": str(folder)}, check=False, capture_output=True, text=True
    )
    if installed.returncode and "fetch" in installed.stderr:
        pytest.skip(f"no package registry was reached: {installed.stderr[-200:]}")
    assert installed.returncode == 0, installed.stderr
    return folder


@pytest.fixture
async def base(environment: Path, settings: Settings) -> Base:
    """The environment beside a database in which a user has two facts."""
    assert settings.mongodb.uri is not None
    uri = settings.mongodb.uri.get_secret_value()
    async with AsyncMongoClient[dict[str, Any]](uri, tz_aware=True) as client:
        database = await prepared(client[settings.mongodb.database])
        texts = ("Rui's boat is called Gaivota.", "Rui drinks his coffee without milk.")
        await database["messages"].insert_one(MESSAGE)
        await write(database, [fact(f"f{number}", text, scope=RUI) for number, text in enumerate(texts)])
    variables = {"EDEN_MONGODB_URI": uri, "EDEN_MONGODB_DATABASE": settings.mongodb.database}
    return Base(environment, variables)


async def test_the_library_searches_and_reads_on_mongodb_alone(base: Base) -> None:
    found = base.json(LIBRARY)
    boat = "Rui's boat is called Gaivota."
    assert found["words"] == [boat]
    assert found["hybrid"] == [boat]  # by words alone: nothing embeds the question
    assert found["meaning"].startswith("pip install 'eden-memory[local-models]'")
    assert boat in found["facts"]
    assert "Gaivota" in found["context"]
    assert found["loaded"] == []


@pytest.mark.slow
async def test_the_command_line_reads_memory_on_mongodb_alone(base: Base) -> None:
    assert "Remember" in base.run("eden", "--help").stdout
    assert base.run("eden", "setup").returncode == 0
    found = base.run("eden", "search", "boat", "--user", "rui", "--json")
    assert "Gaivota" in found.stdout, found.stderr
    assert base.run("eden", "facts", "--user", "rui").returncode == 0
    asked = base.run("eden", "retire", "f1", "--user", "rui", "--because", "wrong")
    assert "Traceback" not in asked.stderr


async def test_a_command_that_needs_an_extra_names_the_command_that_installs_it(base: Base) -> None:
    told = base.json(EXTRAS_OF_COMMANDS)
    declared = {name: entry.extra for name, entry in COMMANDS.items()}
    assert told == {name: extra and f"pip install 'eden-memory[{extra}]'" for name, extra in declared.items()}
    refused = base.run("eden", "run")
    assert refused.returncode == 1
    assert refused.stderr.splitlines() == [
        "`eden run` needs aiokafka, which is not installed",
        "pip install 'eden-memory[run]'",
    ]


@pytest.mark.parametrize(
    ("provider", "extra"),
    [("openai", "openai"), ("google", "google"), ("http://127.0.0.1:1/v1#model", "openai")],
)
async def test_a_setting_that_asks_for_a_provider_names_its_extra(
    base: Base, provider: str, extra: str
) -> None:
    keys = {"OPENAI_API_KEY": "none", "GEMINI_API_KEY": "none"}
    model = {"EDEN_MODELS_EMBEDDINGS": "m"} if "#" in provider else {}
    told = base.json(PROVIDER, EDEN_EMBEDDER=provider.partition("#")[0], **keys, **model)
    assert told == [extra, f"pip install 'eden-memory[{extra}]'"]
