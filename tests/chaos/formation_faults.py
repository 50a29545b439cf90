"""The faults of the run over formation: those of the stages, and a provider that spoils, refuses or is away."""

import asyncio
import random
from typing import Any

from tests.chaos.stages_faults import WEIGHTS as OF_THE_STAGES
from tests.chaos.stages_faults import Faults
from tests.chaos.stages_faults import plan as drawn
from tests.model_server.serving import ModelServerProcess

SPOILED: dict[str, dict[str, Any]] = {
    "provider truncates": {"rates": {"truncated": 0.1}},
    "provider errs": {"rates": {"error": 0.1}, "embedding_rates": {"error": 0.1}},
    "provider refuses": {"rates": {"rate_limited": 0.1}, "embedding_rates": {"rate_limited": 0.1}},
    "provider away": {"outage": True},
}
WELL: dict[str, Any] = {"rates": {}, "embedding_rates": {}, "outage": False}
WEIGHTS = {
    **OF_THE_STAGES,
    "provider truncates": 3,
    "provider errs": 3,
    "provider refuses": 3,
    "provider away": 1,
}


def plan(seed: int, count: int) -> list[str]:
    """`count` faults by name."""
    return drawn(seed, count, WEIGHTS)


class FormationFaults(Faults):
    """Also strikes the provider; `models` serves on whatever becomes of the others."""

    _seed_of_provider: random.Random
    models: ModelServerProcess

    def with_models(self, seed: int, models: ModelServerProcess) -> "FormationFaults":
        """The same, told where the provider is."""
        self.models, self._seed_of_provider = models, random.Random(f"{seed}/provider")
        return self

    async def strike(self, name: str) -> None:
        """One fault, and the pause after it."""
        if name not in SPOILED:
            await super().strike(name)
            return
        self._in_background(self._spoil(name))
        await self._struck(name)

    async def calm(self) -> None:
        """Everything runs again, and the provider answers well."""
        await super().calm()
        await asyncio.to_thread(lambda: self.models.change(**WELL))

    async def _spoil(self, name: str) -> None:
        seconds = self._seed_of_provider.uniform(2.0, 4.0 if name == "provider away" else 8.0)
        await asyncio.to_thread(lambda: self.models.change(**SPOILED[name]))
        await asyncio.sleep(seconds)
        await asyncio.to_thread(lambda: self.models.change(**WELL))
