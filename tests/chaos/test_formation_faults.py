"""A short fault run of formation: one seed that never changes, one new every time (printed, to be run again)."""

import random
from pathlib import Path

import pytest

from tests.chaos.formation import Options, run
from tests.chaos.report import show

FIXED = 3
ANY = random.SystemRandom().randrange(1_000, 1_000_000)


@pytest.mark.servers
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [FIXED, ANY], ids=["fixed", "any"])
async def test_no_memory_is_lost_doubled_or_paid_twice_after_faults(
    seed: int, jars_folder: Path, tmp_path: Path
) -> None:
    outcome = await run(Options(8, seed, poisoned=1), tmp_path, jars_folder)
    show("formation", outcome.figures, outcome.faults, outcome.violations)
    assert outcome.clean, f"python -m tests.chaos.formation --faults 8 --seed {seed}: {outcome.violations}"
