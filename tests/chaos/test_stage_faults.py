"""A short fault run of the stages: a seed that never changes, and among the slow tests a new one (it is printed)."""

import random
from pathlib import Path

import pytest

from tests.chaos.report import show
from tests.chaos.stages import Options, run

FIXED = 3
ANY = random.SystemRandom().randrange(1_000, 1_000_000)


@pytest.mark.servers
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "seed", [pytest.param(FIXED, id="fixed"), pytest.param(ANY, id="any", marks=pytest.mark.slow)]
)
async def test_nothing_is_lost_doubled_reordered_or_asked_again_after_faults(
    seed: int, jars_folder: Path, tmp_path: Path
) -> None:
    outcome = await run(Options(6, seed, sessions=12), tmp_path, jars_folder)
    show("stages", outcome)
    assert outcome.clean, f"python -m tests.chaos.stages --faults 6 --seed {seed}: {outcome.violations}"
