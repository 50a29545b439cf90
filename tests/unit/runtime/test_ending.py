"""Jobs told to end do end, also those that lose a cancellation."""

import asyncio
from contextlib import suppress

import pytest

from eden_memory.runtime.ending import end


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
