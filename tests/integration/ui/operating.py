"""Work for an operator: a window that no model could answer, and a memory beside the live one."""

from collections.abc import Awaitable, Sequence

import pytest

from eden_memory.memory.memory_batch import fact_hash
from eden_memory.models import judging
from eden_memory.names import Placement
from tests.integration.system.commands import eden
from tests.integration.system.obedient_model import WORD
from tests.integration.system.running_system import System, until

BESIDE = "copy"


async def troubled(running: System, session: str, user: str) -> None:
    """Have a window given up: its dead letter is there when this returns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "HOLD", 0.1)
        await running.write(session, user, f"fact user: {WORD}")
        await running.form(session)
        await until(lambda: _any(running.dead()), "a dead letter")


async def beside(running: System, before: str, after: str) -> None:
    """Rebuild the memory as BESIDE, in which one fact says something else."""
    await eden(running.settings, "rebuild", BESIDE)
    names = Placement(BESIDE, "original").names(running.settings.mongodb.prefix)
    changed = {"content": after, "hash": fact_hash(after)}
    await running.database[names["facts"]].update_one({"content": before}, {"$set": changed})


async def _any(found: Awaitable[Sequence[object]]) -> bool:
    return bool(await found)
