"""tools/move.py: files move, and every reference follows."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "move.py"
FILES = {
    "eden_memory/__init__.py": '"""Package."""\n',
    "eden_memory/rules/__init__.py": '"""Rules."""\n',
    "eden_memory/rules/names.py": '"""Names."""\nNAME = 1\n',
    "eden_memory/rules/names_of.py": '"""Longer names."""\nOTHER = 2\n',
    "eden_memory/rules/errors.py": '"""Errors."""\n\n\nclass Wrong(Exception):\n    """Wrong."""\n',
    "eden_memory/ports.py": '"""Ports."""\nfrom typing import Protocol\n\n\nclass Store(Protocol): ...\n',
    "eden_memory/user.py": (
        '"""Imports: eden_memory.rules.names_of stays, é."""\n'
        "from eden_memory.ports import Store\n"
        "from eden_memory.rules import errors as wrongs, names, names_of  # kept\n"
        "from eden_memory.rules.names import NAME\n"
        "RECORDED_MODULES = {'Wrong': 'eden_memory.rules.errors'}\n"
        "PATCHED = 'eden_memory.rules.errors.Wrong'\n"
        "USED = (Store, wrongs.Wrong, names.NAME, names_of.OTHER, NAME)\n"
    ),
    "pages/page.md": "`eden_memory/rules/names.py`, `rules/errors.py`, [it](../eden_memory/rules/names_of.py)\n",
    "a.map": (
        "eden_memory/rules/names.py eden_memory/names.py\n"
        "eden_memory/rules/errors.py eden_memory/leaves/mistakes.py  # another name\n"
        "eden_memory/ports.py:Store eden_memory/leaves/stores.py\n"
        "+ eden_memory/leaves What all import.\n"
    ),
}


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    subprocess.run([sys.executable, str(TOOL), "a.map"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_the_moved_program_runs_as_before(moved: Path) -> None:
    said = "import eden_memory.user as user; print(user.NAME, user.wrongs.__name__, user.Store.__module__)"
    ran = subprocess.run([sys.executable, "-c", said], cwd=moved, check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["1", "eden_memory.leaves.mistakes", "eden_memory.leaves.stores"]


def test_every_name_follows_but_frozen_and_longer_ones(moved: Path) -> None:
    user = (moved / "eden_memory/user.py").read_text()
    assert "from eden_memory.leaves import mistakes as wrongs\n" in user
    assert "from eden_memory import names\n" in user
    assert "from eden_memory.rules import names_of  # kept\n" in user
    assert "RECORDED_MODULES = {'Wrong': 'eden_memory.rules.errors'}" in user
    assert "PATCHED = 'eden_memory.leaves.mistakes.Wrong'" in user
    assert user.startswith('"""Imports: eden_memory.rules.names_of stays, é."""')


def test_docs_and_packages_follow(moved: Path) -> None:
    page = (moved / "pages/page.md").read_text()
    assert page == "`eden_memory/names.py`, `leaves/mistakes.py`, [it](../eden_memory/rules/names_of.py)\n"
    assert (moved / "eden_memory/leaves/__init__.py").read_text() == '"""What all import."""\n'
    assert "class Store" not in (moved / "eden_memory/ports.py").read_text()
