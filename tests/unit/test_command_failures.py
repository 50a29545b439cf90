"""What a person reads where settings are wrong or a server is away: one sentence, no values, no stack trace."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import ServerSelectionTimeoutError
from rich.text import Text

from eden_memory.cli.main import COMMANDS, main
from eden_memory.settings import Settings

SECRET = "sk-secret-value"


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDEN_MONGODB_URI", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200")
    monkeypatch.setenv("EDEN_KAFKA_BOOTSTRAP", "127.0.0.1:1")


def ended(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["eden", *words])
    with pytest.raises(SystemExit) as found:
        main()
    assert isinstance(found.value.code, int)
    return found.value.code


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("EDEN_MONGODB_DATABSE", "mongodb.databse"),
        ("EDEN_WINDOWS_MESSAGES", "windows.messages"),
        ("EDEN_MONGODB", "mongodb"),
        (
            "EDEN_MESSAGE_COLLECTION",
            "EDEN_MESSAGE_COLLECTION: there is no such setting (is it EDEN_MESSAGES_COLLECTION?)",
        ),
        ("EDEN_QQQ", "EDEN_QQQ: there is no such setting"),
    ],
)
def test_a_wrong_setting_is_named_without_its_value(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, SECRET)
    assert ended(monkeypatch, "namespace", "list") == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "docs/reference/settings.md" in shown
    assert SECRET not in shown


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("[mongdb]\nuri = '{}'", "mongdb: there is no such setting (is it mongodb?)"),
        ("[kafka]\nbootstrp = '{}'", "kafka.bootstrp: there is no such setting (is it kafka.bootstrap?)"),
        ("bootstrap = '{}'", "bootstrap: there is no such setting (is it kafka.bootstrap?)"),
        ("lml = '{}'", "lml: there is no such setting (is it llm?)"),
        ("[zzz]\nqqq = '{}'", "zzz: there is no such setting"),
    ],
)
def test_a_name_in_the_settings_file_that_there_is_not_is_refused(
    file: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "eden.toml").write_text(file.format(SECRET))
    monkeypatch.setitem(Settings.model_config, "toml_file", "eden.toml")
    assert ended(monkeypatch, "namespace", "list") == 2
    shown = capsys.readouterr().err
    assert f"settings are not valid: {said}\n" in shown
    assert "docs/reference/settings.md" in shown
    assert SECRET not in shown


def test_variables_that_are_no_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("EDEN_KEY", "EDEN_API_KEY_API_EXAMPLE_ORG", "EDEN_MCP_AGENT", "EDEN_TEST_CONTAINERS"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("EDEN_QQQ", "")
    assert Settings().kafka.bootstrap == "127.0.0.1:1"


def test_a_settings_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "eden.toml").write_text("[mongodb")
    monkeypatch.setitem(Settings.model_config, "toml_file", "eden.toml")
    assert ended(monkeypatch, "namespace", "list") == 2
    assert "settings cannot be read: eden.toml: " in capsys.readouterr().err


def test_a_mongodb_that_does_not_answer_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "namespace", "list") == 1
    assert "MongoDB does not answer: 127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=200", "MongoDB does not answer: 127.0.0.1:1"),
        ("mongodb://127.0.0.1:1/", "MongoDB does not answer"),
        ("http://127.0.0.1", "the address of MongoDB is not valid: Invalid URI scheme"),
    ],
)
def test_status_says_once_why_mongodb_does_not_answer(
    uri: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EDEN_MONGODB_URI", uri)
    assert ended(monkeypatch, "status") == 0
    shown = capsys.readouterr().out
    assert shown.count(said) == 1
    assert "EDEN_MONGODB_URI" in shown
    assert "waiting to be formed" not in shown


@pytest.mark.parametrize("words", [("budget", "list"), ("rebuild", "other")])
def test_with_debug_the_stack_trace_is_kept(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["eden", *words, "--debug"])
    with pytest.raises(ServerSelectionTimeoutError):
        main()


def leaves(command: Any) -> Iterator[Any]:
    """Yield a command, or those of a family."""
    below = getattr(command, "commands", None)
    yield from chain.from_iterable(map(leaves, below.values())) if below is not None else [command]


def test_no_help_is_taken_for_markup() -> None:
    for name, entry in COMMANDS.items():
        for command in leaves(entry.load(name)):
            texts = [entry.help, command.help, *(getattr(param, "help", None) for param in command.params)]
            for text in filter(None, texts):
                assert Text.from_markup(text).plain == text


def test_every_command_takes_debug() -> None:
    everyone = [one for name, entry in COMMANDS.items() for one in leaves(entry.load(name))]
    assert len(everyone) > len(COMMANDS)
    assert not [one.name for one in everyone if "--debug" not in chain(*(to.opts for to in one.params))]


def test_a_fault_of_the_programs_own_keeps_its_stack_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eden_memory.cli.main.app", {}.popitem)
    with pytest.raises(KeyError):
        main()
