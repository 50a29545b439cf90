"""An address that the driver cannot read is said without anything of it: passwords stand there."""

import pytest

from eden_memory.errors import EdenError
from eden_memory.mongo.client import connect, hosts


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://u:secret:more@h",
        "mongodb://u:p@h:99secret",
        "http://u:secret@h",
        "mongodb://u:p@secret@h",
        "mongodb://u:p/secret@h",
    ],
)
async def test_an_address_that_cannot_be_read_is_not_quoted(uri: str) -> None:
    with pytest.raises(EdenError, match="address of MongoDB") as raised:
        connect(uri)
    assert "secret" not in f"{raised.value.what} {raised.value.hint}"


async def test_a_password_that_is_not_encoded_is_hinted_at() -> None:
    with pytest.raises(EdenError, match="must be escaped") as raised:
        connect("mongodb://u:p@ss@h")
    assert "write @ as %40" in raised.value.hint


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("mongodb://a:1,b:2/db?w=1", "a:1,b:2"),
        ("mongodb+srv://u:secret@c.example.org", "c.example.org"),
        ("mongodb://u:sec@ret@h:1/?x", "h:1"),
        ("mongodb://u:sec/ret@h:1", "h:1"),
    ],
)
def test_hosts_are_named_without_the_account(uri: str, expected: str) -> None:
    assert hosts(uri) == expected
