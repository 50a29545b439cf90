"""What runbooks and operations tell a person to type exists: commands, their options, settings."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from eden_memory.cli.main import COMMANDS

ROOT = Path(__file__).parents[3]
PAGES = (*sorted((ROOT / "docs/runbooks").glob("*.md")), ROOT / "docs/operations.md", ROOT / "docs/cost.md")
SETTINGS = (ROOT / "docs/reference/settings.md").read_text()


def commands(text: str) -> Iterator[list[str]]:
    """`eden dead retry --stage S` → its words behind `eden`; words in capitals stand for something."""
    for found in re.finditer(r"`eden ([^`]+)`", text):
        yield found[1].replace("[", " ").replace("]", " ").replace("=", " ").split()


def unknown(words: list[str]) -> str | None:
    """What of a command line there is not."""
    first, *rest = words
    if first not in COMMANDS:
        return f"no command {first}"
    command: Any = COMMANDS[first].load(first)
    for word in rest:
        if word.startswith("--"):
            if word not in {option for one in command.params for option in one.opts}:
                return f"{command.name} has no {word}"
        elif isinstance(command, TyperGroup):
            if word not in command.commands:
                return f"{command.name} has no {word}"
            command = command.commands[word]
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_is_there(page: Path) -> None:
    assert [found for one in commands(page.read_text()) if (found := unknown(one))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_setting_of_a_page_is_there(page: Path) -> None:
    named = set(re.findall(r"\bEDEN_[A-Z_]+[A-Z]\b(?!_?\*)", page.read_text()))
    assert {one for one in named if f"`{one}`" not in SETTINGS} == set()


def test_what_is_not_there_is_found() -> None:
    assert unknown(["forget", "--missing"]) is not None
    assert unknown(["forge"]) is not None
    assert unknown(["dead", "retry", "--stage", "S"]) is None
