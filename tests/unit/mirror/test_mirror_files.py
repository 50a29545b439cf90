"""Files of a mirror: replaced in one step, never over what somebody saved; what a killed mirror left is finished."""

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eden_memory.cli.main import app
from eden_memory.errors import Conflict, EdenError, Invalid
from eden_memory.files import mirror_folder
from eden_memory.files.mirror_folder import (
    KEPT_BASES,
    MirrorFolder,
    ScopeFile,
    SealedNotes,
    file_name,
    read_text,
    remove_others,
    replace_text,
)
from eden_memory.files.mirror_page import FileConflict, Merged, MirroredItem, digest_of, parsed

KEY = "user:s.helper:s.ann"
NOTES = SealedNotes(b"secret" * 6)


def refused(first: Path, second: Path) -> bool:
    """A file system that cannot exchange files."""
    return False


@pytest.fixture(params=["exchanged", "put in place"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the file system can exchange two files or not."""
    if request.param == "put in place":
        monkeypatch.setattr(mirror_folder, "exchange", refused)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("there", "former", "replaced"),
    [(None, None, True), ("a", "a", True), ("saved", "a", False), ("saved", None, False), (None, "a", False)],
)
def test_a_file_is_replaced_only_if_it_says_what_was_read(
    tmp_path: Path, there: str | None, former: str | None, replaced: bool
) -> None:
    path = tmp_path / "user.md"
    if there is not None:
        path.write_text(there)
    assert replace_text(path, former, "new", tmp_path / "aside.md") is replaced
    assert read_text(path) == ("new" if replaced else there)
    assert [one.name for one in tmp_path.iterdir()] == ([] if read_text(path) is None else ["user.md"])


def filled(number: int) -> Merged:
    merged = Merged()
    merged.show(MirroredItem("fact", "f1", number, f"Text {number}."))
    return merged


def opened(tmp_path: Path) -> ScopeFile:
    return ScopeFile(tmp_path, tmp_path / "own", KEY, NOTES)


@pytest.fixture
def file(tmp_path: Path) -> ScopeFile:
    (tmp_path / "own").mkdir()
    return opened(tmp_path)


def test_what_was_saved_when_the_mirror_was_killed_is_put_back(file: ScopeFile, tmp_path: Path) -> None:
    file.write(None, filled(1))
    ours = file.read()
    (tmp_path / "own" / file_name(KEY) / "aside.md").write_text("saved in the last moment")
    again = opened(tmp_path)
    assert again.read() == "saved in the last moment"
    (tmp_path / "own" / file_name(KEY) / "aside.md").write_text(ours or "")
    assert opened(tmp_path).read() == "saved in the last moment"


def test_a_file_names_the_memory_that_it_was_written_from(file: ScopeFile, tmp_path: Path) -> None:
    file.write(None, filled(1))
    first = parsed(file.read() or "")
    for number in range(2, KEPT_BASES + 1):
        assert file.write(file.read(), filled(number))
    assert opened(tmp_path).base(first) == filled(1).base
    for number in range(KEPT_BASES + 1, KEPT_BASES + 4):
        assert file.write(file.read(), filled(number))
    assert opened(tmp_path).base(first) is None
    assert opened(tmp_path).base(None) == filled(KEPT_BASES + 3).base


def test_notes_hold_no_text(file: ScopeFile, tmp_path: Path) -> None:
    file.write(None, filled(1))
    noted = [one.read_text() for one in (tmp_path / "own").rglob("*") if one.is_file()]
    assert noted
    assert not [text for text in noted if "Text 1." in text or digest_of("Text 1.") in text]


def test_the_same_memory_has_another_name_in_another_installation(tmp_path: Path) -> None:
    """A hash of a text in the open would tell whoever guesses the text that it was once memory."""
    written = list[str]()
    for number, secret in enumerate((b"a" * 32, b"b" * 32, b"a" * 32)):
        (tmp_path / f"{number}").mkdir()
        file = ScopeFile(tmp_path / f"{number}", tmp_path / f"{number}", KEY, SealedNotes(secret))
        file.write(None, filled(1))
        written.append(file.read() or "")
    assert written[0] == written[2] != written[1]


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"{}"])
def test_a_damaged_note_is_removed_and_named(file: ScopeFile, tmp_path: Path, damaged: bytes) -> None:
    file.write(None, filled(1))
    page = parsed(file.read() or "")
    own = tmp_path / "own" / file_name(KEY)
    notes = [path for path in own.iterdir() if path.is_file()]
    for path in notes:
        path.write_bytes(damaged)
    again = opened(tmp_path)
    assert again.base(page) is None
    assert not any(path.exists() for path in notes)


def test_notes_of_another_installation_are_none(file: ScopeFile, tmp_path: Path) -> None:
    file.write(None, filled(1))
    page = parsed(file.read() or "")
    other = ScopeFile(tmp_path, tmp_path / "own", KEY, SealedNotes(b"other" * 8))
    assert other.base(page) is None
    assert not other.is_as_written(file.read())


def test_conflicts_are_shown_once_and_go_with_forgotten_memory(file: ScopeFile) -> None:
    shown = [
        FileConflict("f1", "it has changed meanwhile", "Mine."),
        FileConflict("", "too long", "New <!-- f1 -->"),
    ]
    assert file.add_conflicts(shown)
    assert not file.add_conflicts(shown)
    assert file.conflicting() == {"f1"}
    file.drop_conflicts({"f1"}.__contains__)
    text = file.conflicts.read_text()
    assert "- too long: New \\<!-- f1 --> <!-- new -->" in text
    assert "Mine." not in text


def test_files_of_scopes_that_vanished_before_the_mirror_started_are_removed(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "memory").write_text("of ann")
    (tmp_path / "mine.md").write_text("mine")
    left = "shard:s.helper:pricing"
    for key in (KEY, left):
        file = ScopeFile(tmp_path, tmp_path / "own", key, NOTES)
        file.write(None, filled(1))
        file.add_conflicts([FileConflict("f1", "it has changed meanwhile", "Mine.")])
    (tmp_path / "own" / file_name(left) / "aside.md").write_text("Text.")
    remove_others(tmp_path, tmp_path / "own", [KEY])
    name = file_name(KEY)
    assert {path.name for path in tmp_path.iterdir()} == {
        "own",
        "mine.md",
        f"{name}.md",
        f"{name}.conflicts.md",
    }
    assert {path.name for path in (tmp_path / "own").iterdir()} == {"memory", name}


def test_no_scope_has_the_file_of_anothers_conflicts(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    files = [
        ScopeFile(tmp_path, tmp_path / "own", f"shard:s.helper:{name}", NOTES)
        for name in ("x", "x.conflicts")
    ]
    assert len({path for file in files for path in (file.path, file.conflicts)}) == 4


def test_long_keys_have_short_names() -> None:
    long = [f"user:s.helper:s.{'x' * 4_000}{end}" for end in "ab"]
    names = {file_name(key) for key in long}
    assert (len(names), max(map(len, names)) < 200) == (2, True)
    assert file_name("agent:s.helper") == "agent"
    assert file_name("session:s.one:2") == "session.s.one.2"


def test_a_folder_is_made_a_mirror_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir(mode=0o755)
    folder = MirrorFolder(tmp_path / "notes", "of ann")
    with pytest.raises(Conflict, match="no marker"):
        folder.open()
    (tmp_path / "notes" / "mine.md").write_text("mine")
    with pytest.raises(Invalid, match="holds Markdown"):
        folder.create()
    (tmp_path / "notes" / "mine.md").unlink()
    folder.create()
    folder.open()
    with pytest.raises(Conflict, match="another process"):
        MirrorFolder(tmp_path / "notes", "of ann").open()
    folder.close()
    assert (tmp_path / "notes").stat().st_mode & 0o777 == 0o700


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "user.md").write_bytes(b"\xff\xfe")
    with pytest.raises(EdenError, match=r"user.md is not valid UTF-8"):
        read_text(tmp_path / "user.md")


def test_the_command_says_which_extra_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, "eden_memory.files.mirroring", raising=False)
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    ended = CliRunner().invoke(app, ["mirror", str(tmp_path), "--user", "ann"])
    assert isinstance(ended.exception, EdenError)
    assert "watchfiles" in ended.exception.what
    assert "eden-memory[mirror]" in ended.exception.hint
    monkeypatch.undo()
    ended = CliRunner().invoke(app, ["mirror", str(tmp_path), "--accept", "--restore"])
    assert isinstance(ended.exception, Invalid)
