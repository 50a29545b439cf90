"""The rate that an export or import shows."""

from io import StringIO

import pytest
from rich.console import Console

from eden_memory.cli.replay import progress
from eden_memory.cli.replay.progress import TransferProgress


def test_a_step_that_starts_over_never_shows_a_negative_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    shown = StringIO()
    with TransferProgress(Console(file=shown, width=80)) as bar:
        for done in (50, 100, 5, 10):
            bar("reading", done, 0)
    assert shown.getvalue().count("reading: ") == 4
    assert "-" not in shown.getvalue()
