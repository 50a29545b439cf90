"""No task of a running process dies unseen: its error ends the process, or the task goes on."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any

import httpx2
import pytest

from eden_memory.api.http.serving import serving
from eden_memory.app.system import PARTS, following
from eden_memory.local import server
from eden_memory.settings import HttpSettings, RunSettings, ServeSettings, Settings
from eden_memory.stages.health_server import HealthServer
from eden_memory.stages.process import Process, ProcessPart, Signals
from tests.awaiting import until
from tests.integration.system.running_system import prepare

pytestmark = pytest.mark.servers
PART: ContextVar[str] = ContextVar("PART", default="-")
STEADY_SECONDS = 0.5
"""So long nothing new has started when a process counts as running."""
ENDING_SECONDS = 2.0
"""A task that ends does so within this time: after it, one that is there goes on."""
Kind = tuple[str, str]
"""The class of the part that started a task, and the task's coroutine."""


class Killed(Exception):  # noqa: N818 - reads as what happened
    """What a defect of ours would raise."""


class Tasks:
    """The tasks of our own that run, by the part that started them."""

    def __init__(self) -> None:
        self._owners: dict[asyncio.Task[Any], str] = {}
        self._began_at = 0.0

    def make(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
        """The loop's task factory."""
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **named)
        if is_ours(coroutine):
            self._owners[task] = PART.get()
            if self.kind(task) not in {self.kind(known) for known in self._owners if known is not task}:
                self._began_at = time.monotonic()
            task.add_done_callback(lambda done: self._owners.pop(done, None))
        return task

    def kind(self, task: asyncio.Task[Any]) -> Kind:
        coroutine: Any = task.get_coro()
        return self._owners[task], coroutine.__qualname__

    def running(self) -> dict[Kind, asyncio.Task[Any]]:
        return {self.kind(task): task for task in self._owners if waiter_of(task) is not None}

    def steady(self) -> bool:
        return time.monotonic() - self._began_at > STEADY_SECONDS


def is_ours(coroutine: Any) -> bool:
    """Whether it is a coroutine of our own; a part's is not: the process waits for that itself."""
    code = getattr(coroutine, "cr_code", None)
    return code is not None and "/eden_memory/" in code.co_filename


def waiter_of(task: asyncio.Task[Any]) -> "asyncio.Future[Any] | None":
    """What it waits for, through the tasks that it waits for; None while it runs."""
    waiter: asyncio.Future[Any] | None = task
    while isinstance(waiter, asyncio.Task):
        waiter = getattr(waiter, "_fut_waiter")  # noqa: B009 - of the library
    return waiter if waiter is not None and not waiter.done() else None


def without_a_log(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Take errors of killed tasks whenever they are collected as garbage.

    To log them parses source; where that happens while Pydantic parses a class, CPython 3.11 raises SystemError.
    """


@contextmanager
def noted() -> Generator[Tasks]:
    tasks, loop = Tasks(), asyncio.get_running_loop()
    loop.set_task_factory(tasks.make)
    loop.set_exception_handler(without_a_log)
    try:
        yield tasks
    finally:
        loop.set_task_factory(None)
        loop.set_exception_handler(None)


def marked(part: ProcessPart) -> ProcessPart:
    """The part, whose tasks are known by its class."""
    run = part.run

    async def run_part() -> None:
        PART.set(type(part).__name__)
        await run()

    part.run = run_part  # pyright: ignore[reportAttributeAccessIssue]
    return part


Made = Callable[[], AbstractAsyncContextManager[Sequence[ProcessPart]]]


async def killed_each(made: Made, url: str, seen: set[Kind]) -> None:
    """Run a process, kill a task of a kind that was not killed yet, and again, until there is none left."""
    while True:
        with noted() as tasks:
            async with made() as parts:
                signals = Signals()
                process = asyncio.create_task(main(Process(parts, signals, 10.0)))
                try:
                    await until_ready(url, process)
                    found = await next_of(tasks, process, seen)
                    if found is None:
                        signals.asked.set()
                        await process
                        return
                    await killed(tasks, process, *found)
                    if process.done():
                        await until(lambda: unreachable(url), "readiness has gone")
                finally:
                    signals.asked.set()
                    await asyncio.wait([process])
                    signals.over()
                    process.exception()


async def main(process: Process) -> None:
    """As a command runs it: no task of ours."""
    await process.run()


async def next_of(
    tasks: Tasks, process: "asyncio.Task[None]", seen: set[Kind]
) -> tuple[Kind, asyncio.Task[Any]] | None:
    await until(lambda: tasks.steady() or process.done(), "everything runs")
    assert not process.done(), process
    for kind, task in tasks.running().items():
        if kind not in seen:
            seen.add(kind)
            return kind, task
    return None


async def killed(tasks: Tasks, process: "asyncio.Task[None]", kind: Kind, task: asyncio.Task[Any]) -> None:
    """The task meets an error: then the process ends with it, or the task goes on or is begun again."""
    waiter = waiter_of(task)
    assert waiter is not None
    waiter.set_exception(Killed("a defect"))
    since = time.monotonic()

    def goes_on() -> bool:
        nonlocal since
        if kind not in tasks.running():
            since = time.monotonic()
        return time.monotonic() - since > ENDING_SECONDS

    await until(lambda: process.done() or goes_on(), f"{kind} has died and nothing says so", 30)
    if process.done():
        assert "a defect" in repr(reasons(process.exception())), (kind, process)


def reasons(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


async def until_ready(url: str, process: "asyncio.Task[None]") -> None:
    async with httpx2.AsyncClient(timeout=5) as client:

        async def ready() -> bool:
            try:
                return process.done() or (await client.get(f"{url}/readyz")).status_code == 200
            except httpx2.TransportError:
                return False

        await until(ready, "ready")
    assert not process.done(), process


async def unreachable(url: str) -> bool:
    async with httpx2.AsyncClient(timeout=5) as client:
        try:
            return (await client.get(f"{url}/readyz")).status_code == 503
        except httpx2.TransportError:
            return True


def quick(settings: Settings) -> Settings:
    run = RunSettings(drain_seconds=2.0)  # pyright: ignore[reportCallIssue]
    return settings.model_copy(update={"run": run})


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_what_kills_a_task_of_eden_run_ends_it_with_the_reason(
    settings: Settings,
) -> None:
    port, settings = server.choose(), quick(settings)
    await prepare(settings)
    seen: set[Kind] = set()

    @asynccontextmanager
    async def made() -> AsyncGenerator[Sequence[ProcessPart]]:
        async with following(settings, [name]) as live:
            for part in live.parts:
                marked(part)
            health = HealthServer(lambda: (live, *live.parts), "127.0.0.1", port, "test")
            yield [marked(live), marked(health)]

    for name in PARTS:  # noqa: B007 - `made` uses it
        await killed_each(made, f"http://127.0.0.1:{port}", seen)
    classes = {part for part, _ in seen}
    assert {"BudgetKeeping", "DueScopeAnnouncer", "ContextKeeping", "StandbyWriters", "Worker"} <= classes
    assert {"TailerPart", "Leased", "RetirementRounds", "LiveParts"} <= classes


@pytest.mark.timeout(300)
async def test_what_kills_a_task_of_eden_serve_ends_it_with_the_reason(
    settings: Settings,
) -> None:
    port = server.choose()
    serve = ServeSettings(host="127.0.0.1", port=port)  # pyright: ignore[reportCallIssue]
    http = HttpSettings(port=None)  # pyright: ignore[reportCallIssue]
    settings = quick(settings).model_copy(update={"serve": serve, "http": http})
    await prepare(settings)
    seen: set[Kind] = set()

    @asynccontextmanager
    async def made() -> AsyncGenerator[Sequence[ProcessPart]]:
        async with serving(settings) as parts:
            yield [marked(part) for part in parts]

    await killed_each(made, f"http://127.0.0.1:{port}", seen)
    assert any("ContextFeed" in coroutine for _, coroutine in seen)
