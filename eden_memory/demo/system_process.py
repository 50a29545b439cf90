"""The whole system as a process of its own, `eden run`, pointed at the demo's database and topics."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from eden_memory.errors import EdenError
from eden_memory.local.servers import Endpoints

COMMAND = (sys.executable, "-m", "eden_memory.demo.beside_parent", "run", "--new-source")
"""The demo begins with an empty collection; the topics may hold the messages of a demo that was kept."""
STOP_SECONDS, LINES = 15.0, 8
SHOWN_DAYS = "36500"
"""Age of the facts in contexts, at most: a demo shows what was said long before it is played."""


class SystemProcess:
    """A running system; its log goes to a file."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process, self.log = process, log

    def said(self) -> str:
        """Return the last lines of its log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(line[:400] for line in lines[-LINES:])

    async def watch(self) -> None:
        """Wait until cancelled; raise EdenError with the end of its log if it exits."""
        code = await self._process.wait()
        raise EdenError(f"eden run ended with {code}:\n{self.said()}", f"Its whole log is {self.log}.")

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL if it does not end."""
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def running_system(environment: dict[str, str], log: Path) -> AsyncGenerator[SystemProcess]:
    """Run the system for the block, in its own session, so that Ctrl-C reaches only this program.

    It also ends when this program is killed: its standard input ends then.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *COMMAND,
            env={**os.environ, **environment},
            stdin=asyncio.subprocess.PIPE,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    system = SystemProcess(process, log)
    try:
        yield system
    finally:
        await system.stop()


def environment(
    endpoints: Endpoints, database: str, prefix: str, mapped: Collection[str], llm: str
) -> dict[str, str]:
    """Return every setting that names the demo's data; connection settings stay.

    `mapped`: those of sessions, agents, users and groups that have a collection.
    """
    return {
        **{f"EDEN_{name.upper()}_COLLECTION": name for name in mapped},
        "EDEN_MONGODB_URI": endpoints.mongodb,
        "EDEN_MONGODB_DATABASE": database,
        "EDEN_SOURCE_DATABASE": database,
        "EDEN_KAFKA_BOOTSTRAP": endpoints.kafka,
        "EDEN_KAFKA_TOPIC_PREFIX": prefix,
        "EDEN_KAFKA_GROUP_PREFIX": prefix,
        "EDEN_MESSAGES_COLLECTION": "messages",
        "EDEN_MESSAGES_SESSION_ID": "session_id",
        "EDEN_MESSAGES_ROLE": "role",
        "EDEN_MESSAGES_CONTENT": "content",
        "EDEN_MESSAGES_USER_ID": "user_id",
        "EDEN_MESSAGES_CREATED_AT": "created_at",
        "EDEN_TAILER_WATERMARK_SECONDS": "1",
        # one workshop whose people trust each other: the agent shows what it learned from all of them
        "EDEN_MEMORY_SHARING": "team",
        "EDEN_MEMORY_CONTEXT_DAYS": SHOWN_DAYS,
        "EDEN_LLM": llm,
    }
