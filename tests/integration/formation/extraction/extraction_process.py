"""Both extractions in a process of their own, to be killed.

`… <mongodb> <kafka> <db> <topics> <groups> <calls> [<ends>]`: a line per question to the calls file; the texts
answered are random, so that two outcomes never look alike. Where it is said how many questions are answered, the
later ones are not.
"""

import asyncio
import math
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.tasks import claim_process
from tests.integration.formation.extraction.extraction_kit import run_process
from tests.quick_sessions import quicken
from tests.unit.formation.extraction.windows import fact, reflection

SECONDS = 0.2


class SlowModel:
    """Takes a while, and answers differently every time."""

    def __init__(self, calls: Path, ends: float = math.inf) -> None:
        self._calls, self._left = calls.open("a", buffering=1), ends

    async def earlier(self, unit: str) -> Earlier | None:
        return None

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        self._calls.write(f"{asking.unit}\n")
        self._left -= 1
        await (asyncio.sleep(SECONDS) if self._left >= 0 else asyncio.Event().wait())
        text = f"Answer {uuid4().hex}."
        facts = {"facts": [fact(text, "user", 1).model_dump()]}
        reflections = {"reflections": [reflection(text, "session", 1).model_dump()]}
        stated = facts if prompt.name.startswith("fact") else reflections
        return Answered(answer.model_validate(stated), None)


if __name__ == "__main__":
    claim_process()
    quicken()
    _, mongodb, kafka, database, topics, groups, calls, *ends = sys.argv
    model = SlowModel(Path(calls), *map(float, ends))
    asyncio.run(run_process(mongodb, kafka, (database, topics, groups), model))
