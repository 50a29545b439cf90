"""A short run of imports and a mirror that are killed, with a seed that never changes; `make chaos` takes others."""

from pathlib import Path

import pytest

from tests.chaos.imports import run
from tests.chaos.report import show
from tests.servers import TestServers

FIXED, KILLS = 3, 6


@pytest.mark.servers
@pytest.mark.slow
async def test_what_is_imported_and_mirrored_under_kills_is_there_once(
    servers: TestServers, tmp_path: Path
) -> None:
    outcome = await run(KILLS, FIXED, servers, tmp_path)
    show("imports", outcome)
    assert outcome.clean, (
        f"python -m tests.chaos.imports --faults {KILLS} --seed {FIXED}: {outcome.violations}"
    )
