"""Every stage in a process of its own, to be killed once an outcome that holds a word is stored.

`… <stage> <word> <file>`: it creates the file then, and publishes nothing of that outcome.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from eden_memory.settings import Settings
from eden_memory.stages.outcome import StageOutcome
from eden_memory.stages.outcome_store import MongoLedger
from eden_memory.tasks import claim_process
from tests.integration.system.running_system import stages

Store = Callable[[MongoLedger, StageOutcome], Awaitable[StageOutcome]]


def holding(stage: str, word: str, moment: str, hold: Callable[[], Awaitable[None]]) -> Store:
    """Return `MongoLedger.store` that holds a stage's outcome with a word, `before` or `after` it is stored."""
    store = MongoLedger.store

    async def held(self: MongoLedger, outcome: StageOutcome) -> StageOutcome:
        mine = outcome.stage == stage and holds(outcome, word)
        if mine and moment == "before":
            await hold()
        stored = await store(self, outcome)
        if mine and moment == "after":
            await hold()
        return stored

    return held


def holds(outcome: StageOutcome, word: str) -> bool:
    """Return whether a record of an outcome holds a word."""
    return any(word.encode() in (record.value or b"") for record in outcome.records)


async def _run(stage: str, word: str, stored: Path) -> None:
    async def hold() -> None:
        stored.touch()  # noqa: ASYNC240 - a moment
        await asyncio.Event().wait()

    MongoLedger.store = holding(stage, word, "after", hold)  # type: ignore[method-assign]
    async with stages(Settings()):
        await asyncio.Event().wait()


if __name__ == "__main__":
    claim_process()
    _, of, named, path = sys.argv
    asyncio.run(_run(of, named, Path(path)))
