"""Fault runs of the stages: kills of a seed that never changes; among the slow tests more, also of a new seed."""

import random
from pathlib import Path

import pytest

from tests.chaos.report import show
from tests.chaos.stages import Options, run

KILLS, MANY = 2152, 3
"""Seeds: one kills and freezes a worker and kills both servers; the other draws from all faults."""
ANY = random.SystemRandom().randrange(1_000, 1_000_000)


@pytest.mark.servers
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("faults", "seed"),
    [
        pytest.param(4, KILLS, id="kills"),
        pytest.param(6, MANY, id="fixed", marks=pytest.mark.slow),
        pytest.param(6, ANY, id="any", marks=pytest.mark.slow),
    ],
)
async def test_nothing_is_lost_doubled_reordered_or_asked_again_after_faults(
    faults: int, seed: int, jars_folder: Path, tmp_path: Path
) -> None:
    outcome = await run(Options(faults, seed, sessions=12), tmp_path, jars_folder)
    show("stages", outcome)
    assert outcome.clean, (
        f"python -m tests.chaos.stages --faults {faults} --seed {seed}: {outcome.violations}"
    )
