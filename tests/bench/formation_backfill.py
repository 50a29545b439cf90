"""formation-trigger over messages that were there before: CPU a message, and its memory while it works.

`python -m tests.bench.formation_backfill [--messages N]`. Private servers. All messages are written before anything
runs: conversations of 50 messages, 400 at a time. Then `eden run tailer` reads them in and `eden run
formation-trigger` cuts windows, each in a process of its own.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.bench.chat_load import WORDS
from tests.bench.formation_load import BEGAN
from tests.bench.formation_run import Stand, cpu_seconds, running, stand
from tests.bench.report import Report, Row, by_time, memory_rows
from tests.model_server.serving import model_server_process
from tests.servers import TestServers, running_servers

EACH, AT_ONCE = 50, 400
"""Messages of a conversation; conversations at a time."""
WINDOWS_EACH = 2
"""45 messages by their number, and the last 5 when they are cold."""
BATCH, MOST_SECONDS = 10_000, 1_200.0
TARGET_US = 60.0


def history(messages: int) -> Iterator[list[dict[str, Any]]]:
    """Conversations side by side, a message of each every 30 s; the next ones follow when all have ended."""
    for start in range(0, messages, BATCH):
        yield [_message(number) for number in range(start, min(start + BATCH, messages))]


def _message(number: int) -> dict[str, Any]:
    round_, within = divmod(number, EACH * AT_ONCE)
    index, place = divmod(within, AT_ONCE)
    words = [WORDS[(number * 7 + step * 13) % len(WORDS)] for step in range(20)]
    session = round_ * AT_ONCE + place
    return {
        "_id": f"m-{number:08d}",
        "session_id": f"session-{session:06d}",
        "role": "assistant" if index % 2 else "user",
        "content": " ".join(words),
        "user_id": None if index % 2 else f"user-{session:06d}",
        "created_at": BEGAN + timedelta(hours=round_, seconds=30 * index),
    }


@dataclass(slots=True)
class Backfill:
    """What was seen of formation-trigger's process."""

    messages: int
    seconds: float = 0.0
    cpu: float = 0.0
    server_cpu: float = 0.0
    memory: list[float] = field(default_factory=list[float])
    """MB, twice a second."""
    unformed: int = 0


async def measured(servers: TestServers, messages: int) -> Backfill:
    """Write the messages, then run both parts until every message is in a window."""
    found = Backfill(messages)
    with model_server_process() as models, tempfile.TemporaryDirectory() as folder:
        async with stand(servers, models, {}) as made:
            for some in history(messages):
                await made.database["messages"].insert_many(some, ordered=False)
            with _part(made, folder, "tailer"), _part(made, folder, "formation-trigger") as process:
                began, cpu, served = time.monotonic(), cpu_seconds(process), await _server_cpu(made)
                while not await _formed(made, messages // EACH * WINDOWS_EACH):
                    if time.monotonic() - began > MOST_SECONDS:
                        break
                    found.memory.append(process.memory_info().rss / 1e6)
                    await asyncio.sleep(0.5)
                found.seconds, found.cpu = time.monotonic() - began, cpu_seconds(process) - cpu
                found.server_cpu = await _server_cpu(made) - served
            free = {"formation_id": None}
            found.unformed = await made.database["memory_messages"].count_documents(free)
            found.unformed += messages - await made.database["memory_messages"].count_documents({})
    return found


def _part(made: Stand, folder: str, name: str) -> Any:
    return running(made, Path(folder) / f"{name}.log", name)


async def _formed(made: Stand, windows: int) -> bool:
    """Whether all windows are stored and published."""
    if await made.database["memory_windows"].estimated_document_count() < windows:
        return False
    return await made.database["memory_sessions"].find_one({"unpublished": {"$exists": True}}) is None


async def _server_cpu(made: Stand) -> float:
    said: dict[str, Any] = (await made.mongo.admin.command("serverStatus"))["extra_info"]
    return (said["user_time_us"] + said["system_time_us"]) / 1e6


def report(found: Backfill) -> Report:
    """The table and the line for programs."""
    cpu_us, rates = found.cpu / found.messages * 1e6, found.messages / found.seconds
    memory = by_time(found.memory)
    return Report(
        bench="formation-backfill",
        title=f"formation-trigger over {found.messages:,} messages that were there before",
        results={
            "cpu_us": cpu_us,
            "messages_per_s": rates,
            "server_cpu_us": found.server_cpu / found.messages * 1e6,
            "unformed": float(found.unformed),
        }
        | {f"memory_mb_{number}": part for number, part in enumerate(memory, 1)},
        ratios={"cpu": cpu_us / TARGET_US, "memory_grown": memory[-1] / memory[0]},
        rows=[
            Row("CPU of formation-trigger", cpu_us, "µs a message", TARGET_US, "the target"),
            Row(
                "CPU of mongod, for tailer and trigger",
                found.server_cpu / found.messages * 1e6,
                "µs a message",
            ),
            Row("both together", rates, "messages/s"),
            Row("messages in no window", float(found.unformed), "messages"),
            *memory_rows(memory),
        ],
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000_000)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_servers(os.environ, Path(folder), Path(".eden/jars")) as servers,
    ):
        report(asyncio.run(measured(servers, given.messages))).show()


if __name__ == "__main__":
    main()
