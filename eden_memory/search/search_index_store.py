"""Atlas vector and text search over facts: made where the server has them, and waited for until they answer."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import OperationFailure
from pymongo.operations import SearchIndexModel

from eden_memory.errors import EdenError
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact

Row = dict[str, Any]
VECTOR_INDEX, TEXT_INDEX = "facts_vector", "facts_text"
FOLDED: Row = {"name": "folded", "tokenizer": {"type": "standard"}, "tokenFilters": [{"type": "icuFolding"}]}
WAYS = {"english": "lucene.english", "folded": "folded", "cjk": "lucene.cjk", "thai": "lucene.thai"}
"""The same words by their English stems, without accents, as pairs of characters, and as Thai words; by analyzer."""
FILTERS = ("agent_id", "user_id", "group_id", "scope", "scope_key")
NOT_THERE = {59, 115, 31_082, 40_324, 6_047_401}
"""CommandNotFound, CommandNotSupported, SearchNotEnabled, unknown stage, "only allowed on Atlas"."""


def definitions(dimensions: int) -> dict[str, tuple[str, Row]]:
    """Name → (type, definition): vectors by cosine and words, both with the scope's filters inside."""
    filters = [{"type": "filter", "path": path} for path in (*FILTERS, "active", "embedding_model")]
    vector = {"type": "vector", "path": "embedding", "numDimensions": dimensions, "similarity": "cosine"}
    ways: Row = {way: {"type": "string", "analyzer": analyzer} for way, analyzer in WAYS.items()}
    words: Row = {"content": {"type": "string", "multi": ways}, "active": {"type": "boolean"}}
    words |= {path: {"type": "token"} for path in FILTERS}
    return {
        VECTOR_INDEX: ("vectorSearch", {"fields": [vector, *filters]}),
        TEXT_INDEX: ("search", {"mappings": {"dynamic": False, "fields": words}, "analyzers": [FOLDED]}),
    }


async def found(facts: AsyncCollection[Row]) -> Sequence[Mapping[str, Any]] | None:
    """The search indexes that there are; None where the server has no search."""
    try:
        return await (await facts.list_search_indexes()).to_list()
    except OperationFailure as error:
        if error.code in NOT_THERE:
            return None
        raise


def dimensions_of(there: Sequence[Mapping[str, Any]]) -> int | None:
    """Numbers of a vector, as a vector index that is there has it; None without one."""
    fields = [
        field
        for mapping in there
        if mapping["name"] == VECTOR_INDEX
        for field in mapping.get("latestDefinition", {}).get("fields", ())
    ]
    return next((int(path["numDimensions"]) for path in fields if "numDimensions" in path), None)


async def make(facts: AsyncCollection[Row], dimensions: int) -> list[str] | None:
    """Create what is missing and put right what differs; the names of these, None where there is no search."""
    there = await found(facts)
    if there is None:
        return None
    known = {str(mapping["name"]): mapping for mapping in there}
    made: list[str] = []
    for name, (kind, definition) in definitions(dimensions).items():
        if name not in known:
            await facts.create_search_index(SearchIndexModel(definition, name=name, type=kind))
        elif not same(definition, known[name].get("latestDefinition", {})):
            await facts.update_search_index(name, definition)
        else:
            continue
        made.append(name)
    return made


async def problems(facts: AsyncCollection[Row], dimensions: int) -> list[str]:
    """Return a line for each search index that is missing, differs or does not answer yet."""
    there = await found(facts)
    known = {str(mapping["name"]): mapping for mapping in there or ()}
    wanted = definitions(dimensions) if there is not None else {}
    states = {name: _state(known.get(name), definition) for name, (_, definition) in wanted.items()}
    return [f"search index {facts.name}.{name} {state}" for name, state in states.items() if state]


def _state(there: Mapping[str, Any] | None, definition: Row) -> str | None:
    """Return what is wrong with a search index; None: nothing."""
    if there is None:
        return "is missing"
    if not same(definition, there.get("latestDefinition", {})):
        return "has another definition"
    return None if there.get("queryable") else f"does not answer yet ({there.get('status', 'PENDING')})"


async def wait_until_queryable(facts: AsyncCollection[Row], seconds: float, pause: float = 1.0) -> None:
    """Until both indexes answer; an EdenError if one failed or it takes too long."""
    end = time.monotonic() + seconds
    while True:
        states = {str(mapping["name"]): mapping for mapping in await found(facts) or ()}
        waiting = [name for name in (VECTOR_INDEX, TEXT_INDEX) if not states.get(name, {}).get("queryable")]
        failed = [name for name in waiting if states.get(name, {}).get("status") == "FAILED"]
        if failed:
            raise EdenError(
                f"the search index {failed[0]} failed", "The cluster's page in Atlas says why; drop it there."
            )
        if not waiting:
            return
        if time.monotonic() > end:
            raise EdenError(
                f"the search indexes {', '.join(waiting)} are not ready after {seconds:.0f} s",
                "They go on being built: run `eden setup` again later.",
            )
        await asyncio.sleep(pause)


def same(wanted: Any, there: Any) -> bool:
    """Whether a definition holds all that is wanted; the server adds defaults of its own."""
    if isinstance(wanted, dict) and isinstance(there, dict):
        found = cast(Row, there)
        return all(same(value, found.get(name)) for name, value in cast(Row, wanted).items())
    if isinstance(wanted, list) and isinstance(there, list):
        pairs = zip_longest(cast("list[Any]", wanted), cast("list[Any]", there))
        return all(same(left, right) for left, right in pairs)
    return bool(wanted == there)


async def has_search(database: AsyncDatabase[Row], names: Names) -> bool:
    """Return whether both search indexes answer."""
    indexes = await found(database[names[Fact.COLLECTION]]) or ()
    answering = {str(index["name"]) for index in indexes if index.get("queryable")}
    return {VECTOR_INDEX, TEXT_INDEX} <= answering
