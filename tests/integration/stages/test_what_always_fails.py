"""Units that fail as if the provider were away, while others succeed, come to their end."""

import asyncio
from collections.abc import Sequence
from itertools import count

import pytest

from eden_memory.errors import ProviderError
from eden_memory.stages.stage import Delivery, Emitted, RetryPolicy
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Bench, answered, asked, running, stage

pytestmark = pytest.mark.servers


async def refuses_some(deliveries: Sequence[Delivery]) -> list[Emitted]:
    (one,) = deliveries
    await asyncio.sleep(0.01)
    if one.id.startswith("never"):
        raise ProviderError("503")
    return [answered(one)]


async def test_several_units_that_always_fail_are_given_up_while_others_succeed(kit: Bench) -> None:
    await kit.put([asked(f"never{number}", 0) for number in range(8)])

    async def trickle() -> None:
        for number in count():
            await kit.put([asked(f"good{number}", 0)])
            await asyncio.sleep(0.05)

    worker = Worker(stage(refuses_some, dead_share=1.0), kit.around())
    worker.health.probes = RetryPolicy(first=0.02, cap=0.05)
    async with running(worker):
        trickling = asyncio.create_task(trickle())
        letters = await kit.dead(8, seconds=60)
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)
    assert {letter.key for letter in letters} == {b"never%d-0" % number for number in range(8)}
