"""A short fault run of the tailer: one seed that never changes, one new every time (printed, to be run again)."""

import random
from pathlib import Path

import pytest

from tests.chaos.report import show
from tests.chaos.tailer import Options, run

FIXED = 7
ANY = random.SystemRandom().randrange(1_000, 1_000_000)


@pytest.mark.servers
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "faults"), [(FIXED, 6), (ANY, 6)], ids=["fixed", "any"])
async def test_nothing_is_lost_reordered_or_wrong_after_faults(
    seed: int, faults: int, jars_folder: Path, tmp_path: Path
) -> None:
    outcome = await run(Options(faults, seed, tailers=2), tmp_path, jars_folder)
    show("tailer", outcome.figures, outcome.faults, outcome.violations)
    assert outcome.clean, (
        f"python -m tests.chaos.tailer --faults {faults} --seed {seed}: {outcome.violations}"
    )
