"""A short fault run of the stages: one seed that never changes, one new every time (printed, to be run again)."""

import random
from pathlib import Path

import pytest

from tests.chaos.report import show
from tests.chaos.stages import Options, run

FIXED = 3
ANY = random.SystemRandom().randrange(1_000, 1_000_000)


@pytest.mark.servers
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", [FIXED, ANY], ids=["fixed", "any"])
async def test_nothing_is_lost_doubled_reordered_or_asked_again_after_faults(
    seed: int, jars_folder: Path, tmp_path: Path
) -> None:
    outcome = await run(Options(6, seed, sessions=12), tmp_path, jars_folder)
    show("stages", outcome)
    assert outcome.clean, f"python -m tests.chaos.stages --faults 6 --seed {seed}: {outcome.violations}"
