"""A rebuild that is begun and stopped again and again while what is forgotten is swept out of it equals live."""

import asyncio
from collections.abc import Sequence

import pytest

from eden_memory.replay.installation import installation
from eden_memory.replay.namespaces.standby_writers import standby_writers
from eden_memory.replay.rebuild.namespace_rebuild import filling
from eden_memory.stages.stage import Delivery
from tests.integration.replay.replay_kit import NAME, ReplayKit, ignored, told
from tests.integration.stages.harness import running, until
from tests.integration.stages_on_servers import PREFIX

pytestmark = pytest.mark.servers
STOPS = 3
FACTS = f"{PREFIX}ns_{NAME}_facts"


async def test_stopped_and_swept_side_by_side_it_ends_equal_to_live(kit: ReplayKit) -> None:
    rows, gone = told(60, seed=7)
    shadows = standby_writers(kit.settings, kit.mongo)
    sweeping = asyncio.create_task(shadows.run())
    try:
        for number in range(STOPS):
            await kit.put(_some(rows, rows, number))
            group = await _begun_and_stopped(kit)
            await kit.put(_some(gone, rows, number))
            if number == 1:
                await _swept(kit, group)
        await kit.live()
        verdict, _ = await kit.rebuilt()
        assert verdict.equal, "\n".join(map(str, verdict.differences))
    finally:
        shadows.stop()
        await sweeping


def _some(of: Sequence[Delivery], rows: Sequence[Delivery], number: int) -> list[Delivery]:
    """Those of a share of the scopes: what ends something comes after it."""
    scopes = sorted({one.envelope.ordering_key for one in rows})[number::STOPS]
    return [one for one in of if one.envelope.ordering_key in scopes]


async def _begun_and_stopped(kit: ReplayKit) -> str:
    """The command, until some more is in than before; its group."""
    facts = kit.database[FACTS]
    async with installation(kit.settings) as at, filling(at, NAME, ignored) as work:
        before = await facts.count_documents({})
        async with running(work.worker):
            await until(lambda: _more_than(kit, before), "some more facts", 60)
        return work.namespace.group


async def _more_than(kit: ReplayKit, before: int) -> bool:
    return await kit.database[FACTS].count_documents({}) != before


async def _swept(kit: ReplayKit, group: str) -> None:
    """Until the sweeping has passed everything that there is."""
    ends = {tp: end for tp, end in (await kit.ends()).items() if end}

    async def so() -> bool:
        async with installation(kit.settings) as at, at.groups as groups:
            reached = await groups.committed(f"{group}.forgetting")
        return bool(reached) and all(reached[tp] >= ends.get(tp, 0) for tp in reached)

    await until(so, "all is swept", 60)
