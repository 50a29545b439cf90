"""What is gathered of chat lies in a file that has no name: of a process that is killed nothing stays behind."""

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eden_memory.replay.restore.restore_file import RestoreFile
from eden_memory.windows.session_state import StoredMessage

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = "said to nobody else " * 100


def open_files() -> dict[str, str]:
    """What the process has open, by descriptor; the folder's own is gone by then."""
    found: dict[str, str] = {}
    for one in Path("/proc/self/fd").iterdir():
        try:
            found[one.name] = os.readlink(one)
        except FileNotFoundError:
            continue
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_of_chat_has_a_name_on_the_disk() -> None:
    before = open_files()
    gathered = RestoreFile()
    gathered.begin()
    for number in range(12_000):
        name = f"s.{number}"
        message = StoredMessage(name, "s.talk", "1", NOW, "user", "s.ana", TEXT, len(TEXT), truncated=False)
        gathered.put(message, number, waits=True)
    gathered.end()
    files = [path for name, path in open_files().items() if name not in before]
    assert files, "24 MB are more than it holds in memory"
    assert all(path.endswith(" (deleted)") for path in files)
    assert sum(1 for _ in gathered.settled("s.talk")) == 0
    gathered.close()
