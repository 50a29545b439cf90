"""`eden doctor --init` on real collections, and README's own collection as it is written."""

import asyncio
import json
import tomllib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from typer.testing import CliRunner, Result

from eden_memory.cli.main import app
from eden_memory.errors import EdenError
from eden_memory.mongo.client import connect
from eden_memory.names import EVAL_DATABASES
from eden_memory.settings import Settings
from tests.integration.mcp.written import blocks
from tests.integration.source.conftest import QUICK
from tests.integration.source.harness import kit
from tests.servers import TestServers
from tests.unit.doctor.schemas_of_chats import (
    EXPECTED,
    history,
    history_json,
    langchain,
    many,
    nested,
    rooms,
    thread,
    whatsapp,
)
from tests.unit.doctor.stored_chats import STORED_CHATS

pytestmark = pytest.mark.servers
HEADING = "Your own chat collection"
OF_HISTORY = {
    "EDEN_MESSAGES_COLLECTION": "message_store",
    "EDEN_MESSAGES_SESSION_ID": "SessionId",
    "EDEN_MESSAGES_CONTENT": "History",
}


@pytest.fixture
async def client(
    settings: Settings, servers: TestServers
) -> AsyncGenerator[AsyncMongoClient[dict[str, Any]]]:
    async with connect(servers.mongodb_uri) as client:
        yield client


@pytest.fixture
def folder(settings: Settings, servers: TestServers, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder to call `eden` in."""
    monkeypatch.setenv("EDEN_MONGODB_URI", servers.mongodb_uri)
    monkeypatch.delenv("EDEN_MESSAGES_DELETE_GRACE_SECONDS")
    monkeypatch.setenv("EDEN_SOURCE_DATABASE", settings.mongodb.database)
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def init(*options: str) -> Result:
    """The command has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--init", *options])


@pytest.mark.parametrize("make", [langchain, thread, nested, rooms, history])
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


async def test_a_known_program_is_recognised_and_its_first_content_with_text_is_proposed(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    chat = next(chat for chat in STORED_CHATS if chat.program == "LibreChat")
    database = client[settings.mongodb.database]
    await database["messages"].insert_many(chat.documents())
    await database["conversations"].insert_many(chat.described())
    printed = await init()
    assert printed.exit_code == 0, printed.output
    proposed = tomllib.loads(printed.stdout)
    assert proposed["messages"] == {"collection": "messages", **chat.messages}
    assert proposed["sessions"] == {"collection": "conversations", **chat.sessions}
    needed = 'getCollection("conversations").createIndex({"conversationId": 1})'
    assert needed in " ".join(printed.stderr.split())
    await database["conversations"].create_index("conversationId")
    assert needed not in " ".join((await init()).stderr.split())


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


async def test_a_role_that_is_not_clear_is_said_once_and_of_text_ids_none_is_called_newest(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    documents = [{**document, "_id": f"m{number}"} for number, document in enumerate(many(nested))]
    for document in documents[:3]:
        document["from"] = {"kind": "note"}
    await client[settings.mongodb.database]["chat"].insert_many(documents)
    said = " ".join((await init("--collection", "chat")).stderr.split())
    assert said.count("'note' (3)") == 1
    assert f"{len(documents)} documents are messages" in said
    assert "newest" not in said


async def test_commands_to_copy_are_whole_at_80_columns(
    settings: Settings,
    client: AsyncMongoClient[dict[str, Any]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    name = "messages_of_all_conversations_with_our_agent"
    await client[settings.mongodb.database][name].insert_many(many(langchain))
    said = (await init("--collection", name)).stderr
    place = f'db.getSiblingDB("{settings.mongodb.database}").getCollection("{name}")'
    assert f'→ {place}.createIndex({{"createdAt":' in said


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
    for name in ("nope", "no database.chat", "chat.", ".chat"):
        assert isinstance((await init("--collection", name)).exception, EdenError), name


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


async def test_messages_that_are_json_text_are_found_and_mapped(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    await client[settings.mongodb.database]["message_store"].insert_many(many(history_json))
    environment = {**OF_HISTORY, "EDEN_KAFKA_BOOTSTRAP": settings.kafka.bootstrap}
    checked = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--json"], env=environment)
    (texts,) = [one for one in json.loads(checked.stdout)["findings"] if one["check"] == "message texts"]
    assert (texts["state"], "holds JSON text" in texts["what"]) == ("fail", True)
    written = await init("--write")
    assert written.exit_code == 0, written.output
    found = tomllib.loads((folder / "eden.toml").read_text())["messages"]
    assert (found["session_id"], found["role"], found["content"]) == (
        "SessionId",
        "History::json.type",
        "History::json.data.content",
    )


async def test_several_messages_in_a_document_are_mapped_as_a_list(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    messages = [one["History"] for one in many(history, 6)]
    await client[settings.mongodb.database]["chats"].insert_one({"sessionId": "s1", "messages": messages})
    written = await init("--write")
    assert written.exit_code == 0, written.output
    found = tomllib.loads((folder / "eden.toml").read_text())["messages"]
    assert (found["list"], found["session_id"], found["content"]) == (
        "messages",
        "sessionId",
        "messages.data.content",
    )


async def test_of_two_readings_none_is_written_unless_somebody_chooses(
    settings: Settings,
    client: AsyncMongoClient[dict[str, Any]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    documents = [{**one, "author": None} for one in many(whatsapp)]
    documents[0]["body"] = "My \x1b[31mPIN"
    await client[settings.mongodb.database]["chats"].insert_many(documents)
    unasked = await init("--collection", "chats", "--write")
    said = " ".join(unasked.stderr.split())
    assert (unasked.exit_code, (folder / "eden.toml").exists()) == (1, False)
    assert '1: roles = { "false" = "assistant", "true" = "user" }' in said
    assert '2: roles = { "false" = "user", "true" = "assistant" }' in said
    assert said.count("Your boat 9 is due.") == 0, "three messages each, of one session"
    assert (said.count("assistant (no author): "), said.count("user (no author): ")) == (3, 3)
    monkeypatch.setattr("eden_memory.cli.doctor._on_terminal", lambda: True)
    command = ["doctor", "--init", "--collection", "chats", "--write"]
    asked = await asyncio.to_thread(CliRunner().invoke, app, command, input="3\n2\n")
    assert asked.exit_code == 0, asked.output
    assert "\x1b" not in asked.stderr
    written = tomllib.loads((folder / "eden.toml").read_text())["messages"]
    assert (written["role"], written["roles"]) == ("fromMe", {"false": "user", "true": "assistant"})


async def test_rooms_of_several_users_are_asked_about_and_the_answer_is_written(
    settings: Settings,
    client: AsyncMongoClient[dict[str, Any]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await client[settings.mongodb.database]["messages"].insert_many(many(rooms))
    unasked = await init("--collection", "messages")
    assert tomllib.loads(unasked.stdout)["memory"] == {}
    assert '# no facts: shared_sessions = "session"' in unasked.stdout
    monkeypatch.setattr("eden_memory.cli.doctor._on_terminal", lambda: True)
    command = ["doctor", "--init", "--collection", "messages", "--write"]
    asked = await asyncio.to_thread(CliRunner().invoke, app, command, input="nothing\nauthors\n")
    assert asked.exit_code == 0, asked.output
    assert "Answer group, authors or none." in asked.stderr
    written = tomllib.loads((folder / "eden.toml").read_text())
    assert Settings(**written).memory.shared_sessions == "authors"
    users = [ObjectId(f"{number:024x}") for number in range(2)]
    sessions = [{"_id": ObjectId(f"{one:024x}"), "members": users, "groupId": users[0]} for one in range(4)]
    await client[settings.mongodb.database]["rooms"].insert_many(sessions)
    (folder / "eden.toml").write_text('[sessions]\ncollection = "rooms"\n\n[memory]\nsharing = "team"\n')
    asked = await asyncio.to_thread(CliRunner().invoke, app, [*command, "--force"], input="group\n")
    assert asked.exit_code == 0, asked.output
    assert 'has a section [sessions] already: add group_id = "groupId" to it' in " ".join(
        asked.stderr.split()
    )


async def test_a_collection_is_found_by_its_name_in_whatever_database_it_is(
    settings: Settings,
    client: AsyncMongoClient[dict[str, Any]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("EDEN_SOURCE_DATABASE")
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    theirs, name = f"{settings.mongodb.database}_shop", f"talk.{settings.mongodb.database}"
    await client[theirs][name].insert_many(many(nested))
    found = tomllib.loads((await init("--collection", name)).stdout)
    assert (found["source"], found["messages"]["collection"]) == ({"database": theirs}, name)
    assert found["mongodb"]["database"] == settings.mongodb.database
    again = await init("--collection", f"{theirs}.{name}")
    assert tomllib.loads(again.stdout) == found
    other = f"{settings.mongodb.database}_other"
    await client[other][name].insert_many(many(history))
    both = await init("--collection", name)
    assert tomllib.loads(both.stdout) == found, "the one that is more like messages"
    assert f"these look like messages too: {other}.{name}" in " ".join(both.stderr.split())


async def test_a_collection_of_an_evaluation_is_never_proposed(
    settings: Settings,
    client: AsyncMongoClient[dict[str, Any]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("EDEN_SOURCE_DATABASE")
    theirs, name = settings.mongodb.database, f"messages.{settings.mongodb.database}"
    evaluation = f"{EVAL_DATABASES}{settings.mongodb.database}"
    for database in (evaluation, theirs):
        await client[database][name].insert_many(many(nested))
    try:
        printed = await init("--collection", name)
    finally:
        await client.drop_database(evaluation)
    assert tomllib.loads(printed.stdout)["source"] == {"database": theirs}
    assert evaluation not in printed.stderr


async def test_the_collection_of_the_sessions_is_proposed_with_what_it_says(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    database = client[settings.mongodb.database]
    await database["chat"].insert_many(many(nested))
    people = [{"_id": 100 + one, "email": "x@example.org", "name": f"Person {one}"} for one in range(4)]
    await database["users"].insert_many(people)
    await database["conversations"].insert_many(
        [
            {"_id": one, "title": f"Boat {one}", "members": [101, 102], "botId": "b1", "ownerName": "A B"}
            for one in range(4)
        ]
    )
    printed = await init("--collection", "chat", "--write")
    assert printed.exit_code == 0, printed.output
    read = tomllib.loads((folder / "eden.toml").read_text())
    assert read["sessions"] == {
        "collection": "conversations",
        "agent_id": "botId",
        "users": "members",
        "title": "title",
    }
    assert read["agents"] == {"default": "s.b1"}
    assert read["users"] == {"collection": "users", "name": "name"}
    assert "`conversations` describes 4 of the 4 sessions" in " ".join(printed.stderr.split())
    assert Settings(**read).sessions.users == "members"


async def test_a_list_of_members_that_holds_the_bot_is_no_list_of_users(
    settings: Settings,
    client: AsyncMongoClient[dict[str, Any]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database, bot = client[settings.mongodb.database], ObjectId(f"{900:024x}")
    await database["messages"].insert_many(many(rooms))
    users = [ObjectId(f"{number:024x}") for number in range(2)]
    sessions = [
        {"_id": ObjectId(f"{one:024x}"), "name": "Boat", "members": [*users, bot]} for one in range(4)
    ]
    await database["rooms"].insert_many(sessions)
    printed = await init("--collection", "messages", "--write")
    assert "`members` lists who only answers, too, as a bot" in " ".join(printed.stderr.split())
    read = tomllib.loads((folder / "eden.toml").read_text())
    assert read["sessions"]["users"] == "-"
    for name, value in (read["messages"] | {"roles": json.dumps(read["messages"]["roles"])}).items():
        monkeypatch.setenv(f"EDEN_MESSAGES_{name.upper()}", value)
    monkeypatch.setenv("EDEN_SESSIONS_COLLECTION", "rooms")
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", settings.kafka.bootstrap or "")
    for path, said in (("-", False), ("members", True)):
        monkeypatch.setenv("EDEN_SESSIONS_USERS", path)
        checked = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--json"])
        findings = {one["check"]: one for one in json.loads(checked.stdout)["findings"]}
        assert ("session users" in findings) == said


async def test_sessions_that_lack_documents_or_ids_of_users_are_said_with_what_follows(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    database = client[settings.mongodb.database]
    await database["chat"].insert_many(many(nested))
    await database["conversations"].insert_many(
        [{"_id": one, "members": [{"user": 100}]} for one in range(3)]
    )
    said = " ".join((await init("--collection", "chat")).stderr.split())
    assert "describes 3 of the 4 sessions looked for; messages of the others form no memory" in said
    assert "`members` is no list of ids" in said


async def test_it_says_which_index_is_missing_for_what_it_proposes(
    settings: Settings, client: AsyncMongoClient[dict[str, Any]], folder: Path
) -> None:
    chat = client[settings.mongodb.database]["chat"]
    await chat.insert_many(many(nested))
    said = " ".join((await init("--collection", "chat")).stderr.split())
    place = f'db.getSiblingDB("{settings.mongodb.database}").getCollection("chat")'
    assert f'{place}.createIndex({{"meta.sentAt": 1, "_id": 1}})' in said
    assert f'{place}.createIndex({{"conversation.id": 1, "from.kind": 1, "from.ref.id": 1}})' in said
    await chat.create_index([("meta.sentAt", 1), ("_id", 1)])
    await chat.create_index([("conversation.id", 1), ("from.ref.id", 1)])
    assert "createIndex" not in (await init("--collection", "chat")).stderr


async def test_setup_writes_the_only_agent_that_sessions_name(
    settings: Settings,
    client: AsyncMongoClient[dict[str, Any]],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDEN_MONGODB_DATABASE", settings.mongodb.database)
    monkeypatch.setenv("EDEN_SESSIONS_COLLECTION", "rooms")
    monkeypatch.setenv("EDEN_SESSIONS_AGENT_ID", "botId")
    database, bot = client[settings.mongodb.database], ObjectId()
    await database["rooms"].insert_many([{"_id": one, "botId": bot} for one in range(2)])
    (folder / "eden.toml").write_text('[sessions]\ncollection = "rooms"\nagent_id = "botId"\n')
    for _ in range(2):
        done = await asyncio.to_thread(CliRunner().invoke, app, ["setup", "--wait", "0"])
        assert done.exit_code == 0, done.output
    assert tomllib.loads((folder / "eden.toml").read_text()) == {
        "sessions": {"collection": "rooms", "agent_id": "botId"},
        "agents": {"default": f"o.{bot}"},
    }
    await database["rooms"].insert_one({"_id": 2, "botId": "another"})
    (folder / "eden.toml").write_text('[sessions]\ncollection = "rooms"\nagent_id = "botId"\n')
    await asyncio.to_thread(CliRunner().invoke, app, ["setup", "--wait", "0"])
    assert "agents" not in tomllib.loads((folder / "eden.toml").read_text())
