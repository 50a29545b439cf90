"""What runbooks and operations tell a person to type exists: commands, their options, settings."""

import re
from pathlib import Path

import pytest

from tests.named import commands, unknown

ROOT = Path(__file__).parents[3]
PAGES = tuple(ROOT / "docs" / f"{name}.md" for name in ("runbooks", "operations", "cost"))
SETTINGS = (ROOT / "docs/reference/settings.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_there(page: Path) -> None:
    assert [found for one in commands(page.read_text()) if (found := unknown(one))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_setting_of_a_page_is_there(page: Path) -> None:
    named = set(re.findall(r"\bEDEN_[A-Z_]+[A-Z]\b(?!_?\*)", page.read_text()))
    assert {one for one in named if f"`{one}`" not in SETTINGS} == set()


def test_what_is_not_there_is_found() -> None:
    assert unknown(["forget", "--gone"]) is not None
    assert unknown(["forge"]) is not None
    assert unknown(["dead", "retry", "--stage", "S"]) is None
