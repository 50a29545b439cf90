"""The site of the documentation is made without a warning: every link and anchor leads somewhere."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.named import ROOT


@pytest.mark.slow
def test_the_site_is_made_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-q",
        "-b",
        "html",
        "docs",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tutorials" / "operator.html").is_file()
