"""formation-trigger in a process of its own, to be killed once it has stored a window: `… <file>`.

It creates the file then, and does not publish the window's request.
"""

import asyncio
import sys
from pathlib import Path

from eden_memory.assembly.stage_parts import stage_parts
from eden_memory.processors.pipeline import FORMATION_TRIGGER
from eden_memory.settings import Settings
from eden_memory.tasks import claim_process
from eden_memory.windows.formation_requests import BatchWrite
from eden_memory.windows.trigger_store import MongoTriggerStore
from tests.quick_sessions import quicken


async def _run(stored: Path) -> None:
    put = MongoTriggerStore.put

    async def held(self: MongoTriggerStore, write: BatchWrite) -> int | None:
        place = await put(self, write)
        if write.closing and place is not None:
            stored.touch()  # noqa: ASYNC240 - a moment
            await asyncio.Event().wait()
        return place

    MongoTriggerStore.put = held  # type: ignore[method-assign]
    async with stage_parts(Settings(), {FORMATION_TRIGGER}) as parts:
        await asyncio.gather(*(part.run() for part in parts))


if __name__ == "__main__":
    claim_process()
    quicken()
    asyncio.run(_run(Path(sys.argv[1])))
