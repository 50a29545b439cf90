"""What a killed process had locked in a transaction holds up nobody for the server's minute."""

from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.errors import OperationFailure

from eden_memory.mongo.client import connect
from eden_memory.mongo.transactions import Transactions
from eden_memory.settings import Settings

pytestmark = pytest.mark.servers


async def test_a_transaction_that_nobody_goes_on_with_is_ended_and_not_waited_for(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    uri, name = settings.mongodb.uri.get_secret_value(), settings.mongodb.database
    async with connect(settings.mongodb, uri) as killed, connect(settings.mongodb, uri) as living:
        await living[name]["sums"].insert_one({"_id": 1, "of": 0})
        async with killed.start_session() as session:
            await session.start_transaction()
            await killed[name]["sums"].update_one({"_id": 1}, {"$inc": {"of": 100}}, session=session)

            async def add(mine: AsyncClientSession) -> None:
                await living[name]["sums"].update_one({"_id": 1}, {"$inc": {"of": 1}}, session=mine)

            await Transactions(living).run(add)
            with pytest.raises(OperationFailure) as ended:
                await session.commit_transaction()
        found: dict[str, Any] = await living[name]["sums"].find_one({"_id": 1}) or {}
    assert ended.value.code == 251  # NoSuchTransaction
    assert found["of"] == 1
