"""Users are numbers and guests are texts: plain digits are who is there, and nobody is forgotten by a guess."""

from collections.abc import AsyncGenerator

import pytest

from eden_memory.directory.id_reader_store import SAMPLE
from tests.integration.context.harness import kit_for
from tests.integration.doors.conftest import Doors, doors_of, namespaced
from tests.servers import TestServers

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
async def chat(servers: TestServers) -> AsyncGenerator[Doors]:
    """The guest 5 wrote first, then more users than are sampled; 6 is a user and a guest."""
    settings = namespaced(servers)
    async with kit_for(settings) as kit:
        try:
            users = ["5", *range(100, 100 + SAMPLE), 6]
            await kit.database["messages"].insert_many([{"user_id": user} for user in users])
            async with doors_of(kit) as doors:
                yield doors
        finally:
            await kit.client.drop_database(settings.mongodb.database)


async def asked(chat: Doors, user: str) -> object:
    """Forget a user; returns whom the request names, or the status."""
    answer = await chat.http.delete(f"/v1/users/{user}")
    if answer.status_code != 202:
        return answer.status_code
    (request,) = await chat.kit.database["memory_inbox"].find({"what": "user"}).to_list()
    await chat.kit.database["memory_inbox"].delete_many({})
    return request["target"]


async def test_plain_digits_are_who_is_there(chat: Doors) -> None:
    assert await asked(chat, "5") == "5"
    assert await asked(chat, "100") == 100
    assert await asked(chat, "7") == 7  # nobody has it, and the newest users are numbers
    await chat.kit.database["messages"].insert_many([{"user_id": "guest"}, {"user_id": "6"}])
    async with doors_of(chat.kit) as later:
        assert [await later.memory.ids.read("user", text) for text in ("5", "100", "6")] == ["5", 100, "6"]
        assert [await asked(later, user) for user in ("5", "100", "6", "7")] == ["5", 100, 422, 422]
        assert [await asked(later, user) for user in ("i.6", "s.6", "ann")] == [6, "6", "ann"]
