"""The options of our MongoDB connection: durable by default, and what a connection string says wins."""

from uuid import UUID

from pymongo import AsyncMongoClient, ReadPreference
from pymongo.write_concern import WriteConcern

from eden_memory.mongo.client import connect
from eden_memory.settings import Settings


async def options_of(uri: str) -> AsyncMongoClient[dict[str, object]]:
    async with connect(uri) as client:  # pyright: ignore[reportCallIssue]
        return client


async def test_writes_are_journaled_on_a_majority_unless_the_connection_string_says_otherwise() -> None:
    durable = await options_of("mongodb://127.0.0.1:1/")
    assert durable.write_concern == WriteConcern(w="majority", j=True, wtimeout=30_000)
    assert (await options_of("mongodb://127.0.0.1:1/?w=1&journal=false")).write_concern.document["w"] == 1


async def test_a_read_preference_of_the_connection_string_wins() -> None:
    given = await options_of("mongodb://127.0.0.1:1/?readPreference=secondary")
    assert given.read_preference == ReadPreference.SECONDARY
    assert (await options_of("mongodb://127.0.0.1:1/")).read_preference == ReadPreference.PRIMARY


async def test_uuids_and_times_come_back_as_they_went(settings: Settings) -> None:
    assert settings.mongodb.uri is not None
    async with connect(settings.mongodb.uri.get_secret_value()) as client:
        things = client[settings.mongodb.database]["things"]
        await things.insert_one({"_id": UUID(int=5)})
        await things.update_one({"_id": UUID(int=5)}, {"$currentDate": {"at": True}})
        document = await things.find_one()
    assert document is not None
    assert document["_id"] == UUID(int=5)
    assert document["at"].tzinfo is not None
