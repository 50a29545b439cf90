"""A stage's worker as a part of a process."""

from eden_memory.runtime.process import State
from eden_memory.runtime.worker import Worker


class StagePart:
    """Runs one worker, and says how it stands."""

    def __init__(self, worker: Worker, drain_seconds: float) -> None:
        self._worker, self._drain_seconds = worker, drain_seconds
        self.name = worker.stage.name

    async def run(self) -> None:
        """Until `stop`."""
        await self._worker.run(self._drain_seconds)

    def stop(self) -> None:
        """Commit, leave the group, let what runs end."""
        self._worker.stop()

    def state(self) -> State:
        """Ready while partitions are assigned and nothing pauses it."""
        pauses = self._worker.standing.pauses.values()
        if pauses:
            return State(False, "paused: " + "; ".join(f"{one.kind}: {one.reason}" for one in pauses))
        homes = self._worker.membership.homes
        if not homes:
            return State(False, "no partition is assigned")
        waiting = sum(home.count for home in homes.values())
        return State(True, f"{len(homes)} partitions, {waiting} records in hand")
