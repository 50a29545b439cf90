"""The connection to MongoDB, with the options that durability and real clusters need."""

import asyncio
import sys
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from bson.codec_options import CodecOptions
from pymongo import AsyncMongoClient, ReadPreference, lock
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.driver_info import DriverInfo
from pymongo.errors import InvalidURI
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from eden_memory.errors import EdenError
from eden_memory.tasks import patience, process_is_ours

APP_NAME = "eden-memory"
CLIENT = "client "
"""Before the name of one client among what it tells the server of its platform: every connection of it says so."""
CLOSE_SECONDS = 0.5
NEEDED = sys.version_info < (3, 12)
"""Whether PyMongo loses its lock if a wait is cancelled; a test fails once it no longer does."""
ENCODE = (
    "Check EDEN_MONGODB_URI: in its user name and password write @ as %40, : as %3A, / as %2F, ? as %3F, "
    "# as %23 and % as %25."
)


class Client(AsyncMongoClient[dict[str, Any]]):
    """Closes also while the server is frozen: the driver would wait for it to hear of the sessions' end."""

    async def close(self) -> None:
        """Tell the server if it answers, and disconnect."""
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await super().close()
        except TimeoutError:
            await super().close()  # the sessions are already released: the rest needs no server


def connect(uri: str) -> AsyncMongoClient[dict[str, Any]]:
    """A client for this connection string: journaled majority writes, aware datetimes, bounded waits.

    What the connection string says itself (timeouts, write concern, TLS) wins. No I/O here.
    EdenError, with nothing of the string in it, where the driver cannot read that.
    """
    if process_is_ours():
        let_waits_be_cancelled()
    try:
        driver = DriverInfo(APP_NAME, platform=CLIENT + uuid4().hex)
        return Client(uri, driver=driver, **_unless_in(uri, _options()))
    except (ValueError, InvalidURI) as error:
        what = f"the address of MongoDB is not valid: {str(error).partition(':')[0].partition(',')[0]}"
        raise EdenError(what, ENCODE if "@" in uri else "Check EDEN_MONGODB_URI.") from None


def hosts(uri: str) -> str:
    """Return the addresses of a connection string, without the user name and the password."""
    return uri.partition("://")[2].rpartition("@")[2].partition("/")[0].partition("?")[0]


def _options() -> dict[str, Any]:
    return {
        "appname": APP_NAME,
        "tz_aware": True,
        "tzinfo": UTC,  # or documents, which hold UTC itself, replace the driver's own one by one
        "uuidRepresentation": "standard",
        "w": "majority",
        "journal": True,
        "readConcernLevel": "majority",
        "read_preference": ReadPreference.PRIMARY,
        "retryWrites": True,
        "retryReads": True,
        "serverSelectionTimeoutMS": int(patience(15.0) * 1000),
        "connectTimeoutMS": int(min(10.0, patience(15.0) * 0.75) * 1000),  # below: its failure has a reason
        "socketTimeoutMS": 60_000,
        "wTimeoutMS": 30_000,
    }


def _unless_in(uri: str, options: dict[str, Any]) -> dict[str, Any]:
    named = {pair.partition("=")[0].lower() for pair in uri.partition("?")[2].replace(";", "&").split("&")}
    aliases = {"read_preference": "readpreference"}
    return {name: value for name, value in options.items() if aliases.get(name, name.lower()) not in named}


async def _wait_here(awaitable: Awaitable[Any], timeout: float | None) -> Any:
    async with asyncio.timeout(timeout):
        return await awaitable


def let_waits_be_cancelled() -> None:
    """Replace what PyMongo waits with (`pymongo.lock.wait_for`), as Python 3.12 does itself.

    Before 3.12 `asyncio.wait_for` waits in a task of its own. Who is cancelled while the wait times out goes on
    without it; that task then takes the pool's lock, and nobody gives it back.
    """
    if NEEDED:
        setattr(lock, "wait_for", _wait_here)  # noqa: B010 - not a name that the module exports


async def server_time(client: AsyncMongoClient[dict[str, Any]]) -> datetime:
    """Return the time by the clock of MongoDB's primary, to the millisecond.

    What a period or a deadline that processes share is compared with: the clock of one of them may be wrong.
    """
    options = CodecOptions[dict[str, Any]](tz_aware=True, tzinfo=UTC)
    found: datetime = (await client["admin"].command("hello", codec_options=options))["localTime"]
    return found


def majority(database: AsyncDatabase[dict[str, Any]], name: str) -> AsyncCollection[dict[str, Any]]:
    """Return a collection of the primary whose reads and writes a majority of the members has."""
    return database.get_collection(
        name,
        read_preference=ReadPreference.PRIMARY,
        read_concern=ReadConcern("majority"),
        write_concern=WriteConcern("majority", j=True),
    )
