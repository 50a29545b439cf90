"""Records that stand in their topic more than once, as after a crash of whoever wrote them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from eden_memory.schemas.documents import DeadLetter
from eden_memory.stages.stage import Delivery, Emitted
from eden_memory.stages.worker import Worker
from tests.integration.stages.harness import Bench, answered, asked, running, stage, until

pytestmark = pytest.mark.servers


async def test_a_handler_is_given_a_repeated_record_once_also_among_others_of_its_lane(kit: Bench) -> None:
    given: Counter[str] = Counter()

    async def together(deliveries: Sequence[Delivery]) -> list[Emitted]:
        given.update(one.id for one in deliveries)
        await asyncio.sleep(0.05)
        return [answered(one) for one in deliveries]

    one_after_the_other = [asked("s", number) for number in range(20)]
    await kit.put([*one_after_the_other[:12], *one_after_the_other[4:8], *one_after_the_other])
    async with running(Worker(stage(together, together=50), kit.around())):
        await kit.answers(20)
        await until(lambda: _committed(kit, 36), "all committed")
    assert given == {f"s-{number}": 1 for number in range(20)}


async def test_an_unreadable_record_read_again_has_the_same_dead_letter(kit: Bench) -> None:
    await kit.put([replace(asked("s", 0), value=b"{not json")])
    found: list[DeadLetter] = []
    for group in ("one", "two"):
        async with running(worker := Worker(stage(), kit.under(group))):
            found += await kit.dead(1)
            await until(lambda worker=worker: worker.state().what.endswith("caught up"), "caught up")
    found += await kit.dead(1)
    assert found[0] == found[1] == found[2]


async def _committed(kit: Bench, count: int) -> bool:
    return await kit.committed() == count
