"""What a stage shows of itself every second: its gauges, looked up once."""

from collections.abc import Callable, Mapping

from eden_memory import metrics

OF_A_STAGE = {
    "running": metrics.STAGE_RUNNING,
    "pending": metrics.STAGE_PENDING,
    "oldest": metrics.STAGE_OLDEST,
    "commit_gap": metrics.STAGE_COMMIT_GAP,
    "partitions": metrics.STAGE_PARTITIONS,
    "held_back": metrics.STAGE_HELD_BACK,
}


class StageGauges:
    """Those of one stage; they are there from the first `show` on."""

    def __init__(self, stage: str) -> None:
        self._stage = stage
        self._found: dict[str, Callable[[float], None]] = {}

    def show(self, waiting: Mapping[str, int], **now: float) -> None:
        """`waiting`: records by reason; the others by their names in `OF_A_STAGE`."""
        found = self._found
        if not found:
            found |= {one: metrics.STAGE_WAITING.labels(self._stage, one).set for one in waiting}
            found |= {one: OF_A_STAGE[one].labels(self._stage).set for one in now}
        for name, number in waiting.items():
            found[name](number)
        for name, number in now.items():
            found[name](number)
