"""An application that keeps its memory with mem0 or Graphiti: one process, a turn at a time, as their guides show."""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.bench.peers_talk import Turn, meaning
from tests.model_server.serving import ModelServerProcess

CHILD = Path(__file__).with_name("peers_child.py")
PYTHON = Path(".eden/peers/bin/python")
KILLED_SECONDS = 0.3
"""What a model call takes while the process is killed in it."""
USERS = ("mara", "tomas", "priya")


@dataclass
class Outcome:
    """What a run left behind."""

    expected: set[str]
    stored: Counter[str | None] = field(default_factory=Counter[str | None])
    """Stored memories by the fact that they say."""
    reported: set[str] = field(default_factory=set[str])
    """Facts of calls that raised an exception, or that a dead letter names."""
    counts: dict[str, Any] = field(default_factory=dict[str, Any])
    kills: int = 0

    @property
    def missing(self) -> set[str]:
        return self.expected - set(self.stored)

    @property
    def silent(self) -> set[str]:
        """Missing without anybody being told."""
        return self.missing - self.reported

    @property
    def copies(self) -> int:
        return sum(number - 1 for fact, number in self.stored.items() if fact is not None)


class Peer:
    """A memory in the process of an application."""

    def __init__(self, kind: str, folder: Path, models: ModelServerProcess) -> None:
        self.kind, self._folder, self._models = kind, folder, models
        self._log = folder.with_suffix(".log")
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(str(PYTHON), str(CHILD), self.kind, str(self._folder)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._log.open("a"),
            limit=2**24,
            env={**os.environ, "PEERS_MODEL_URL": self._models.openai_url},
        )
        assert (await self._answer())["ready"]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """`result` or `error`, and `seconds`."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"call": name, **arguments}).encode() + b"\n")
        return await self._answer()

    async def add(self, turn: Turn) -> dict[str, Any]:
        return await self.call("add", user=turn.user, messages=turn.messages)

    async def stored(self) -> Counter[str | None]:
        """By the fact that each memory says."""
        found: Counter[str | None] = Counter()
        for user in USERS:
            found.update(map(meaning, (await self.call("all", user=user))["result"]))
        return found

    async def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise ConnectionResetError(f"{self.kind} ended:\n{self._log.read_text()[-2_000:]}")
        return json.loads(line)


async def play(peer: Peer, models: ModelServerProcess, turns: tuple[Turn, ...]) -> Outcome:
    """All turns, one after the other; the application goes on after an exception."""
    outcome = Outcome({fact for turn in turns for fact in turn.facts})
    models.change(reset=True)
    for turn in turns:
        if "error" in await peer.add(turn):
            outcome.reported.update(turn.facts)
    outcome.counts = models.counts()
    outcome.stored = await peer.stored()
    return outcome


async def play_killed(
    peer: Peer,
    models: ModelServerProcess,
    turns: tuple[Turn, ...],
    kill_after: dict[Turn, int],
    *,
    again: bool,
) -> Outcome:
    """In some turns the process is killed, in the turn's nth model call, and started again.

    The application then goes on with the next turn, or (`again`) knows which one it was and says it once more.
    """
    outcome = Outcome({fact for turn in turns for fact in turn.facts})
    for turn in turns:
        if (nth := kill_after.get(turn)) is None:
            await peer.add(turn)
            continue
        models.change(base_seconds=KILLED_SECONDS)
        added = asyncio.create_task(peer.add(turn))
        if await in_call(models, nth, added):
            await peer.kill()
            outcome.kills += 1
            await asyncio.gather(added, return_exceptions=True)
            await peer.__aenter__()
            if again:
                await peer.add(turn)
        models.change(base_seconds=0.0)
    outcome.stored = await peer.stored()
    return outcome


async def killed_alone(
    peers: Callable[[], Peer], models: ModelServerProcess, kill_after: dict[Turn, int]
) -> Outcome:
    """Each turn alone in a memory of its own, which is only read after the kill.

    For Graphiti: Kuzu ends with a segmentation fault at the next write to a graph whose process was killed.
    """
    outcome = Outcome({fact for turn in kill_after for fact in turn.facts})
    models.change(base_seconds=KILLED_SECONDS)
    for turn, nth in kill_after.items():
        async with peers() as peer:
            added = asyncio.create_task(peer.add(turn))
            if await in_call(models, nth, added):
                await peer.kill()
                outcome.kills += 1
                await asyncio.gather(added, return_exceptions=True)
                await peer.__aenter__()
            outcome.stored.update(await peer.stored())
    models.change(base_seconds=0.0)
    return outcome


async def in_call(models: ModelServerProcess, nth: int, until: asyncio.Task[Any] | None = None) -> bool:
    """Wait for the nth request from now to be under way; False if the task ends before."""
    before = requests(models.counts())
    for _ in range(1_000):
        counts = models.counts()
        if requests(counts) >= before + nth and counts["running"]:
            return True
        if until is not None and until.done():
            return False
        await asyncio.sleep(0.01)
    return False


def requests(counts: dict[str, Any]) -> int:
    """All that reached the server, embeddings included."""
    return sum(counts["calls"].values())
