"""Finding mongod: what is missing on this machine is named, what can be repaired is."""

import os
from pathlib import Path

import pytest

from eden_memory.errors import EdenError
from eden_memory.local import mongo
from eden_memory.local.servers import without_password

LDD = """\
\tlinux-vdso.so.1 (0x00007fbcfa793000)
\tlibcurl.so.4 => not found
\tliblzma.so.5 => /lib/x86_64-linux-gnu/liblzma.so.5 (0x00007fbcfa6a4000)
\tlibcrypto.so.3 => not found
"""


def fake_mongod(folder: Path, mode: int) -> Path:
    binary = folder / "mongod"
    binary.write_text("#!/bin/sh\n")
    binary.chmod(mode)
    return binary


def test_missing_libraries_are_read_from_ldd() -> None:
    assert mongo.missing_libraries(LDD) == ["libcurl.so.4", "libcrypto.so.3"]


def test_a_missing_library_is_told_with_the_package_that_brings_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mongod(tmp_path, 0o755)
    ldd = tmp_path / "ldd"
    ldd.write_text(f"#!/bin/sh\ncat <<'END'\n{LDD}END\n")
    ldd.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(EdenError, match=r"libcurl\.so\.4, libcrypto\.so\.3") as raised:
        mongo.find_mongod()
    assert "libcurl4 (Debian, Ubuntu) or libcurl (Fedora)" in raised.value.hint


def test_a_mongod_on_the_path_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = fake_mongod(tmp_path, 0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert mongo.find_mongod() == binary


def test_a_mongod_without_its_run_bit_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = fake_mongod(tmp_path, 0o644)
    monkeypatch.setattr(mongo, "_from_wheel", lambda: binary)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert os.access(mongo.find_mongod(), os.X_OK)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://u:p%40ss@a:1,b:2/db?x=1", "mongodb://a:1,b:2/db"),
        ("mongodb+srv://u:p@cluster.example.net", "mongodb+srv://cluster.example.net"),
        ("mongodb://127.0.0.1:27017/?replicaSet=r", "mongodb://127.0.0.1:27017/"),
    ],
)
def test_a_connection_string_is_shown_without_its_password(uri: str, shown: str) -> None:
    assert without_password(uri) == shown
