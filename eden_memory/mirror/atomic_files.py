"""Files that only their owner may read, written whole and put in place in one step."""

import ctypes
import os
import sys
from pathlib import Path

from eden_memory.errors import Conflict

AT_FDCWD, RENAME_EXCHANGE = -100, 2


def read_text(path: Path) -> str | None:
    """Return a file's text; None if it is not there. Conflict if it is not UTF-8."""
    try:
        return path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        raise Conflict(f"{path} is not valid UTF-8", "Save it as UTF-8, and start again.") from None


def write_text(path: Path, text: str) -> None:
    """Write a file, or replace it."""
    made = path.with_name(f".{path.name}.new")
    descriptor = os.open(made, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)


def replace_text(path: Path, former: str | None, text: str, aside: Path) -> bool:
    """Replace a file that holds `former` (None: does not exist); False, and no change, if it holds something else.

    The file and `aside` are exchanged: if somebody saved the file at the last moment, their text is put back.
    """
    write_text(aside, text)
    if not exchange(aside, path):
        expected = read_text(path) == former
        if expected:
            aside.replace(path)
    else:
        expected = read_text(aside) == former
        if not expected:
            exchange(aside, path)
    aside.unlink(missing_ok=True)
    return expected


def exchange(first: Path, second: Path) -> bool:
    """Exchange two files in one step; False if one is missing, or the system or its file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    names = os.fsencode(first), os.fsencode(second)
    return rename is not None and rename(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0
