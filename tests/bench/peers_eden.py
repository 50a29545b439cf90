"""The same application beside Eden Memory: it writes messages, `eden run` is another process."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import psutil

from eden_memory.api import MemoryService
from tests.bench.formation_run import Stand, running, stand, until_followed
from tests.bench.peers_process import USERS, Outcome, in_call, requests
from tests.bench.peers_talk import Turn, meaning
from tests.model_server.serving import ModelServerProcess
from tests.servers import TestServers

MORE = {"EDEN_TAILER_WATERMARK_SECONDS": "10", "EDEN_MODELS_EMBEDDINGS": "text-embedding-3-small"}
AGENT = "default"
QUIET, LONGEST = 30.0, 240.0


class Eden:
    """A namespace with its running process."""

    def __init__(self, made: Stand, models: ModelServerProcess, log: Path, memory: MemoryService) -> None:
        self.made, self.models, self.memory = made, models, memory
        self._log, self._running = log, ExitStack()
        self._process: psutil.Process | None = None

    def start(self) -> None:
        """Return when `eden run` says that it is ready."""
        self._process = self._running.enter_context(running(self.made, self._log))

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._running.close()

    def stop(self) -> None:
        self._running.close()

    async def write(self, turn: Turn) -> float:
        """All that the chat path does; seconds."""
        now = datetime.now(UTC)
        of = {"session_id": turn.session, "created_at": now}
        users = {"user": turn.user, "assistant": None}
        began = time.perf_counter()
        await self.made.database["messages"].insert_many(
            [{**of, **one, "user_id": users[one["role"]]} for one in turn.messages]
        )
        return time.perf_counter() - began

    async def end(self, session: str) -> None:
        """Say that a session is over."""
        ended = {"kind": "session_ended", "session_id": session, "asked_by": "bench"}
        await self.made.database["memory_inbox"].insert_one(ended)

    async def stored(self) -> Counter[str | None]:
        """Active facts by what they say."""
        found: Counter[str | None] = Counter()
        for user in USERS:
            page = await self.memory.list_facts(user=user, limit=200)
            found.update(meaning(fact.content) for fact in page.items)
        return found

    async def settle(self, expected: set[str]) -> Counter[str | None]:
        """Wait until no model is asked any more: shortly if nothing is missing, else long enough for retries."""
        began = moved = time.monotonic()
        seen = -1
        while (now := time.monotonic()) - began < LONGEST:
            counts = self.models.counts()
            if counts["running"] or requests(counts) != seen:
                seen, moved = requests(counts), now
            complete = expected <= set(await self.stored())
            if now - moved > (5.0 if complete else QUIET):
                break
            await asyncio.sleep(0.25)
        return await self.stored()


@asynccontextmanager
async def eden(servers: TestServers, models: ModelServerProcess, folder: Path) -> AsyncGenerator[Eden]:
    """Its own database, topics and process."""
    async with (
        stand(servers, models, MORE) as made,
        MemoryService(AGENT, client=made.mongo, settings=made.settings) as memory,
    ):
        one = Eden(made, models, folder / "eden.log", memory)
        one.start()
        try:
            await until_followed(made)
            yield one
        finally:
            one.stop()


async def play(one: Eden, turns: tuple[Turn, ...], kill_after: dict[Turn, int] | None = None) -> Outcome:
    """Write all turns and end each session; kill the process where the others are killed.

    Nothing counts as reported: whatever were missing would be silent.
    """
    outcome = Outcome({fact for turn in turns for fact in turn.facts})
    one.models.change(reset=True)
    for place, turn in enumerate(turns):
        await one.write(turn)
        await asyncio.sleep(0.02)
        if place + 1 == len(turns) or turns[place + 1].session != turn.session:
            await one.end(turn.session)
            if nths := [nth for of, nth in (kill_after or {}).items() if of.session == turn.session]:
                outcome.kills += await _killed(one, nths)
    outcome.stored = await one.settle(outcome.expected)
    outcome.counts = one.models.counts()
    return outcome


async def _killed(one: Eden, nths: list[int]) -> int:
    """One kill for each, as far as there are calls to be killed in."""
    kills = 0
    for nth in nths:
        if await in_call(one.models, nth):
            one.kill()
            kills += 1
            one.start()
    return kills


async def freshness(
    one: Eden, turns: tuple[Turn, ...], statements: dict[str, str]
) -> tuple[list[float], ...]:
    """Seconds that the chat path waits, and from the session's end to the fact in the context."""
    blocked: list[float] = []
    fresh: list[float] = []
    await one.memory.memory.ready()
    for number, turn in enumerate(turns):
        alone = Turn(f"s-fresh-{number}", turn.user, turn.messages)
        blocked.append(await one.write(alone))
        await one.end(alone.session)
        began = time.perf_counter()
        while not _holds(await _context(one, turn.user), [statements[fact] for fact in turn.facts]):
            if time.perf_counter() - began > LONGEST:
                raise SystemExit(f"not in the context: {turn.facts}")
            await asyncio.sleep(0.01)
        fresh.append(time.perf_counter() - began)
    return blocked, fresh


def _holds(context: str, texts: list[str]) -> bool:
    return all(text in unescape(context) for text in texts)


async def _context(one: Eden, user: str) -> str:
    """What the agent reads in the user's next session."""
    return await one.memory.get_memory_context("s-next", user)
