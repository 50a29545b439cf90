"""What `eden run` cannot work with: `eden doctor` says it with exit code 1, and `eden run` refuses to start."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId
from pymongo import AsyncMongoClient
from typer.testing import CliRunner

from eden_memory.assembly.mongo_setup import set_up
from eden_memory.cli.main import app
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import TopicAdmin, apply_topics
from eden_memory.kafka.topics import load_topics
from eden_memory.mongo.client import connect
from eden_memory.names import Placement
from eden_memory.replay.namespaces.namespace_store import MongoLive
from eden_memory.schemas.documents import Namespace
from eden_memory.settings import Settings
from tests.integration.system.commands import EDEN, environment
from tests.servers import TestServers

pytestmark = pytest.mark.servers
Row = dict[str, Any]
Client = AsyncMongoClient[Row]
CHATS = {"EDEN_SESSIONS_COLLECTION": "chats"}
LOCAL = {"EDEN_LLM": "offline", "EDEN_EMBEDDER": "local"}
WITHOUT_MODULE = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "onnxruntime":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from eden_memory.cli.main import main
sys.argv = ["eden", *sys.argv[1:]]
main()
"""
NOT_INSTALLED = (sys.executable, "-c", WITHOUT_MODULE)


@pytest.fixture
async def client(settings: Settings, servers: TestServers) -> AsyncGenerator[Client]:
    async with connect(servers.mongodb_uri) as client:
        yield client


@pytest.fixture
async def chat(settings: Settings, servers: TestServers, client: Client) -> dict[str, str]:
    """An application of two users and an agent that nothing is wrong with; the variables of its commands."""
    await asyncio.to_thread(
        apply_topics, admin_config(settings.kafka, servers.kafka_bootstrap), load_topics(settings.kafka)
    )
    await set_up(client[settings.mongodb.database], settings.names)
    database = client[settings.source_database]
    await database["messages"].insert_many([said(name, "user") for name in ("ada", "rui")])
    await database["messages"].insert_many([said(name, "assistant") for name in ("ada", "rui")])
    await database["chats"].insert_many([session(name) for name in ("ada", "rui")])
    await database["people"].insert_many([{"_id": "ada", "name": "Ada"}, {"_id": "rui", "name": "Rui"}])
    await database["bots"].insert_one({"_id": "helper"})
    return {**environment(settings), **LOCAL, **CHATS}


def session(user: str) -> Row:
    return {"_id": f"s-{user}", "agent_id": "helper", "botId": "helper", "users": [user], "members": [user]}


def said(user: str, role: str) -> Row:
    message = {"session_id": f"s-{user}", "role": role, "content": "Hi", "created_at": datetime.now(UTC)}
    return {**message, "user_id": user} if role == "user" else message


async def doctor(variables: dict[str, str]) -> tuple[int, str, dict[str, str]]:
    """The exit code of `eden doctor`, what it says, and what it would have put right, by check."""
    told = await asyncio.to_thread(CliRunner().invoke, app, ["doctor"], env=variables)
    found = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--json"], env=variables)
    findings = json.loads(found.stdout)["findings"]
    wrong = {one["check"]: f"{one['what']} → {one['hint']}" for one in findings if one["state"] == "fail"}
    assert told.exit_code == found.exit_code
    assert f"{len(wrong)} to put right" in told.stdout
    return told.exit_code, told.stdout, wrong


async def run(
    variables: dict[str, str], program: tuple[str, ...] = EDEN, *parts: str
) -> tuple[int | None, str]:
    """The exit code of `eden run`, which ends by itself, and what it says."""
    process = await asyncio.create_subprocess_exec(
        *program,
        "run",
        *parts,
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 90)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, " ".join(output.decode().split())


async def test_nothing_is_to_be_put_right_where_nothing_is_wrong(chat: dict[str, str]) -> None:
    every = {
        **chat,
        "EDEN_USERS_COLLECTION": "people",
        "EDEN_AGENTS_COLLECTION": "bots",
        "EDEN_SESSIONS_USERS": "users",
        "EDEN_SESSIONS_AGENT_ID": "agent_id",
    }
    code, said, wrong = await doctor(every)
    assert (code, wrong) == (0, {})
    assert "2 have a document, of 1 agent" in said


@pytest.mark.parametrize(
    ("changed", "check", "reason"),
    [
        ({"EDEN_SESSIONS_COLLECTION": "chatz"}, "sessions", "chatz does not exist"),
        ({"EDEN_SESSIONS_COLLECTION": "people"}, "sessions", "2 of 2 sessions form no memory"),
        ({"EDEN_AGENTS_COLLECTION": "people"}, "sessions", "no document s.helper in people"),
        ({"EDEN_AGENTS_COLLECTION": "agentz"}, "agents", "agentz does not exist"),
        ({"EDEN_USERS_COLLECTION": "bots"}, "users", "none of 2 authors"),
        ({"EDEN_GROUPS_COLLECTION": "groupz"}, "groups", "groupz does not exist"),
        ({"EDEN_SESSIONS_USERS": "memberz"}, "sessions", "none of 2 sessions has users in `memberz`"),
        ({"EDEN_SESSIONS_AGENT_ID": "bot"}, "sessions", "set EDEN_SESSIONS_AGENT_ID="),
        ({"EDEN_MESSAGES_COLLECTION": "messagez"}, "messages collection", "messagez does not exist"),
        ({"EDEN_MODELS_FAST": "openai:gpt-5-mini", "OPENAI_API_KEY": ""}, "models", "Set OPENAI_API_KEY"),
        (
            {"EDEN_MODELS_EMBEDDINGS": "http://127.0.0.1:1/v1#vectors"},
            "embedder answers",
            "127.0.0.1:1 vectors: connection failed",
        ),
        ({"EDEN_TAILER_BACKFILL_SINCE": "spring"}, "source", "is 'spring'"),
    ],
)
async def test_a_wrong_setting_is_to_be_put_right(
    chat: dict[str, str], changed: dict[str, str], check: str, reason: str
) -> None:
    code, _, wrong = await doctor({**chat, **changed})
    assert (code, reason in wrong.get(check, "")) == (1, True), wrong


async def test_authors_whom_no_session_lists_are_to_be_put_right(
    chat: dict[str, str], client: Client, settings: Settings
) -> None:
    chats = client[settings.source_database]["chats"]
    await chats.update_one({"_id": "s-ada"}, {"$set": {"users": [ObjectId()]}})
    assert (await doctor(chat))[0] == 0
    await chats.update_many({}, {"$set": {"users": [ObjectId()]}})
    code, _, wrong = await doctor(chat)
    assert (code, "in 2 of 2 sessions" in wrong["session users"]) == (1, True)


async def test_dead_letters_are_to_be_put_right_until_they_are_dropped(
    chat: dict[str, str], client: Client, settings: Settings
) -> None:
    row: Row = {"_id": "letter", "program": "fact-dedup", "stage": "fact-dedup", "topic": "t", "named": []}
    letters = client[settings.mongodb.database][settings.names["dead_letters"]]
    await letters.insert_one({**row, "state": "dead", "since": datetime.now(UTC)})
    code, _, wrong = await doctor(chat)
    assert (code, wrong["dead letters"].split(" → ")[0]) == (1, "1 wait: 1 of fact-dedup")
    await letters.update_one({"_id": "letter"}, {"$set": {"state": "dropped"}})
    assert (await doctor(chat))[0] == 0


async def test_an_embedder_that_is_not_installed_is_said_and_refused(chat: dict[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *NOT_INSTALLED, "doctor", env={**os.environ, **chat}, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await asyncio.wait_for(process.communicate(), 90)
    said = " ".join(output.decode().split())
    assert (process.returncode, "1 to put right" in said) == (1, True), said
    assert "`eden run` refuses this: the local embedder needs" in said
    code, said = await run(chat, NOT_INSTALLED)
    assert (code, "eden-memory[local-models]" in said) == (1, True), said
    assert not re.search(r"stage runs|leads", said), "nothing is read"


async def test_vectors_of_another_model_are_said_and_refused(
    chat: dict[str, str], client: Client, settings: Settings
) -> None:
    fact = {"_id": "f", "active": True, "embedding_model": "another"}
    inserted = {"insert": settings.names["facts"], "documents": [fact], "bypassDocumentValidation": True}
    await client[settings.mongodb.database].command(inserted)
    code, _, wrong = await doctor(chat)
    assert (code, list(wrong)) == (1, ["embedder"])
    assert "stored facts have vectors of another" in wrong["embedder"]
    assert "eden reembed" in wrong["embedder"]
    code, said = await run(chat, EDEN, "fact-dedup")
    assert (code, "eden reembed" in said) == (1, True), said


async def test_doctor_and_topics_diff_look_at_the_topics_of_the_live_namespace(
    chat: dict[str, str], client: Client, settings: Settings, servers: TestServers
) -> None:
    may = Placement("may", "may")
    database = client[settings.mongodb.database]
    document = Namespace(
        id=may.memory,
        kind="reform",
        prefix="memory_ns_may_",
        group="atlas-writer.may",
        source="memory_",
        pipeline=may.pipeline,
        state="caught_up",
        created_at=datetime.now(UTC),
    )
    await database["memory_namespaces"].insert_one(document.stored())
    placed = settings.placed(may)
    await set_up(database, placed.names)
    admin = admin_config(settings.kafka, servers.kafka_bootstrap)
    topics = load_topics(settings.kafka, may)
    await asyncio.to_thread(apply_topics, admin, topics)
    await MongoLive(database, settings.mongodb.prefix).switch(may, Placement())
    lacking = topics.name("memory.facts")
    assert lacking != load_topics(settings.kafka).name("memory.facts")
    await asyncio.to_thread(TopicAdmin(admin).configure, {lacking: {"cleanup.policy": "delete"}})
    differ = await asyncio.to_thread(CliRunner().invoke, app, ["topics", "diff"], env=chat)
    assert (differ.exit_code, lacking in differ.output) == (1, True)
    code, _, wrong = await doctor(chat)
    assert (code, lacking in wrong["topics"]) == (1, True)
