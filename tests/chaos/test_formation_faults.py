"""A short fault run of formation, with a seed that never changes; `make chaos` takes others."""

from pathlib import Path

import pytest

from tests.chaos.formation import Options, run
from tests.chaos.report import show

FIXED = 3


@pytest.mark.servers
@pytest.mark.timeout(400)
async def test_no_memory_is_lost_doubled_or_paid_twice_after_faults(
    jars_folder: Path, tmp_path: Path
) -> None:
    outcome = await run(Options(8, FIXED, poisoned=1), tmp_path, jars_folder)
    show("formation", outcome)
    assert outcome.clean, f"python -m tests.chaos.formation --faults 8 --seed {FIXED}: {outcome.violations}"
