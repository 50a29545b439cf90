"""The installation's secret is made once, whoever asks first."""

import asyncio

import pytest

from eden_memory.directory.secret_store import BYTES, installation_secret
from eden_memory.names import Names
from tests.integration.formation.extraction.extraction_kit import Kit
from tests.names import NAMES

pytestmark = pytest.mark.servers


async def test_many_that_ask_at_once_are_given_the_same_secret_and_so_is_who_asks_later(kit: Kit) -> None:
    given = await asyncio.gather(*(installation_secret(kit.database, NAMES) for _ in range(30)))
    later = await installation_secret(kit.database, NAMES)
    assert {*given, later} == {later}
    assert len(later) == BYTES


async def test_installations_have_secrets_of_their_own(kit: Kit) -> None:
    one = await installation_secret(kit.database, NAMES)
    other = await installation_secret(kit.database, Names("other_"))
    assert one != other
