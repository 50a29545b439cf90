"""The namespaces in which what is forgotten stays, though `eden run` runs."""

from typing import Any

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.replay.namespaces import namespace_names as judging
from eden_memory.replay.namespaces.live_store import MongoLive
from eden_memory.replay.namespaces.namespace_store import MongoNamespaces
from eden_memory.replay.reform.reform_store import MongoReforms
from eden_memory.schemas.documents import Namespace


async def neglected(database: AsyncDatabase[dict[str, Any]], prefix: str) -> list[Namespace]:
    """By age; none as a rule. `prefix` is the installation's."""
    known = await MongoNamespaces(database, prefix).all()
    reforms = [namespace.id for namespace in known if judging.half_formed(namespace)]
    unrestored = await MongoReforms(database, prefix).unrestored(reforms)
    return judging.neglected(await MongoLive(database, prefix).placement(), known, unrestored)
