"""`eden tap` on real Kafka: what it shows, what it leaves out, what a terminal never gets to obey."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.settings import Settings
from tests.integration.subscribing.published import NOON, Writing, writing

pytestmark = pytest.mark.servers
HOSTILE = "\x1b]0;owned\x07 \x9b31m red \u202e\u2066 line\nbreak"


@pytest.fixture
async def topics(settings: Settings) -> AsyncGenerator[Writing]:
    async with writing(settings) as ready:
        yield ready


@pytest.fixture
def environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    named = {
        "EDEN_KAFKA_BOOTSTRAP": settings.kafka.bootstrap or "",
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "EDEN_MONGODB_URI": "mongodb://127.0.0.1:1",
    }
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    return {**os.environ, **named}


async def _tapped(*arguments: str) -> str:
    """What the command prints in colour, run in this process."""
    run = partial(CliRunner().invoke, app, ["tap", *arguments, "--until-end"], color=True)
    result = await asyncio.to_thread(run)
    assert result.exit_code == 0, result.output
    return result.stdout


async def _rows(*arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await _tapped(*arguments, "--json")).splitlines()]


async def test_records_are_shown_whole_filtered_and_without_a_group(
    topics: Writing, environment: dict[str, str]
) -> None:
    written = await topics.examples("memory.facts")
    await asyncio.sleep(0.002)  # the broker's times are whole milliseconds
    between = datetime.now(UTC)
    later = topics.envelope("FactChanged", "late", "f9", "agent:s.a")
    headers = [
        (name, b"2026-02-01T00:00:00.000Z" if name == "ce_time" else value) for name, value in later.headers()
    ]
    await topics.record("memory.facts", b"f9@1", b'{"text": "later"}', headers)

    rows = await _rows("memory.facts")
    assert len(rows) == written + 1
    (gone,) = [row for row in rows if row["data"] is None]
    assert (gone["type"], gone["reason"]) == ("eden.FactChanged.v1", "forgotten")
    assert all(row["data"]["text"] for row in rows if row is not gone)

    tombstones = await _rows("memory.facts", "--type", "tombstone")
    recent = await _rows("memory.facts", "--since", (NOON + timedelta(days=1)).isoformat())
    agents = await _rows("memory.facts", "--scope", "agent:*", "--type", "FactChanged.v1")
    late = await _rows("memory.facts", "--from", between.isoformat())
    assert [row["offset"] for row in tombstones] == [gone["offset"]]
    assert [row["subject"] for row in recent] == ["f9"]
    assert agents == [row for row in rows if row["orderingkey"].startswith("agent:")]
    assert len(late) == 1
    assert await topics.groups() == []


async def test_nothing_in_a_record_reaches_the_terminal_as_a_command(
    topics: Writing, environment: dict[str, str]
) -> None:
    about = topics.envelope("FactChanged", "1", "f1", "user:s.a:s.u")
    await topics.record("memory.facts", b"f1@1", json.dumps({"text": HOSTILE}).encode(), about.headers())
    await topics.record("memory.facts", HOSTILE.encode(), HOSTILE.encode() + b"\xff", [("ce_id", b"\x1b[2J")])
    hostile_subject = topics.envelope("FactChanged", "2", HOSTILE, HOSTILE)
    await topics.record("memory.facts", b"f2@1", None, hostile_subject.headers())
    for mode in ([], ["--json"]):
        shown = re.sub("\x1b\\[(2|36|0)m", "", await _tapped("memory.facts", *mode))  # our own colours
        assert len(shown.splitlines()) == 3
        assert "owned" in shown
        for character in set(HOSTILE) - set("]; ") - set("\n"):
            assert character.isalnum() or character not in shown


@pytest.mark.slow
async def test_on_a_terminal_a_record_is_a_heading_with_whole_words_below(
    topics: Writing, environment: dict[str, str]
) -> None:
    text = "The oars of the Gaivota are two metres and sixty long. " * 4
    about = topics.envelope("FactChanged", "1", "f" * 32, "user:s.agent:s.rui")
    await topics.record("memory.facts", b"f1@1", json.dumps({"text": text}).encode(), about.headers())
    shown = re.sub(
        "\x1b\\[\\d+m", "", await asyncio.to_thread(_on_a_terminal, {**environment, "COLUMNS": "60"})
    )
    heading, *below = shown.splitlines()
    assert "FactChanged" in heading
    assert max(map(len, below)) <= 60
    assert all(line.startswith("  ") for line in below)
    assert " ".join(line.strip() for line in below).startswith(f"{'f' * 32} user:s.agent:s.rui")
    assert " ".join(line.strip() for line in below).endswith(f"text={text.strip()}")


def _on_a_terminal(environment: dict[str, str]) -> str:
    """What the command writes to a terminal of its own."""
    ours, theirs = os.openpty()
    command = (sys.executable, "-m", "eden_memory.cli.main", "tap", "memory.facts", "--until-end")
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=theirs) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # EIO, once the command has ended
            while piece := os.read(ours, 4096):
                shown += piece
        assert process.wait(60) == 0
    os.close(ours)
    return shown.decode().replace("\r\n", "\n")


BEHIND_A_SHELL = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
"""Starts a command as `nohup command &` does: with Ctrl-C ignored."""


@pytest.mark.parametrize(
    "before",
    [
        pytest.param((), id="on a terminal"),
        pytest.param(BEHIND_A_SHELL, id="behind a shell", marks=pytest.mark.slow),
    ],
)
async def test_it_follows_until_ctrl_c_whatever_started_it(
    topics: Writing, environment: dict[str, str], before: tuple[str, ...]
) -> None:
    command = (*before, sys.executable, "-m", "eden_memory.cli.main", "tap", "memory.reflections", "--json")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    written = await topics.examples("memory.reflections")
    async with asyncio.timeout(60):
        lines = [await process.stdout.readline() for _ in range(written)]
    assert all(json.loads(line)["type"] for line in lines)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(60):
        _, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")


async def test_an_unknown_topic_is_answered_with_the_known_ones(environment: dict[str, str]) -> None:
    result = await asyncio.to_thread(CliRunner().invoke, app, ["tap", "memory.nothing"])
    assert "memory.facts" in str(result.exception)
