"""Fault runs of the tailer: kills of a seed that never changes, then faults of one that is new every time."""

import random
from pathlib import Path

import pytest

from tests.chaos.report import show
from tests.chaos.tailer import Options, run

KILLS, MANY = 33, 7
"""Seeds: one kills the leader, MongoDB and Kafka; the other draws from all faults."""


@pytest.mark.servers
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("faults", "fixed"), [(3, KILLS), pytest.param(6, MANY, marks=pytest.mark.slow)])
async def test_nothing_is_lost_reordered_or_wrong_after_faults(
    faults: int, fixed: int, jars_folder: Path, tmp_path: Path
) -> None:
    drawn = random.SystemRandom().randrange(1_000, 1_000_000)
    outcome = await run(Options(faults, fixed, then_seed=drawn, tailers=2), tmp_path, jars_folder)
    show("tailer", outcome)
    again = f"python -m tests.chaos.tailer --faults {faults} --seed {fixed} --then-seed {drawn}"
    assert outcome.clean, f"{again}: {outcome.violations}"
