"""A short run of reforms that are killed, with a seed that never changes; `make chaos` takes others."""

from pathlib import Path

import pytest

from tests.chaos.reform import Options, run
from tests.chaos.report import show

FIXED, KILLS = 3, 3


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(500)
async def test_a_reform_killed_again_and_again_forms_what_one_that_was_not_forms(
    jars_folder: Path, tmp_path: Path
) -> None:
    outcome = await run(Options(KILLS, FIXED, windows=2), tmp_path, jars_folder)
    show("reform", outcome)
    assert outcome.clean, f"python -m tests.chaos.reform --kills {KILLS} --seed {FIXED}: {outcome.violations}"
