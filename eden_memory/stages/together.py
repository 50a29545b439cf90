"""Parts that run side by side in a process and end together, while the process goes on."""

import asyncio
from collections.abc import Sequence

from eden_memory.stages.process import Part
from eden_memory.task_ending import end


class Together:
    """Runs them until `stop`, or until one of them cannot go on; what has not ended in time is cancelled."""

    def __init__(self, parts: Sequence[Part], drain_seconds: float) -> None:
        self.parts, self._seconds = tuple(parts), drain_seconds
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """What one of them raises is raised here, after the others were drained."""
        tasks = [asyncio.create_task(part.run(), name=part.name) for part in self.parts]
        asked = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([*tasks, asked], return_when=asyncio.FIRST_COMPLETED)
            for part in self.parts:
                part.stop()
            if tasks:
                await asyncio.wait(tasks, timeout=self._seconds)
        finally:
            await end([asked, *tasks])
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    def stop(self) -> None:
        """End `run`."""
        self._stopping.set()
