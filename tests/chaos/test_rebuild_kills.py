"""A short run of rebuilds that are killed, with a seed that never changes; `make chaos` takes others."""

from pathlib import Path

import pytest

from tests.chaos.rebuild import Options, run
from tests.chaos.report import show

FIXED = 4


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(500)
async def test_what_was_killed_again_and_again_is_equal_at_last(jars_folder: Path, tmp_path: Path) -> None:
    outcome = await run(Options(5, FIXED, scopes=10), tmp_path, jars_folder)
    show("rebuild", outcome)
    assert outcome.clean, f"python -m tests.chaos.rebuild --kills 5 --seed {FIXED}: {outcome.violations}"
