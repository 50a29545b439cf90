"""The synchronous face: in step with the async calls, and a loop's thread that several threads share."""

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator

import pytest

from eden_memory.api.service import MemoryService
from eden_memory.api.sync import LoopThread, SyncMemoryService
from eden_memory.errors import EdenError

CALLS = sorted(
    name for name, _ in inspect.getmembers(MemoryService, inspect.isfunction) if not name.startswith("_")
)


@pytest.mark.parametrize("name", CALLS)
def test_a_synchronous_call_has_the_parameters_and_the_text_of_the_async_one(name: str) -> None:
    waits, awaited = getattr(SyncMemoryService, name), getattr(MemoryService, name)
    assert inspect.signature(waits).parameters == inspect.signature(awaited).parameters
    assert inspect.getdoc(waits) == inspect.getdoc(awaited)
    assert not inspect.iscoroutinefunction(waits)


def test_every_public_call_has_its_synchronous_one() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert calls(MemoryService) <= calls(SyncMemoryService)


async def _double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def test_inside_a_running_loop_it_refuses() -> None:
    thread = LoopThread()
    with pytest.raises(EdenError, match="running event loop"):
        thread.run(_double(1))
    thread.stop()


def test_several_threads_share_one_loop() -> None:
    thread, found, loops = LoopThread(), list[int](), set[int]()

    async def where(number: int) -> int:
        loops.add(id(asyncio.get_running_loop()))
        return await _double(number)

    def work(number: int) -> None:
        found.append(thread.run(where(number)))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(found) == [2 * number for number in range(20)]
    assert len(loops) == 1
    thread.stop()


def test_errors_come_back_as_they_are_and_a_stopped_one_says_so() -> None:
    async def fails() -> None:
        raise ValueError("it")

    thread = LoopThread()
    with pytest.raises(ValueError, match="it"):
        thread.run(fails())
    thread.stop()
    thread.stop()
    with pytest.raises(EdenError, match="closed"):
        thread.run(fails())


def test_what_is_yielded_comes_one_by_one_and_is_closed_in_the_end() -> None:
    closed = list[bool]()

    async def count() -> AsyncGenerator[int]:
        try:
            for number in range(100):
                yield number
        finally:
            closed.append(True)

    thread = LoopThread()
    assert list(thread.iterate(count())) == list(range(100))
    for number in thread.iterate(count()):
        if number == 3:
            break
    assert closed == [True, True]
    thread.stop()


def test_what_still_runs_is_cancelled_when_it_stops() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    thread = LoopThread()
    errors = list[BaseException]()

    def work() -> None:
        try:
            thread.run(waits())
        except BaseException as error:  # noqa: BLE001 - looked at below
            errors.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    begun.wait(10)
    thread.stop()
    worker.join(10)
    assert cancelled.is_set()
    assert len(errors) == 1
