"""Another namespace becomes live under load: no read fails, nothing is formed twice or lost, all stay true."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from eden_memory.api.http.serving import DoorsServer
from eden_memory.api.http.serving import serving as serving_doors
from eden_memory.api.service import MemoryService
from eden_memory.app import system as app
from eden_memory.assembly.supervisor import LiveParts
from eden_memory.errors import EdenError
from eden_memory.names import ORIGINAL, Placement
from eden_memory.processors import pipeline
from eden_memory.replay.installation import Installation, installation
from eden_memory.replay.namespaces.dropping import drop
from eden_memory.replay.namespaces.switching import rollback, switch
from eden_memory.replay.rebuild.namespace_rebuild import filling, verify
from eden_memory.settings import Settings
from tests.integration.replay.replay_kit import ignored
from tests.integration.system.obedient_model import obey
from tests.integration.system.running_system import AGENT, MODEL_NAMES, System, fast, system, until
from tests.model_server.serving import serving

pytestmark = pytest.mark.servers
MAY = "may"
RUNS, MOVES = "stage runs", "another namespace is live"
"""What `eden run` says of each of its stages, and between the parts of one namespace and those of the other."""
READERS = 4
NOTICES = 20
"""A switch is seen in so many times what a change stream takes to say that something was written."""


@asynccontextmanager
async def running(settings: Settings) -> AsyncGenerator[LiveParts]:
    """What `eden run` runs."""
    async with app.following(settings, ()) as placed:
        task = asyncio.create_task(placed.run())
        try:
            yield placed
        finally:
            placed.stop()
            async with asyncio.timeout(60):
                await task


@asynccontextmanager
async def everything(settings: Settings) -> AsyncGenerator[tuple[System, LiveParts]]:
    async with (
        serving(obey) as models,
        system(fast(settings, models), models, run=False) as found,
        running(found.settings) as placed,
    ):
        yield found, placed


async def rebuilt(settings: Settings, name: str = MAY) -> None:
    """`eden rebuild NAME --verify`."""
    async with installation(settings) as at, filling(at, name, ignored) as work:

        async def equal() -> None:
            verdict = await verify(at, work)
            assert verdict.equal, "\n".join(map(str, verdict.differences))

        await work.run(equal, follow=False)


class Held:
    """The facts of one namespace."""

    def __init__(self, found: System, placement: Placement) -> None:
        names = placement.names(found.settings.mongodb.prefix)
        self.facts = found.database[names["facts"]]
        self.contexts = found.database[names["contexts"]]

    async def texts(self) -> list[str]:
        return sorted([row["content"] async for row in self.facts.find({"active": True})])

    async def holds(self, *texts: str) -> None:
        async def so() -> bool:
            return await self.texts() == sorted(texts)

        try:
            await until(so, "")
        except AssertionError:
            assert await self.texts() == sorted(texts)


@asynccontextmanager
async def served(settings: Settings) -> AsyncGenerator[str]:
    """What `eden serve` runs."""
    serve = settings.serve.model_copy(update={"port": 0})
    async with serving_doors(settings.model_copy(update={"serve": serve})) as parts:
        doors = next(one for one in parts if isinstance(one, DoorsServer))
        task = asyncio.create_task(doors.run())
        await until(lambda: _true(doors.server.started or task.done()), "listening")
        try:
            yield f"http://127.0.0.1:{doors.server.servers[0].sockets[0].getsockname()[1]}"
        finally:
            doors.stop()
            await task


class Readers:
    """Read all the time, by every call; what fails is kept, and when each first read what."""

    def __init__(self, service: MemoryService, session: str, user: str) -> None:
        self._service = service
        self._who: dict[str, Any] = {"session": session, "user": user}
        self.failed: list[str] = []
        self.reads = self.asked = 0
        self._stopping = False

    async def read(self) -> None:
        calls: Sequence[Callable[[], Awaitable[Any]]] = [
            lambda: self._service.get_memory_context(**self._who),
            lambda: self._service.list_facts(**self._who),
            lambda: self._service.search_facts("told", **self._who),
            lambda: self._service.get_memory_stats(**self._who),
        ]
        while not self._stopping:
            for call in calls:
                try:
                    found = await call()
                    assert found, "something is remembered"
                except Exception as error:  # noqa: BLE001 - whatever fails is counted
                    self.failed.append(repr(error))
                self.reads += 1
            await asyncio.sleep(0.01)

    async def ask(self, url: str) -> None:
        """The context, by HTTP."""
        path = f"/v1/agents/{AGENT}/context"
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            while not self._stopping:
                answer = await client.get(path, params=self._who)
                if answer.status_code != 200 or "told one" not in answer.text:
                    self.failed.append(f"{answer.status_code} {answer.text}")
                self.asked += 1
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def reading(self, url: str) -> AsyncGenerator[None]:
        tasks = [asyncio.create_task(self.read()) for _ in range(READERS)]
        tasks.append(asyncio.create_task(self.ask(url)))
        try:
            yield
        finally:
            self._stopping = True
            await asyncio.gather(*tasks)


@pytest.mark.slow
async def test_readers_and_stages_move_with_the_pointer_and_no_read_fails(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    async with everything(settings) as (found, placed):
        here, there = Held(found, Placement()), Held(found, Placement(MAY))
        session = await found.session("ana")
        told = "fact user: told one"
        (first,) = await found.told(session, "ana", told)
        await rebuilt(found.settings)
        await there.holds("told one")

        readers = Readers(found.service, session, "ana")
        took, notices = list[float](), list[float]()
        async with served(found.settings) as url, readers.reading(url), installation(found.settings) as at:
            await until(lambda: _true(readers.reads > 50 < readers.asked), "reading")
            for number in range(2):
                if number % 2:
                    await rollback(at)
                else:
                    await switch(at, MAY)
                switched = time.perf_counter()
                to = Placement() if number % 2 else Placement(MAY)
                await until(lambda to=to: _true(found.service.memory.settings.placement == to), "read")
                took.append(time.perf_counter() - switched)
                notices.append(await noticed(found))
            with pytest.raises(EdenError, match="live already"):
                await switch(at, ORIGINAL)
            await switch(at, MAY)
        assert readers.failed == []
        await until(lambda: _true(placed.state().ready and placed.state().what == MAY), "stages moved")
        with capsys.disabled():
            said = ", ".join(f"{one * 1_000:.0f}" for one in took)
            reads = f"{readers.reads} reads and {readers.asked} by HTTP"
            print(f"\nswitches seen after {said} ms, {reads}, none failed")  # noqa: T201 - figures for people
        assert sorted(took)[len(took) // 2] < NOTICES * sorted(notices)[len(notices) // 2]

        await found.write(session, "ana", "fact user: told two", "note session: asked twice")
        await found.form(session)
        await there.holds("told one", "told two")
        await here.holds("told one", "told two")
        assert "told two" in await found.shows(session, "ana", "told one", "told two")
        await until(lambda: _shown(there, "told two"), "the ready context of the new namespace")

        await found.forget("message", first)
        await there.holds("told two")
        await here.holds("told two")
        async with installation(found.settings) as at:
            await rollback(at)
        await until(
            lambda: _true(placed.state().what == ORIGINAL and placed.state().ready), "stages are back"
        )
        await found.forget("session", session)
        await here.holds()
        await there.holds()
        async with installation(found.settings) as at:
            await _dropped(at, found)


async def noticed(found: System, times: int = 5) -> float:
    """Seconds from a write to its notice by a change stream, the median."""
    collection, took = found.database["noticed"], list[float]()
    async with await collection.watch(max_await_time_ms=500) as stream:
        for _ in range(times):
            begun = time.perf_counter()
            await collection.insert_one({})
            await anext(stream)
            took.append(time.perf_counter() - begun)
    return sorted(took)[times // 2]


async def _shown(held: Held, text: str) -> bool:
    return await held.contexts.count_documents({"xml": {"$regex": text}}) > 0


async def _dropped(at: Installation, found: System) -> None:
    """Live stays; what is beside it goes, though a running process writes it."""
    with pytest.raises(EdenError, match="is live"):
        await drop(at, ORIGINAL)
    await drop(at, MAY)
    left = await found.database.list_collection_names()
    assert not [one for one in left if "ns_may" in one]
    assert found.settings.names["facts"] in left
    with pytest.raises(EdenError, match="no namespace may"):
        await switch(at, MAY)
    with pytest.raises(EdenError):
        await rollback(at)


async def _true(value: bool) -> bool:
    return value


async def test_a_first_call_finds_what_is_live(settings: Settings) -> None:
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as found:
        async with running(found.settings):
            session = await found.session("ana")
            await found.told(session, "ana", "fact user: told one")
            await rebuilt(found.settings)
        await found.memory("facts").delete_many({})
        await found.memory("snapshots").delete_many({})
        async with installation(found.settings) as at:
            await switch(at, MAY)
        async with MemoryService(AGENT, settings=found.settings) as service:
            assert "told one" in await service.get_memory_context(session, "ana")
            assert [one.content for one in (await service.list_facts(user="ana")).items] == ["told one"]


def environment(settings: Settings) -> dict[str, str]:
    """For `eden run` in a process of its own."""
    assert settings.mongodb.uri is not None
    assert settings.embedder is not None
    return {
        "EDEN_MONGODB_URI": settings.mongodb.uri.get_secret_value(),
        "EDEN_MONGODB_DATABASE": settings.mongodb.database,
        "EDEN_KAFKA_BOOTSTRAP": str(settings.kafka.bootstrap),
        "EDEN_KAFKA_TOPIC_PREFIX": settings.kafka.topic_prefix,
        "EDEN_KAFKA_GROUP_PREFIX": settings.kafka.group_prefix,
        "EDEN_KAFKA_PARTITIONS": str(settings.kafka.partitions),
        "EDEN_SESSIONS_COLLECTION": "sessions",
        "EDEN_USERS_COLLECTION": "users",
        "EDEN_LLM": settings.llm,
        "EDEN_EMBEDDER": settings.embedder,
        **{f"EDEN_MODELS_{name.upper()}": model for name, model in MODEL_NAMES.items()},
        "EDEN_TAILER_WATERMARK_SECONDS": "0.5",
        "EDEN_RUN_DRAIN_SECONDS": "5",
    }


class Killed:
    """`eden run` in a process of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process, self._log = process, log

    async def says(self, words: str, times: int = 1) -> None:
        """Wait until it has said so."""
        await until(lambda: _true(self._log.read_text().count(words) >= times), f"{words!r} {times} times")

    async def before_it_knows(self, switched: Awaitable[object]) -> None:
        """The switch, behind its back."""
        self._process.send_signal(signal.SIGSTOP)
        await switched

    async def as_it_moves(self, switched: Awaitable[object]) -> None:
        """The switch, until its former parts have ended."""
        await switched
        await self.says(MOVES)

    async def once_it_has_moved(self, switched: Awaitable[object]) -> None:
        """The switch, until every part runs anew."""
        parts = self._log.read_text().count(RUNS)
        await switched
        await self.says(RUNS, 2 * parts)


def started(settings: Settings, log: Path) -> "subprocess.Popen[bytes]":
    """`eden run`, its output in a file."""
    command = [sys.executable, "-m", "eden_memory.cli.main", "run"]
    given = {**os.environ, **environment(settings)}
    with log.open("wb") as output:
        return subprocess.Popen(command, env=given, stdout=output, stderr=output)


@asynccontextmanager
async def process(settings: Settings, log: Path) -> AsyncGenerator[Killed]:
    """`eden run`, killed at the end of the block; begun when all its stages run."""
    running = started(settings, log)
    try:
        killed = Killed(running, log)
        await killed.says(RUNS, len(pipeline.NAMES))
        yield killed
    finally:
        running.kill()
        await asyncio.to_thread(running.wait)


async def test_eden_run_killed_around_switches_loses_and_doubles_nothing(
    settings: Settings, tmp_path: Path
) -> None:
    async with serving(obey) as models, system(fast(settings, models), models, run=False) as found:
        session, told, log = await found.session("ana"), ["told 0"], tmp_path / "run.log"
        async with process(found.settings, log):
            await found.told(session, "ana", "fact user: told 0")
            await rebuilt(found.settings)
        kills = (Killed.before_it_knows, Killed.as_it_moves, Killed.once_it_has_moved)
        for to, kill in zip((MAY, ORIGINAL, MAY), kills, strict=True):
            async with process(found.settings, log) as running, installation(found.settings) as at:
                told.append(f"told {len(told)}")
                await found.write(session, "ana", f"fact user: {told[-1]}")
                await found.form(session)
                await kill(running, switch(at, to))
        async with process(found.settings, log):
            for placement in (Placement(MAY), Placement()):
                await Held(found, placement).holds(*told)
            forms = await found.memory("facts").count_documents({})
            assert forms == len(told), "nothing was formed twice and retired"
