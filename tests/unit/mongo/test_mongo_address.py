"""An address that the driver cannot read is said without anything of it: passwords stand there."""

import pytest

from eden_memory.errors import EdenError
from eden_memory.mongo.client import connect
from eden_memory.settings import Settings


@pytest.mark.parametrize(
    "uri", ["mongodb://u:secret:more@h", "mongodb://u:p@h:99secret", "http://u:secret@h"]
)
async def test_an_address_that_cannot_be_read_is_not_quoted(uri: str) -> None:
    with pytest.raises(EdenError, match="address of MongoDB") as raised:
        connect(Settings().mongodb, uri)
    assert "secret" not in f"{raised.value.what} {raised.value.hint}"
