"""Read what forming one fact or blob cost, from its records in the memory topics and the counted calls."""

from collections.abc import Sequence

from eden_memory.errors import NotFound
from eden_memory.observability.scope_records import scope_records
from eden_memory.replay.installation import Installation, installation
from eden_memory.schemas.documents import Fact
from eden_memory.schemas.events import Event, FactChanged, ReflectionFormed, ScopeConsolidated
from eden_memory.settings import Settings
from eden_memory.stages.partition_count_store import PartitionCounts
from eden_memory.usage.memory_cost import Share, of_blob, of_fact
from eden_memory.usage.totals_store import MongoTotals

FACTS, BLOBS = ("memory.facts",), ("memory.consolidations", "memory.reflections")


async def shares_of(settings: Settings, name: str) -> list[Share]:
    """Return the cost that each call added to a fact or blob; NotFound if there is none of that name."""
    async with installation(settings) as at:
        names = at.settings.names
        fact = await at.database[names[Fact.COLLECTION]].find_one({"_id": name.partition("@")[0]})
        if fact is None:
            return await _of_blob(at, name)
        events = await _events(at, FACTS, fact["scope_key"])
        versions = [
            event for event in events if isinstance(event, FactChanged) and event.fact_id == fact["_id"]
        ]
        vectors = [used.embedding.call_id for used in versions if used.embedding and used.embedding.call_id]
        return of_fact(versions, await MongoTotals(at.database, names).embedded(vectors))


async def _of_blob(at: Installation, name: str) -> list[Share]:
    scope_key, _, version = name.partition("@")
    events = await _events(at, BLOBS, scope_key) if ":" in scope_key else []
    newest = int(version) if version.isdecimal() else None
    versions = [
        event
        for event in events
        if isinstance(event, ScopeConsolidated) and (newest is None or event.version <= newest)
    ]
    if not versions:
        raise NotFound(
            f"there is no fact and no blob {name}", "Give a fact's id, or a scope key as user:A:U."
        )
    return of_blob(versions, [event for event in events if isinstance(event, ReflectionFormed)])


async def _events(at: Installation, short: Sequence[str], scope_key: str) -> list[Event]:
    topics, used = at.topics(at.settings.placement), PartitionCounts(at.database, at.settings.names).used
    records = await scope_records(
        at.kafka, [topics.name(topic) for topic in short], [scope_key], await used()
    )
    return [record.event for record in records]
