"""What people give a command that it cannot take: a sentence, never a stack trace."""

import sys

import pytest
from pydantic import ValidationError
from rich.console import Console

from eden_memory.cli import demo
from eden_memory.cli.main import main
from eden_memory.demo.conversation import EXAMPLE, read_conversation
from eden_memory.demo.play import DemoPlan
from eden_memory.settings import ModelsSettings, MongoSettings, Settings


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code."""
    monkeypatch.setattr(sys, "argv", ["eden", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize("command", [("context", "\udcff"), ("forget", "session", "s.\udcff", "--yes")])
def test_an_argument_that_is_no_text_is_refused_before_anything_starts(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *command) == 2
    said = capsys.readouterr().err
    assert "an argument is not valid UTF-8" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("cap", ["-1", "nan"])
def test_a_cap_is_an_amount(
    cap: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "demo", "--cap", cap) == 2
    assert "--cap" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("search", "bees", "--top-k"), ("dead", "list", "--limit")])
def test_a_number_of_results_is_positive(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, *words, "-1") == 2
    assert words[-1] in capsys.readouterr().err


@pytest.mark.parametrize("questions", [("",), ("bees", " ")])
def test_an_empty_question_is_refused(
    questions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "search", *questions) == 2
    assert "is empty" in capsys.readouterr().err


def test_a_demo_whose_price_is_not_known_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    models = ModelsSettings(fast="m", free="m", paid="m")  # pyright: ignore[reportCallIssue]
    settings = Settings(llm="http://127.0.0.1:9/v1", models=models)
    plan = DemoPlan(read_conversation(EXAMPLE), False, 60.0, False, 0.25)
    demo._agree(Console(width=200), settings, plan, yes=True)  # pyright: ignore[reportPrivateUsage]
    said = capsys.readouterr().out
    assert "not all prices are known, and only known ones count: it stops at 0.25 USD" in said


def test_what_is_no_provider_is_refused_before_anything_starts_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "demo", "--llm", "sk-a-key-by-mistake") == 1
    shown = capsys.readouterr()
    assert "EDEN_LLM names neither a provider nor a URL" in shown.err
    assert "mistake" not in shown.out + shown.err
    assert "start" not in shown.out


@pytest.mark.parametrize("name", ["a b", "a/b", "a.b", "$a", 'a"', "", "x" * 64, "a\\b", "a\x00"])
def test_a_databases_name_that_mongodb_does_not_take_is_no_setting(name: str) -> None:
    assert MongoSettings(database="chat-2_é").database == "chat-2_é"  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValidationError, match="database"):
        MongoSettings(database=name)  # pyright: ignore[reportCallIssue]
