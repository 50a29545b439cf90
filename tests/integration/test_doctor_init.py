"""`eden doctor --init` on real collections, and README's own collection as it is written."""

import asyncio
import json
import tomllib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from pymongo import AsyncMongoClient
from typer.testing import CliRunner, Result

from eden_memory.cli.main import app
from eden_memory.errors import EdenError
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings
from tests.integration.mcp.written import blocks
from tests.integration.tailer.conftest import QUICK
from tests.integration.tailer.harness import kit
from tests.servers import TestServers
from tests.unit.doctor.schemas_of_chats import EXPECTED, langchain, many, nested, thread

pytestmark = pytest.mark.servers
HEADING = "Your own chat collection"


@pytest.fixture
async def client(
    settings: Settings, servers: TestServers
) -> AsyncGenerator[AsyncMongoClient[dict[str, Any]]]:
    async with connect(settings.mongodb, servers.mongodb_uri) as client:
        yield client


@pytest.fixture
def folder(settings: Settings, servers: TestServers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder to call `eden` in."""
    monkeypatch.setenv("EDEN_MONGODB_URI", servers.mongodb_uri)
    monkeypatch.setenv("EDEN_SOURCE_DATABASE", settings.mongodb.database)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def init(*options: str) -> Result:
    """The command has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--init", *options])


@pytest.mark.parametrize("make", [langchain, thread, nested])
async def test_the_messages_are_found_among_other_collections(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path, make: Any
) -> None:
    database = client[settings.mongodb.database]
    await database["users"].insert_many([{"name": f"Person {one}", "created_at": one} for one in range(30)])
    await database["memory_facts"].insert_many(many(nested))
    await database["log_of_chats"].insert_many(many(make))
    printed = await init()
    assert printed.exit_code == 0, printed.output
    read = tomllib.loads(printed.stdout)
    assert read["source"] == {"database": settings.mongodb.database}
    expected = EXPECTED[make].model_copy(update={"collection": "log_of_chats"})
    assert Settings(messages=read["messages"]).messages == expected
    assert not (folder / "eden.toml").exists(), "nobody asked for it"


async def test_a_file_is_written_when_it_is_asked_for_and_never_over_another(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    await client[settings.mongodb.database]["chat"].insert_many(many(nested))
    file = folder / "eden.toml"
    assert (await init("--collection", "chat", "--write")).exit_code == 0
    assert tomllib.loads(file.read_text())["messages"]["collection"] == "chat"
    file.write_text('llm = "offline"\n[messages]\ncollection = "mine"\n')
    refused = await init("--write")
    assert refused.exit_code == 1
    assert tomllib.loads(file.read_text())["messages"] == {"collection": "mine"}
    assert (await init("--write", "--force")).exit_code == 0
    read = tomllib.loads(file.read_text())
    assert (read["llm"], read["messages"]["role"]) == ("offline", "from.kind")


async def test_what_cannot_be_mapped_is_said_and_not_written(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    documents = [
        {name: value for name, value in one.items() if name != "conversation"} for one in many(nested)
    ]
    await client[settings.mongodb.database]["chat"].insert_many(documents)
    result = await init("--collection", "chat", "--write")
    assert result.exit_code == 1
    assert "no field names the session" in " ".join(result.stderr.split())
    assert not (folder / "eden.toml").exists()
    assert isinstance((await init("--collection", "nope")).exception, EdenError)


async def test_readme_s_own_collection_is_read_as_it_is_written(settings: Settings) -> None:
    written = dict(blocks("README.md", HEADING)[:2])
    documents = json.loads(written["json"])
    whole = Settings(**tomllib.loads(written["toml"]))
    mine = settings.model_copy(
        update={"messages": whole.messages, "tailer": settings.tailer.model_copy(update=QUICK)}
    )
    async with kit(mine) as chat:
        await chat.messages.insert_many(documents)
        async with chat.tailing(), chat.topic() as topic:
            await topic.until(lambda: len(topic.records) == 2, "the messages")
        said = [one.message for one in topic.records]
    assert [(one.session_id, one.role, one.user_id, one.text) for one in said] == [
        ("s.c1", "user", "s.rui", "My boat is called Gaivota."),
        ("s.c1", "assistant", None, "A good name. When is she due?"),
    ]
    assert [one.created_at is not None for one in said] == [True, True]


async def test_doctor_proposes_what_readme_says(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    written = dict(blocks("README.md", HEADING)[:2])
    await client[settings.mongodb.database]["chat_messages"].insert_many(json.loads(written["json"]))
    printed = await init()
    assert printed.exit_code == 0, printed.output
    assert tomllib.loads(printed.stdout)["messages"] == tomllib.loads(written["toml"])["messages"]
