"""Targets of the Makefile that must do nothing beside their work."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_down_installs_nothing(tmp_path: Path) -> None:
    command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "down"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])
