"""The reform benchmark's estimate: a ratio, never absolute times."""

from pathlib import Path

import pytest

from eden_memory.settings import Settings
from tests.bench.reform import WITHIN, estimated
from tests.bench.report import Report


@pytest.mark.servers
@pytest.mark.slow
async def test_the_demo_conversation_costs_about_what_was_expected(
    settings: Settings, tmp_path: Path
) -> None:
    report = Report("reform", "short")
    await estimated(report, settings, tmp_path)
    assert abs(report.ratios["estimated_to_spent"] - 1) <= WITHIN, report.ratios
