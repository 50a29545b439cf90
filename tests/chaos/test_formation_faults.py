"""Fault runs of formation, with seeds that never change; `make chaos` takes others."""

from pathlib import Path

import pytest

from tests.chaos.formation import Options, run
from tests.chaos.report import show

KILLS, MANY = 3110, 3
"""Seeds: one kills and freezes a worker, kills both servers and lets the provider fail; the other restarts."""


@pytest.mark.servers
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("faults", "seed"), [(5, KILLS), pytest.param(8, MANY, marks=pytest.mark.slow)])
async def test_no_memory_is_lost_doubled_or_paid_twice_after_faults(
    faults: int, seed: int, jars_folder: Path, tmp_path: Path
) -> None:
    outcome = await run(Options(faults, seed, poisoned=1), tmp_path, jars_folder)
    show("formation", outcome)
    assert outcome.clean, (
        f"python -m tests.chaos.formation --faults {faults} --seed {seed}: {outcome.violations}"
    )
