"""`eden run` and `eden serve` as processes of their own, pointed at the demo's database and topics."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import get_args

from pydantic import SecretStr

from eden_memory.demo.conversation import PEOPLE
from eden_memory.errors import EdenError
from eden_memory.local.servers import Endpoints
from eden_memory.settings import MessagesSettings, MongoSettings, Role, Settings, SourceSettings

BESIDE = (sys.executable, "-m", "eden_memory.demo.beside_parent")
COMMAND = (*BESIDE, "run", "--new-source")
"""The demo begins with an empty collection; the topics may hold the messages of a demo that was kept."""
STOP_SECONDS, LINES = 15.0, 8
MAPPING = ("messages", *PEOPLE)
"""The groups of settings that name the application's collections and fields."""


class SystemProcess:
    """A running system; its log goes to a file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, name: str) -> None:
        self._process, self.log, self._name = process, log, name

    def said(self) -> str:
        """Return the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line[:400] for line in lines[-LINES:])

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.returncode is None

    async def watch(self) -> None:
        """Wait until cancelled; raise EdenError with the end of its log if it exits."""
        code = await self._process.wait()
        raise EdenError(f"{self._name} ended with {code}:\n{self.said()}", f"Its whole log is {self.log}.")

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if it does not end."""
        if not self.runs:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def running_system(
    environment: dict[str, str], log: Path, *, serve: bool = False
) -> AsyncGenerator[SystemProcess]:
    """Run `eden run` (or `eden serve`) for the block, in its own session: Ctrl-C reaches only this program.

    It also ends when this program is killed: its standard input ends then.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *((*BESIDE, "serve") if serve else COMMAND),
            env={**inherited(), **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    system = SystemProcess(process, log, "eden serve" if serve else "eden run")
    try:
        yield system
    finally:
        await system.stop()


def own_settings(
    settings: Settings, found: Endpoints, database: str, prefix: str, mapped: Collection[str]
) -> Settings:
    """Return the settings for a database and topics of the demo's own: the user's mapping does not apply to them.

    `mapped`: those of sessions, agents, users and groups that have a collection.
    """
    kafka = {"bootstrap": found.kafka, "topic_prefix": prefix, "group_prefix": prefix}
    names = {"database": database, "prefix": MongoSettings.model_fields["prefix"].default}
    people = {
        name: type(getattr(settings, name))(collection=name if name in mapped else None) for name in PEOPLE
    }
    return settings.model_copy(
        update={
            "kafka": settings.kafka.model_copy(update=kafka),
            "mongodb": settings.mongodb.model_copy(update={"uri": SecretStr(found.mongodb), **names}),
            "source": SourceSettings(database=database),
            "messages": MessagesSettings(
                roles={role: role for role in get_args(Role)},  # before those that eden.toml adds
                redact_secrets=settings.messages.redact_secrets,
            ),
            **people,
        }
    )


def environment(found: Endpoints, here: Settings) -> dict[str, str]:
    """Return every setting that names the demo's data, as in `here`; all others stay as the user has set them.

    A group in JSON stands before what eden.toml says of it, also where it says that there is no collection.
    """
    return {
        **{f"EDEN_{group.upper()}": getattr(here, group).model_dump_json() for group in MAPPING},
        "EDEN_MONGODB_URI": found.mongodb,
        "EDEN_MONGODB_DATABASE": here.mongodb.database,
        "EDEN_MONGODB_PREFIX": here.mongodb.prefix,
        "EDEN_SOURCE_DATABASE": here.source_database,
        "EDEN_KAFKA_BOOTSTRAP": found.kafka,
        "EDEN_KAFKA_TOPIC_PREFIX": here.kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": here.kafka.group_prefix,
        "EDEN_TAILER_WATERMARK_SECONDS": "1",
        # one workshop whose people trust each other: the agent shows what it learned from all of them
        "EDEN_MEMORY_SHARING": "team",
        "EDEN_LLM": here.llm,
    }


def inherited() -> dict[str, str]:
    """Return this process's environment without the user's own collections and fields."""
    mapping = tuple(f"EDEN_{group.upper()}" for group in MAPPING)
    return {name: value for name, value in os.environ.items() if not name.upper().startswith(mapping)}
