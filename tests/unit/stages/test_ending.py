"""Jobs told to end do end, also those that lose a cancellation."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

import pytest

from eden_memory.stages.controls import Pause
from eden_memory.stages.lanes import Lanes, Unit
from eden_memory.stages.stage import RetryPolicy
from eden_memory.stages.stage_health import StageHealth
from eden_memory.tasks import Deadline, Unawaited, end, heeding

NOW = datetime(2026, 3, 1, tzinfo=UTC)


async def test_a_job_that_loses_cancellations_is_cancelled_again_until_it_ends() -> None:
    lost = 0

    async def deaf() -> None:
        nonlocal lost
        while lost < 3:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            lost += 1

    jobs = [asyncio.create_task(deaf()), asyncio.create_task(asyncio.Event().wait())]
    await asyncio.sleep(0)
    await end(jobs, again_seconds=0.01)
    assert lost == 3
    assert all(job.done() for job in jobs)


async def test_what_a_job_has_raised_is_still_there() -> None:
    async def failing() -> None:
        raise ValueError("wrong")

    job = asyncio.create_task(failing())
    await asyncio.wait([job])
    await end([job, asyncio.get_running_loop().create_future()])
    with pytest.raises(ValueError, match="wrong"):
        job.result()


async def _deaf(times: int) -> None:
    """Goes on so often as if it had not been cancelled, as a library does that meets its answer in that moment."""
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
    await asyncio.sleep(60)


@pytest.mark.parametrize("times", [0, 1, 3])
async def test_a_deadline_ends_what_misses_its_cancellation(times: int) -> None:
    async with asyncio.timeout(30):
        with pytest.raises(TimeoutError):
            async with Deadline(0.01, again_seconds=0.01):
                await _deaf(times)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_what_ends_in_time_hears_nothing_of_its_deadline() -> None:
    async with Deadline(0.02, again_seconds=0.001):
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    with pytest.raises(ValueError, match="its own"):
        async with Deadline(60):
            raise ValueError("its own")


async def test_a_cancellation_from_outside_is_no_timeout() -> None:
    async def bounded() -> None:
        async with Deadline(60):
            await asyncio.sleep(60)

    job = asyncio.create_task(bounded())
    await asyncio.sleep(0)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job


async def test_a_cancellation_from_outside_outranks_the_deadline() -> None:
    async def bounded() -> None:
        async with Deadline(0.01, again_seconds=0.01):
            await _deaf(2)

    job = asyncio.create_task(bounded())
    await asyncio.sleep(0.015)
    job.cancel()
    with pytest.raises(asyncio.CancelledError):
        await job


async def test_a_command_that_loses_its_interruption_is_told_again() -> None:
    command = asyncio.create_task(heeding(_deaf(2), again_seconds=0.01))
    await asyncio.sleep(0)
    command.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await command


async def test_a_command_that_ends_before_it_hears_has_done_its_work() -> None:
    async def done_soon() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        return "equal to live"

    command = asyncio.create_task(heeding(done_soon()))
    await asyncio.sleep(0)
    command.cancel()
    assert await command == "equal to live"


async def test_what_a_command_raises_comes_out() -> None:
    async def failing() -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await heeding(failing())


async def test_the_clock_of_a_deadline_stands_still_while_it_is_stopped() -> None:
    async with Deadline(0.05) as deadline:
        with deadline.stopped(), deadline.stopped():
            await asyncio.sleep(0.15)
        with deadline.stopped():
            await asyncio.sleep(0.15)

    async def goes_on_too_long() -> None:
        async with Deadline(0.05) as deadline:
            with deadline.stopped():
                await asyncio.sleep(0.01)
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await goes_on_too_long()


async def test_a_deadline_that_is_over_starts_no_clock_again() -> None:
    async with Deadline(0.02, again_seconds=0.001) as deadline:
        stopped = deadline.stopped()
        stopped.__enter__()
    stopped.__exit__(None, None, None)
    await asyncio.sleep(0.05)


async def test_an_error_of_a_task_that_nobody_awaits_is_told_to_its_owner() -> None:
    async def failing() -> None:
        raise ValueError("wrong")

    tasks = Unawaited()
    tasks.add(asyncio.create_task(asyncio.sleep(0)))
    tasks.add(asyncio.create_task(asyncio.Event().wait())).cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks.check()
    tasks.add(asyncio.create_task(failing()))
    await tasks.failed.wait()
    with pytest.raises(ValueError, match="wrong"):
        tasks.check()


async def test_a_probe_that_fails_ends_its_stage() -> None:
    async def run(unit: Unit) -> None:
        del unit

    def probe() -> None:
        raise ValueError("wrong")

    lanes = Lanes(run, at_once=1)
    lanes.probe = probe  # pyright: ignore[reportAttributeAccessIssue]
    health = StageHealth("s", 0.5, lambda: NOW, probes=RetryPolicy(first=0.0, cap=0.0))
    health.control(lanes)
    health.put(Pause("s", "outage", "away", NOW))
    async with asyncio.timeout(60):
        await lanes.unawaited.failed.wait()
    with pytest.raises(ValueError, match="wrong"):
        lanes.unawaited.check()
    await health.stop()
