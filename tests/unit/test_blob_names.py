"""The name of a blob version is read as it is written; anything else names none."""

import pytest

from eden_memory.forgetting.forgetting_rules import BlobRef
from eden_memory.schemas.scopes import Scope


@pytest.mark.parametrize("key", ["user:s.default:s.ada", "user:s.default:s.ada%40home.example"])
def test_a_name_is_read_as_it_was_written(key: str) -> None:
    assert BlobRef.parse(BlobRef(Scope.of_key(key, "s.default"), 12).name) == (key, 12)


@pytest.mark.parametrize("version", ["", "0", "-1", "01", "1.0", " 1", "1\n", "٣", "x", "9" * 19])
def test_what_is_no_version_names_none(version: str) -> None:
    assert BlobRef.parse(f"agent:s.default@{version}") is None


def test_a_key_alone_names_none() -> None:
    assert BlobRef.parse("agent:s.default") is None
