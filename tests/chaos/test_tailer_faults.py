"""A short fault run of the tailer: six faults of a seed that never changes, six of one that is new every time."""

import random
from pathlib import Path

import pytest

from tests.chaos.report import show
from tests.chaos.tailer import Options, run

FIXED, FAULTS = 7, 6


@pytest.mark.servers
@pytest.mark.timeout(600)
async def test_nothing_is_lost_reordered_or_wrong_after_faults(jars_folder: Path, tmp_path: Path) -> None:
    drawn = random.SystemRandom().randrange(1_000, 1_000_000)
    outcome = await run(Options(FAULTS, FIXED, then_seed=drawn, tailers=2), tmp_path, jars_folder)
    show("tailer", outcome)
    again = f"python -m tests.chaos.tailer --faults {FAULTS} --seed {FIXED} --then-seed {drawn}"
    assert outcome.clean, f"{again}: {outcome.violations}"
