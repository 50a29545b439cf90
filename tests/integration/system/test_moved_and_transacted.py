"""Messages that a transaction or a move changes, from the chat's writes to memory: what is left is remembered."""

import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession

from eden_memory.mongo.ids import encode_id
from eden_memory.stages.publishing import partition_for
from tests.integration.system.running_system import PARTITIONS, System, until

pytestmark = pytest.mark.servers


@pytest.fixture
async def kept(shared: System) -> System:
    """The system, its messages kept as they were before each change."""
    names = await shared.source.list_collection_names(filter={"name": "messages"})
    if not names:
        await shared.source.create_collection("messages")
    await shared.source.command("collMod", "messages", changeStreamPreAndPostImages={"enabled": True})
    return shared


def in_one_partition(name: str) -> str:
    """Another session's id that is hashed to the same partition."""
    wanted = partition_for(encode_id(name).encode(), PARTITIONS)
    while True:
        other = f"session-{uuid4().hex[:8]}"
        if partition_for(encode_id(other).encode(), PARTITIONS) == wanted:
            return other


async def in_transaction(shared: System, work: Callable[[AsyncClientSession], Awaitable[Any]]) -> None:
    async with shared.database.client.start_session() as session, await session.start_transaction():
        await work(session)


async def forgotten(shared: System, message: str) -> None:
    """Until the forgetting of a message seen deleted is done, not only begun."""
    decided = {"members": re.compile(f"^forgetting:forgotten/message:{re.escape(encode_id(message))}/")}

    async def done() -> bool:
        return await shared.memory("outcomes").find_one(decided) is not None

    await until(done, f"{message} is forgotten")


async def test_a_message_moved_within_a_partition_is_remembered(kept: System) -> None:
    here = await kept.session("ida")
    there = await kept.session("ida", id=in_one_partition(here))
    (moved,) = await kept.write(here, "ida", "fact user: Ida keeps bees.")
    await kept.source["messages"].update_one({"_id": moved}, {"$set": {"session_id": there}})
    await kept.form(here)
    await kept.form(there)
    await kept.formed([moved], 1)
    assert await kept.facts("ida") == ["Ida keeps bees."]


async def test_a_placeholder_filled_in_its_transaction_is_remembered(kept: System) -> None:
    session = await kept.session("jon")
    messages = kept.source["messages"]
    row = {
        "_id": f"m-{uuid4().hex[:10]}",
        "session_id": session,
        "role": "user",
        "user_id": "jon",
        "content": "",
    }

    async def work(within: AsyncClientSession) -> None:
        await messages.insert_one(row, session=within)
        filled = {"$set": {"content": "fact user: Jon sails."}}
        await messages.update_one({"_id": row["_id"]}, filled, session=within)

    await in_transaction(kept, work)
    await kept.form(session)
    await kept.formed([row["_id"]], 1)
    assert await kept.facts("jon") == ["Jon sails."]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_message_deleted_and_inserted_again_outlives_its_own_deletion(
    kept: System, elsewhere: bool
) -> None:
    here = await kept.session("kim")
    there = await kept.session("kim", id=in_one_partition(here)) if elsewhere else here
    (name,) = await kept.write(here, "kim", "fact user: Kim lives in Oslo.")
    messages = kept.source["messages"]

    async def work(within: AsyncClientSession) -> None:
        row = await messages.find_one_and_delete({"_id": name}, session=within)
        assert row is not None
        again = {**row, "session_id": there, "content": f"fact user: Kim lives in Lima {elsewhere}."}
        await messages.insert_one(again, session=within)

    await in_transaction(kept, work)
    await forgotten(kept, name)
    await kept.form(there)
    await kept.formed([name], 1)
    await kept.shows(there, "kim", f"Kim lives in Lima {elsewhere}.", without=["Oslo"])


async def test_a_message_inserted_under_the_id_of_one_that_was_formed_and_deleted_is_remembered(
    kept: System,
) -> None:
    session = await kept.session("lea")
    (name,) = await kept.write(session, "lea", "fact user: Lea lives in Rome.")
    await kept.form(session)
    await kept.formed([name], 1)
    messages = kept.source["messages"]
    row = await messages.find_one_and_delete({"_id": name})
    assert row is not None
    await messages.insert_one({**row, "content": "fact user: Lea lives in Bern."})
    await forgotten(kept, name)
    await kept.form(session)
    await kept.shows(session, "lea", "Lea lives in Bern.", without=["Rome"])
    assert await kept.facts("lea") == ["Lea lives in Bern."]
