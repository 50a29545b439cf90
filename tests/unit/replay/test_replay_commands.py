"""What `eden rebuild` and `eden reform` refuse before they connect to anything, and in words."""

from collections.abc import Callable
from pathlib import Path

import pytest

from eden_memory.cli import budget_commands
from eden_memory.cli.replay import rebuild, reform
from eden_memory.errors import EdenError
from eden_memory.replay.reform.reform_settings import overridden, overrides_of, streams_of
from eden_memory.settings import Settings

REFUSED: dict[str, Callable[[], object]] = {
    "no namespace is named": rebuild.rebuild,
    "--rollback takes no other options: NAME, --verify": lambda: rebuild.rebuild(
        "may", compare=True, back=True
    ),
    "--from-nothing takes no other options: --switch": lambda: rebuild.rebuild(
        then_switch=True, nothing=True
    ),
    "--rollback takes no other options: --from-nothing": lambda: rebuild.rebuild(back=True, nothing=True),
    "follows the live namespace already": lambda: rebuild.rebuild("may", follow=True, then_switch=True),
    "'May' cannot name": lambda: rebuild.rebuild("May"),
    "--cap must be a finite number": lambda: reform.run("trial", cap=float("inf")),
    "Leave it out to have no cap": lambda: reform.run("trial", cap=float("nan")),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_cannot_be_meant_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reform, "NICE", 0)
    with pytest.raises(EdenError, match=said):
        REFUSED[said]()


@pytest.mark.parametrize("command", [rebuild.rebuild, reform.run])
def test_accepting_without_switching_is_refused(command: Callable[..., object]) -> None:
    with pytest.raises(EdenError, match="--accept requires --switch"):
        command("may", accept=True)


@pytest.mark.parametrize(
    "content",
    [b"[models]\nfast = 2026-01-01\n", b"\xff\xfe", b"[models\n", b"models.x = " + b"[" * 9_999, b"a = 1"],
    ids=["a date", "no text", "no TOML", "too deep", "no setting"],
)
def test_a_file_of_settings_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_bytes(content)
    with pytest.raises(EdenError):
        overrides_of([], file)


@pytest.mark.parametrize("content", [b"\xff", b"{", b"{}", b"[1]", b"[{}]", b"[" * 99_999])
def test_a_file_of_streams_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "streams.json"
    file.write_bytes(content)
    with pytest.raises(EdenError):
        streams_of(file)


@pytest.mark.parametrize(
    "one", ["memory.similar=nan", "memory.context_days=inf", "windows.cold_minutes=inf", "memory.similar="]
)
def test_a_number_that_is_none_is_refused(one: str) -> None:
    with pytest.raises(EdenError, match="cannot be set so"):
        overridden(Settings(), overrides_of([one], None))


def test_a_budget_of_no_number_is_refused() -> None:
    with pytest.raises(EdenError, match="a limit cannot be nan USD"):
        budget_commands.set_("nan")
