"""`eden demo` on real servers: it ends well, badly when something is missing, and leaves nothing behind."""

import asyncio
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportUnknownVariableType]
from pymongo import MongoClient
from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.demo import play, system_process
from eden_memory.demo import play as completion
from eden_memory.demo.conversation import PEOPLE, ApplicationWrite, Arrival, Conversation, read_conversation
from eden_memory.errors import EdenError
from eden_memory.kafka.connection import admin_config
from eden_memory.kafka.topic_admin import TopicAdmin
from eden_memory.local.servers import Endpoints
from eden_memory.observability.watching import CallTotals, FormationProgress
from eden_memory.settings import KafkaSettings, Settings
from tests.model_server.serving import model_server_process
from tests.servers import TestServers, wait_until

pytestmark = pytest.mark.servers
SOON = 240.0
WATERMARKS_ONLY = """
import asyncio, os, datetime
from aiokafka import AIOKafkaProducer
from eden_memory.source.message_mapping import watermark

async def main():
    topic = os.environ["EDEN_KAFKA_TOPIC_PREFIX"] + "chat.messages"
    async with AIOKafkaProducer(bootstrap_servers=os.environ["EDEN_KAFKA_BOOTSTRAP"]) as producer:
        while True:
            record = watermark(0, "0" * 16, datetime.datetime.now(datetime.UTC), "test")
            await producer.send_and_wait(topic, record.value, record.key, partition=0, headers=record.headers)
            await asyncio.sleep(0.2)

asyncio.run(main())
"""

OWN_MAPPING = """
[mongodb]
prefix = "mem_"
[messages]
collection = "chats"
roles = { user = "other" }
[sessions]
collection = "chats"
agent_id = "bot.id"
users = "members"
[users]
memory = "name"
"""


class Silent:
    """A view that shows nothing."""

    def note(self, text: str) -> None: ...
    def arrived(self, arrival: Arrival, write: ApplicationWrite | None) -> None: ...
    def forming(self, progress: FormationProgress) -> None: ...
    def inspected(self, outcome: play.DemoOutcome, address: str) -> None: ...


class Noting(Silent):
    """A view that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def environment(servers: TestServers, tmp_path: Path) -> dict[str, str]:
    return {
        **os.environ,
        "EDEN_MONGODB_URI": servers.mongodb_uri,
        "EDEN_KAFKA_BOOTSTRAP": servers.kafka_bootstrap,
        "EDEN_LOCAL_FOLDER": str(tmp_path / "eden"),
    }


@pytest.fixture
def small() -> Conversation:
    whole = read_conversation()
    return Conversation(whole.messages[:6], [], {name: [] for name in PEOPLE})


@pytest.fixture(autouse=True)
def leaves_nothing(servers: TestServers) -> Iterator[None]:
    yield
    assert databases(servers) == []
    wait_until(lambda: topics(servers) == [], "the broker to have deleted the topics")


def databases(servers: TestServers) -> list[str]:
    with MongoClient[dict[str, Any]](servers.mongodb_uri) as client:
        return [name for name in client.list_database_names() if name == play.DATABASE]


def topics(servers: TestServers) -> list[str]:
    admin: Any = AdminClient(admin_config(KafkaSettings(), servers.kafka_bootstrap))  # pyright: ignore[reportCallIssue]
    return [name for name in admin.list_topics(timeout=10).topics if name.startswith(play.PREFIX)]


def demo(environment: dict[str, str], *options: str, folder: Path | None = None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "eden_memory.cli.main", "demo", *options],
        env=environment,
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def processes_in(environment: dict[str, str]) -> list[int]:
    """Processes that carry this test's folder in their environment."""
    mark = f"EDEN_LOCAL_FOLDER={environment['EDEN_LOCAL_FOLDER']}".encode()
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_every_message_edit_and_deletion_arrives_and_memory_forms_of_them(
    environment: dict[str, str],
) -> None:
    process = demo(environment, "--rate", "400")
    said, _ = process.communicate(timeout=SOON)
    assert process.returncode == 0, said
    assert "messages     281   281" in said
    assert "edits          3     3" in said
    assert "deletions      2     2" in said
    assert "missing        0" in said
    assert "as written in every session" in said
    assert "s-priya-books   priya" in said
    assert "deleted" in said
    assert "in 8 windows" in said
    assert "<MemoryContext>" in said
    assert re.search(r"Launch can be 29\s+May 2026", said), "the session with the earlier date arrives last"
    figures = dict(re.findall(r"^  (recall|precision|clean) +([0-9.]+) ", said, re.MULTILINE))
    assert float(figures["recall"]) >= 0.8
    assert float(figures["precision"]) >= 0.9
    assert float(figures["clean"]) >= 0.98
    assert processes_in(environment) == []


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_the_mapping_of_the_users_own_chat_does_not_matter(
    environment: dict[str, str], tmp_path: Path, own: bool
) -> None:
    (tmp_path / "eden.toml").write_text(OWN_MAPPING)
    path = tmp_path / "short.jsonl"
    path.write_text("\n".join(play_lines("My boat is called Gaivota.", "Noted.", "It is blue.", "Nice.")))
    options = ("--conversation", str(path)) if own else ("--rate", "400")
    prefixed = environment | {"EDEN_MONGODB_PREFIX": "mine_"}
    said, _ = (process := demo(prefixed, *options, folder=tmp_path)).communicate(timeout=SOON)
    assert process.returncode == 0, said
    assert ("Gaivota" if own else "in 8 windows") in said


def test_being_ended_in_the_midst_leaves_nothing_behind(environment: dict[str, str]) -> None:
    process = demo(environment, "--rate", "5")  # it would write for a minute
    assert process.stdout is not None
    lines: list[str] = []
    while not any("Kittiwake" in line for line in lines):
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    assert len(processes_in(environment)) == 2
    os.kill(process.pid, signal.SIGTERM)  # which it takes for Ctrl-C
    said, _ = process.communicate(timeout=SOON)
    assert process.returncode == 130, said
    assert "nothing was left running" in said
    assert "Traceback" not in said
    wait_until(lambda: processes_in(environment) == [], "no process left")


@pytest.mark.slow
def test_on_a_terminal_it_serves_the_inspector_until_an_interrupt(
    environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "short.jsonl"
    path.write_text("\n".join(play_lines("My boat is called Gaivota.", "Noted.", "It is blue.", "Nice.")))
    ours, terminal = os.openpty()
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-m", "eden_memory.cli.main", "try", "--conversation", str(path)],
            env={name: value for name, value in environment.items() if not name.endswith("DISPLAY")}
            | {"EDEN_SERVE_PORT": str(taken), "COLUMNS": "200"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        said = read_terminal(ours, until="all that the demo started")
    try:
        found = re.search(r"the inspector: (http://127\.0\.0\.1:(\d+)/ui)", said)
        assert found is not None, said
        assert f"port {taken} is taken: the inspector moves to {found[2]}" in said
        with urlopen(found[1]) as page:
            shown = page.read().decode()
        assert "Gaivota" in shown
        assert "· remembered " in shown
        assert len(processes_in(environment)) == 3
    finally:
        os.kill(process.pid, signal.SIGINT)
        said = read_terminal(ours)
        code = process.wait(SOON)
    assert code == 0, said
    assert "stopped; nothing was left running" in said
    assert processes_in(environment) == []


def read_terminal(descriptor: int, until: str | None = None) -> str:
    """Read what a program prints on a terminal, up to a text or to the program's end."""
    said = b""
    while until is None or until.encode() not in said:
        assert select.select([descriptor], [], [], SOON)[0], said.decode()
        try:
            said += os.read(descriptor, 65_536)
        except OSError:  # nobody has the terminal any more
            assert until is None, said.decode()
            os.close(descriptor)
            break
    return said.decode()


@pytest.mark.slow
def test_it_stops_at_its_cap_in_the_midst_of_writing_and_shows_what_was_formed_by_then(
    environment: dict[str, str],
) -> None:
    with model_server_process(base_seconds=0.2) as models:
        asks = {"OPENAI_API_KEY": "nobody's", "OPENAI_BASE_URL": models.openai_url}
        process = demo(environment | asks, "--rate", "4", "--llm", "openai", "--cap", "0.0001")
        said, _ = process.communicate(timeout=SOON)
        asked = models.counts()["calls"]
    plain = " ".join(said.split())
    assert process.returncode == 1, said
    assert "281 messages go to openai" in plain
    assert "it stops at 0.0001 USD (--cap)" in plain
    assert "that may not be enough for all of it" in plain
    assert "not everything was formed" in plain
    written = re.search(r"messages (\d+) (\d+)", plain)
    assert written is not None, said
    assert 45 <= int(written[1]) < 281
    assert 1 <= asked["facts"] < 8
    assert "Traceback" not in said
    assert processes_in(environment) == []


def test_without_the_key_it_ends_before_it_starts_anything(environment: dict[str, str]) -> None:
    nobodys = {name: value for name, value in environment.items() if name != "OPENAI_API_KEY"}
    process = demo(nobodys, "--llm", "openai")
    said, _ = process.communicate(timeout=SOON)
    assert process.returncode == 1
    assert "there is no key for it" in said
    assert "MongoDB and Kafka start" not in said


@pytest.mark.slow
def test_local_takes_a_model_of_a_server_on_this_machine_and_forms_memory_with_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "short.jsonl"
    path.write_text(
        "\n".join(play_lines("My boat is called MARK-7 Gaivota.", "Noted.", "It is blue.", "Nice."))
    )
    with model_server_process(local="ollama", models=("llama3.2:3b",), context_tokens=8_192) as models:
        asks = {
            "EDEN_LLM": models.openai_url,
            "OPENAI_API_KEY": "nobody's",
            "EDEN_MODELS_PAID": "openai:gpt-5.1",
        }
        process = demo(environment | asks, "--llm", "local", "--conversation", str(path), "--yes")
        said, _ = process.communicate(timeout=SOON)
        asked = models.counts()["calls"]
    plain = " ".join(said.split())
    assert process.returncode == 0, said
    assert "Ollama at 127.0.0.1:" in plain
    assert "llama3.2:3b" in plain
    assert "it takes 8,192 tokens at once" in plain
    assert "EDEN_MODELS_AT_ONCE=1" in plain
    assert "Gaivota" in said
    assert asked["facts"] >= 1
    assert asked["reflections"] >= 1


def test_local_without_a_server_ends_before_anything_starts(environment: dict[str, str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        process = demo(environment | {"EDEN_LLM": nobody}, "--llm", "local")
        said, _ = process.communicate(timeout=SOON)
    assert process.returncode == 1
    assert "no model server answers at 127.0.0.1:" in said
    assert "Traceback" not in said
    assert "MongoDB and Kafka start" not in said


def play_lines(*texts: str) -> Iterator[str]:
    """A conversation of one session, the user first."""
    for number, text in enumerate(texts):
        role = ("user", "assistant")[number % 2]
        at = f"2026-05-04T09:0{number}:00Z"
        yield json.dumps({"session": "s", "user": "ana", "role": role, "content": text, "created_at": at})


async def played(settings: Settings, servers: TestServers, conversation: Conversation) -> play.DemoOutcome:
    found = Endpoints(servers.mongodb_uri, servers.kafka_bootstrap)
    plan = play.DemoPlan(conversation, own=True, rate=500, keep=False, cap_usd=0.0)
    return await play.play(settings, found, plan, Silent())


async def test_a_conversation_of_ones_own_is_formed_without_people_or_expectations(
    settings: Settings, servers: TestServers, small: Conversation
) -> None:
    outcome = await played(settings, servers, small)
    assert outcome.finished
    assert outcome.summary.complete
    assert outcome.progress.windows == 1
    assert outcome.progress.decisions["ADD"] >= 1
    assert "Gothenburg" in outcome.example.context
    assert outcome.verdict is None


@pytest.mark.slow
async def test_a_demo_after_one_that_was_kept_begins_anew(
    settings: Settings, servers: TestServers, small: Conversation, tmp_path: Path
) -> None:
    found = Endpoints(servers.mongodb_uri, servers.kafka_bootstrap)
    kept = play.DemoPlan(small, own=True, rate=500, keep=True, cap_usd=0.0)
    first = await play.play(settings, found, kept, Silent())
    assert first.finished
    assert "Gothenburg" in first.example.context
    line = {
        "session": "another",
        "user": "ana",
        "role": "user",
        "content": "I live in Porto and I am allergic to nuts.",
        "created_at": "2026-05-04T09:00:00Z",
    }
    path = tmp_path / "another.jsonl"
    path.write_text(json.dumps(line))
    view = Noting()
    plan = play.DemoPlan(read_conversation(path), own=True, rate=500, keep=True, cap_usd=0.0)
    second = await play.play(settings, found, plan, view)
    here = system_process.own_settings(settings, found, play.DATABASE, play.PREFIX, [])
    with MongoClient[dict[str, Any]](servers.mongodb_uri) as client:
        given_up = list(client[play.DATABASE][here.names["dead_letters"]].find())
        client.drop_database(play.DATABASE)
    admin = TopicAdmin(admin_config(here.kafka, found.kafka))
    admin.delete(admin.names(play.PREFIX))
    assert any("an earlier demo left is removed" in note for note in view.notes)
    assert second.finished
    assert second.summary.complete
    assert second.progress.windows == 1
    assert not given_up
    assert "Porto" in second.example.context
    assert "Gothenburg" not in second.example.context


async def test_a_system_that_ends_is_shown_with_what_it_said(
    settings: Settings, servers: TestServers, small: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (sys.executable, "-c", "raise SystemExit('no such thing')")
    monkeypatch.setattr(system_process, "COMMAND", words)
    with pytest.raises(EdenError, match=r"eden run ended with 1:\nno such thing"):
        await played(settings, servers, small)


@pytest.mark.slow
async def test_messages_that_never_arrive_are_missing(
    settings: Settings, servers: TestServers, small: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_process, "COMMAND", (sys.executable, "-c", WATERMARKS_ONLY))
    monkeypatch.setattr(play, "QUIET_SECONDS", 1.0)
    monkeypatch.setattr(completion, "FORMED_QUIET_SECONDS", 5.0)  # in which many Watermarks come
    async with asyncio.timeout(SOON):
        outcome = await played(settings, servers, small)
    assert outcome.summary.missing == [message.id for message in small.messages]
    assert not outcome.summary.complete
    assert not outcome.finished


@pytest.mark.slow
async def test_it_gives_up_where_no_model_answers(
    settings: Settings, servers: TestServers, small: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "FORMED_QUIET_SECONDS", 15.0)  # in which calls fail, and Watermarks come
    monkeypatch.setenv("EDEN_MODELS_TIMEOUT_SECONDS", "1")
    for name in ("FAST", "FREE", "PAID"):
        monkeypatch.setenv(f"EDEN_MODELS_{name}", "small")
    monkeypatch.setenv("EDEN_EMBEDDER", "local")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
        named = Settings(llm=nobody)
        given = {"llm": nobody, "models": named.models, "embedder": "local"}
        async with asyncio.timeout(SOON):
            outcome = await played(settings.model_copy(update=given), servers, small)
    assert outcome.summary.complete
    assert not outcome.finished
    assert outcome.progress.total.failed >= 1


@pytest.mark.slow
async def test_watermarks_and_failed_calls_are_no_progress_and_answers_are(
    settings: Settings, database: AsyncDatabase[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "FORMED_QUIET_SECONDS", 3.0)
    calls, progress = CallTotals(), FormationProgress()
    progress.spent["fact-extraction"] = calls
    waiting = asyncio.create_task(completion.formed(database, settings.names, 1, progress, 1.0))
    for tick in range(25):
        calls.calls += 1
        calls.failed += tick % 2
        progress.lag = {"fact-extraction": 1, "formation-trigger": tick % 2}
        await asyncio.sleep(0.2)
    assert not waiting.done(), "calls were answered"
    until = time.monotonic() + 10
    while not waiting.done() and time.monotonic() < until:
        calls.calls += 1
        calls.failed += 1
        progress.lag = {"fact-extraction": 1, "formation-trigger": calls.calls % 2, "usage": calls.calls % 2}
        await asyncio.sleep(0.2)
    assert waiting.done(), "nothing but failed calls and Watermarks came"
    assert not await waiting


async def test_a_database_that_is_not_the_demos_is_left_alone(
    settings: Settings, servers: TestServers, small: Conversation
) -> None:
    with MongoClient[dict[str, Any]](servers.mongodb_uri) as client:
        client[play.DATABASE]["precious"].insert_one({"_id": 1})
        with pytest.raises(EdenError, match="was not made by the demo"):
            await played(settings, servers, small)
        assert client[play.DATABASE]["precious"].count_documents({}) == 1
        client.drop_database(play.DATABASE)
