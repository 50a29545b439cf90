"""The table of commands, completion, exit codes, and what reaches the terminal."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from eden_memory.cli import main
from eden_memory.cli.tables import line, show_table
from eden_memory.cli.terminal import plain
from eden_memory.errors import Conflict, EdenError, Invalid, NotAnId, NotFound


@pytest.mark.parametrize("name", main.COMMANDS)
def test_a_commands_line_is_the_first_sentence_of_its_help(name: str) -> None:
    entry = main.COMMANDS[name]
    assert entry.load(name).get_short_help_str(300) == entry.help


def test_every_command_stands_under_one_heading() -> None:
    assert sorted(name for names in main.PANELS.values() for name in names) == sorted(main.COMMANDS)
    shown = CliRunner().invoke(main.app, ["--help"]).output
    assert [panel for panel in main.PANELS if f"─ {panel} ─" not in shown] == []


def test_the_page_of_the_command_line_has_the_headings_of_the_help() -> None:
    page = (Path(__file__).parents[3] / "docs/cli.md").read_text()
    _, *sections = re.split(r"^### (\w+)$", page, flags=re.MULTILINE)
    shown = {
        name: re.findall(r"^\| `eden (\w+)` \|", text, re.MULTILINE)
        for name, text in zip(sections[::2], sections[1::2], strict=True)
    }
    assert shown == {panel: list(names) for panel, names in main.PANELS.items()}


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(main.app, ["--version"]).output == f"eden {version('eden-memory')}\n"


@pytest.mark.parametrize("columns", [None, 80, 200])
def test_no_id_and_no_header_of_a_table_is_broken(
    columns: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: columns is not None)
    monkeypatch.setenv("COLUMNS", str(columns or 80))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    ids = [f"{number:032x}" for number in range(3)]
    headers = ("scope", "fact", "formed", "consolidated at", "", "id")
    rows = [
        ("user ada", "Ada lives in Lyon. " * 9, "2026-03-04 12:00", "retired: asked", "x", name)
        for name in ids
    ]
    show_table(headers, rows, "nothing")
    shown = capsys.readouterr().out.splitlines()
    assert all(any(name in line for line in shown) for name in ids)
    assert all(word in shown[0] for header in headers[:4] for word in header.split()[:1])
    assert max(map(len, shown)) <= (columns or 10_000)
    assert (len(shown) == 4) == (columns is None)


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_shows_its_help(name: str) -> None:
    shown = CliRunner().invoke(main.app, [name, "--help"])
    assert shown.exit_code == 0, shown.output
    assert "Usage" in shown.output


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("eden ref", {"reflections"}),
        ("eden dead ", {"list", "retry"}),
        ("eden search --t", {"--top-k", "--type"}),
    ],
)
def test_the_shell_completes_commands_and_options(words: str, wanted: set[str]) -> None:
    environment = {
        **os.environ,
        "_EDEN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    code = "import sys; sys.argv[0] = 'eden'; from eden_memory.cli.main import app; app(prog_name='eden')"
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert wanted <= set(ended.stdout.split()), ended.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [(EdenError("x"), 1), (Invalid("x"), 2), (NotAnId("x"), 2), (NotFound("x"), 3), (Conflict("x"), 4)],
)
def test_an_exit_code_says_what_went_wrong(
    error: EdenError, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(main, "app", fail)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == code


def test_wrong_usage_ends_with_2() -> None:
    for arguments in (["search"], ["facts", "--scope", "all"], ["nonsense"], ["search", "x", "--top-k", "0"]):
        assert CliRunner().invoke(main.app, arguments).exit_code == 2


@given(st.text())
def test_nothing_that_a_terminal_obeys_gets_through(text: str) -> None:
    shown = plain(text)
    assert not any(ord(one) < 32 and one not in "\t\n" for one in shown)
    assert not any(0x7F <= ord(one) <= 0x9F for one in shown)
    shown.encode()
    assert "\n" not in line(text).plain


@pytest.mark.parametrize(
    "bad",
    ["\x1b[31mred", "\x1b]0;title\x07", "\x9b2J", "a\rb", "\u202eevil", "\x08\x08", "\udc80", "\u2066x"],
)
def test_escapes_and_marks_of_direction_are_replaced(bad: str) -> None:
    assert "�" in plain(bad)


def test_markup_is_shown_as_it_stands() -> None:
    shown: Any = line("[bold red]alert[/bold red] :smile:")
    assert shown.plain == "[bold red]alert[/bold red] :smile:"
    assert shown.spans == []
