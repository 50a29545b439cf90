"""`eden` as a person runs it: a process of its own, told everything by its environment."""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from pathlib import Path

from eden_memory.settings import Settings
from tests.integration.system import forked_commands

EDEN = (sys.executable, "-m", "eden_memory.cli.main")


def environment(settings: Settings) -> dict[str, str]:
    """The settings that a test changes, as variables."""
    assert settings.mongodb.uri is not None
    assert settings.kafka.bootstrap is not None
    own = {
        "MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "MONGODB_DATABASE": settings.mongodb.database,
        "KAFKA_BOOTSTRAP": settings.kafka.bootstrap,
        "KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "KAFKA_GROUP_PREFIX": settings.kafka.group_prefix,
        "KAFKA_PARTITIONS": settings.kafka.partitions,
        "SESSIONS_COLLECTION": settings.sessions.collection,
        "SESSIONS_AGENT_ID": settings.sessions.agent_id,
        "AGENTS_DEFAULT": settings.agents.default,
        "USERS_COLLECTION": settings.users.collection,
        "GROUPS_COLLECTION": settings.groups.collection,
        "AGENTS_COLLECTION": settings.agents.collection,
        "LLM": settings.llm,
        "EMBEDDER": settings.embedder,
        "MODELS_FAST": settings.models.fast,
        "MODELS_FREE": settings.models.free,
        "MODELS_PAID": settings.models.paid,
        "MODELS_EMBEDDINGS": settings.models.embeddings,
        "TAILER_WATERMARK_SECONDS": settings.tailer.watermark_seconds,
        "MESSAGES_DELETE_GRACE_SECONDS": settings.messages.delete_grace_seconds,
        "TAILER_LEASE_SECONDS": settings.tailer.lease_seconds,
        "LOCAL_FOLDER": settings.local.folder,
        "HTTP_PORT": settings.http.port,
        "RECEIPTS_KEY": settings.local.folder / "receipts.key",
    }
    given = {f"EDEN_{name}": str(value) for name, value in own.items() if value is not None}
    return {**os.environ, **given, "PYTHONWARNINGS": "default"}


async def eden(settings: Settings, *arguments: str, seconds: float = 60.0) -> str:
    """What a command says; it must end well."""
    path = await asyncio.to_thread(forked_commands.address)
    answer, asking = await asyncio.open_unix_connection(path)
    asking.write(json.dumps([arguments, environment(settings), os.getcwd(), None]).encode() + b"\n")
    try:
        whole = await asyncio.wait_for(answer.read(), seconds)
    finally:
        asking.close()
    said, _, code = whole.rpartition(forked_commands.CODE)
    assert code == b"0", whole.decode()
    return said.decode()


def ended(
    folder: Path, environment: Mapping[str, str], *arguments: str, seconds: float = 60.0
) -> tuple[int, str, str]:
    """A command that may fail, run in a folder: its exit code, and what is on standard output and error."""
    errors = folder / "standard-error"
    request = json.dumps([arguments, dict(environment), str(folder), str(errors)]).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(seconds)
        asking.connect(forked_commands.address())
        asking.sendall(request)
        with asking.makefile("rb") as answer:
            said, _, code = answer.read().rpartition(forked_commands.CODE)
    return int(code), said.decode(), errors.read_text()


async def start(settings: Settings, log: Path, *arguments: str) -> Process:
    """A command that goes on, its output in a file."""
    with log.open("ab") as output:
        return await asyncio.create_subprocess_exec(
            *EDEN, *arguments, env=environment(settings), stdout=output, stderr=output
        )


async def kill(process: Process) -> None:
    """As `kill -9`."""
    if process.returncode is None:
        process.send_signal(signal.SIGKILL)
    await process.wait()
