"""Which versions of events have been written here: a program that knows less than that does not begin."""

from collections.abc import Mapping
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.domain.errors import EdenError
from eden_memory.domain.names import Names

KEY = "events"


async def heed_versions(
    database: AsyncDatabase[dict[str, Any]], names: Names, known: Mapping[str, int]
) -> None:
    """Note the versions that this program writes; an EdenError that names those that it does not know.

    It would dead-letter them, one by one.
    """
    versions = database[names["versions"]]
    written: Mapping[str, int] = (await versions.find_one({"_id": KEY}) or {}).get("versions", {})
    newer = [f"{name} v{number}" for name, number in sorted(written.items()) if number > known.get(name, 0)]
    if newer:
        raise EdenError(
            f"a newer version of this program has written here: {', '.join(newer)} cannot be read",
            "Run that version, or a later one.",
        )
    raised = {f"versions.{name}": number for name, number in known.items()}
    await versions.update_one({"_id": KEY}, {"$max": raised}, upsert=True)
