"""fact-dedup and the writer in a process of their own, to be killed: `… <mongodb> <kafka> <name> <answers> [<most>]`.

The model keeps its answers in a file, a line each, before anybody sees them: its decisions are not the same twice.
From the answer on with which there are `most` in the file, nobody is given one.
"""

import asyncio
import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

from eden_memory.models.question import A, Answered, Asking, Earlier, Prompt
from eden_memory.tasks import claim_process
from tests.integration.formation.dedup.dedup_servers import run_process
from tests.quick_sessions import quicken

SECONDS = 0.1


class KeepingModel:
    """Says nothing about new facts, in a moment, but says it in answers that can be told apart."""

    def __init__(self, path: Path, most: float = math.inf) -> None:
        self._path, self._most = path, most

    async def earlier(self, unit: str) -> Earlier | None:
        kept = self._kept().get(unit)
        return None if kept is None else Earlier(tuple(kept), exhausted=False)

    async def ask(
        self,
        prompt: Prompt,
        answer: type[A],
        asking: Asking,
        check: Callable[[A], str | None] | None = None,
    ) -> Answered[A]:
        await asyncio.sleep(SECONDS * random.random())
        if asking.unit not in self._kept():
            with self._path.open("a") as lines:
                lines.write(f"{asking.unit}\t{json.dumps(asking.shown)}\n")
        if len(self._kept()) >= self._most:
            await asyncio.Event().wait()
        await asyncio.sleep(SECONDS * random.random())
        return Answered(answer.model_validate({"decisions": []}), None)

    def _kept(self) -> dict[str, list[str]]:
        if not self._path.exists():
            return {}
        lines = self._path.read_text().splitlines()
        return {
            unit: json.loads(shown) for unit, shown in (line.split("\t") for line in lines if "\t" in line)
        }


if __name__ == "__main__":
    claim_process()
    quicken()
    _, mongodb, kafka, name, answers, *most = sys.argv
    model = KeepingModel(Path(answers), *map(float, most))
    asyncio.run(run_process(mongodb, kafka, name, model))
