"""The boot archive: made once, used only when this Java can read it, and never needed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from eden_memory.errors import EdenError
from eden_memory.local.local_kafka import BootArchive


class Training:
    """Counts how often it is asked, and leaves what it is told to."""

    def __init__(self, leaves: bytes | None) -> None:
        self.times = 0
        self._leaves = leaves

    def __call__(self, folder: Path, options: Sequence[str]) -> None:
        self.times += 1
        if self._leaves is None:
            raise EdenError("Kafka ended while it was starting")
        made = next(option.partition("=")[2] for option in options if "AOTCacheOutput" in option)
        Path(made).write_bytes(self._leaves)


@pytest.mark.parametrize("leaves", [None, b"not an archive"])
def test_an_archive_that_cannot_be_made_is_not_used_and_not_tried_again(
    tmp_path: Path, leaves: bytes | None
) -> None:
    archive, training = BootArchive(tmp_path), Training(leaves)
    archive.ensure(training)
    archive.ensure(training)
    assert training.times == 1
    assert archive.options == ()
    assert {file.name for file in tmp_path.iterdir()} == {".lock", archive.file.name}


def test_an_archive_that_is_there_is_used_and_not_made_again(tmp_path: Path) -> None:
    archive, training = BootArchive(tmp_path), Training(None)
    archive.file.write_bytes(b"made earlier")
    archive.ensure(training)
    assert training.times == 0
    assert f"-XX:AOTCache={archive.file}" in archive.options
