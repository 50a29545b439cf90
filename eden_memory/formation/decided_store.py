"""Decisions that the writer may not have applied yet: stored outcomes, by their number or their `writes`."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.mongo.documents import document_of
from eden_memory.mongo.transactions import SharedReads, shared_writes
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact, Reflection
from eden_memory.schemas.envelope import Envelope
from eden_memory.schemas.events import FactChanged, ReflectionFormed, ScopeConsolidated, decode
from eden_memory.schemas.events.base import Event
from eden_memory.schemas.scopes import Scope

Row = dict[str, Any]
Decode = Callable[[str, int, bytes], Event]
E = TypeVar("E", bound=Event)
Outcomes = dict[int, tuple[FactChanged, ...]]
PAGE, LARGEST_PAGE = 4, 64
MOST_OTHERS = 1_200
"""Reflections of other scopes that are looked at in search of the same."""
MOST_KEPT = 5_000
"""Facts of outcomes kept in the process, of all scopes together: outcomes never change."""


class MongoDecided:
    """Decided facts and blob versions, read from `outcomes`; look-ups of the same moment share a query."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, decode: Decode = decode) -> None:
        majority = ReadConcern("majority")
        self._outcomes = database.get_collection(names["outcomes"], read_concern=majority)
        self._reflections = database.get_collection(names[Reflection.COLLECTION], read_concern=majority)
        self._stored_facts = database.get_collection(names[Fact.COLLECTION], read_concern=majority)
        self._snapshots = database.get_collection(names["snapshots"], read_concern=majority)
        self._decode = decode
        self._marks = SharedReads(self._read_marks)
        self._facts_of, self._given = SharedReads(self._read_facts), shared_writes(self._outcomes)
        self._kept: OrderedDict[str, Outcomes] = OrderedDict()

    async def applied(self, scope_key: str) -> int:
        """Return the writer's mark; 0 before its first commit."""
        return (await self._marks.get([scope_key])).get(scope_key, 0)

    async def beyond(self, scope_key: str, applied: int) -> Sequence[FactChanged]:
        """Return the facts of decisions numbered above `applied`, up to the first number not given."""
        kept = {number: facts for number, facts in self._kept.pop(scope_key, {}).items() if number > applied}
        following, page = applied + 1, PAGE
        while following in kept:
            following += 1
        while True:
            found = await self._page(scope_key, range(following, following + page))
            while following in found:
                kept[following] = found.pop(following)
                following += 1
                page -= 1
            if page:
                break
            page = min(LARGEST_PAGE, 2 * max(len(kept), PAGE))
        self._keep(scope_key, kept)
        return [event for number in sorted(kept) if number < following for event in kept[number]]

    async def given(self, known: Mapping[str, int]) -> Mapping[str, int]:
        """Return the highest version ever given to facts where it is above the known one: writes stay for ever."""
        asked, found = dict(known), dict[str, int]()
        while asked:
            names = {f"fact:{fact_id}@{version + 1}": fact_id for fact_id, version in asked.items()}
            taken = [names[write] for write in await self._given.get(names)]
            asked = {fact_id: asked[fact_id] + 1 for fact_id in taken}
            found |= asked
        return found

    async def decided(self, writes: Iterable[str]) -> bool:
        """Return whether any of these versions (`blob:KEY@N`, `reflection:ID@N`) is decided."""
        return bool(await self._given.get(writes))

    async def decided_among(self, writes: Iterable[str]) -> set[str]:
        """Return those of the writes that a stored decision has made."""
        return set(await self._given.get(writes))

    async def blobs_beyond(self, scope_key: str, version: int) -> Sequence[ScopeConsolidated]:
        """Return the blob versions decided above this one, in order."""
        return await self._beyond(f"blob:{scope_key}", version, ScopeConsolidated)

    async def reflection(self, reflection_id: str) -> Reflection | None:
        """Return a reflection as stored."""
        row = await self._reflections.find_one({"_id": reflection_id})
        return None if row is None else document_of(Reflection, row)

    async def reflections(self, reflection_ids: Iterable[str]) -> list[Reflection]:
        """Return the reflections that are stored, in the order of the ids."""
        wanted = list(reflection_ids)
        rows = {row["_id"]: row async for row in self._reflections.find({"_id": {"$in": wanted}})}
        return [document_of(Reflection, rows[name]) for name in wanted if name in rows]

    async def of_others(self, scope: Scope, page: int) -> AsyncGenerator[list[Reflection]]:
        """Yield pages of the reflections of the agent's other scopes of this kind, newest first, up to a limit.

        Retired and private ones are left out.
        """
        query: Row = {"agent_id": scope.agent_id, "scope": scope.kind, "scope_key": {"$ne": scope.key}}
        query |= {"retired_at": None, "private": {"$ne": True}}
        order = [("said_at", -1), ("_id", 1)]  # as an index has them
        async with self._reflections.find(query, sort=order, limit=MOST_OTHERS, batch_size=page) as rows:
            while found := await rows.to_list(page):
                yield [document_of(Reflection, row) for row in found]

    async def supported_by(self, reflection: ReflectionFormed) -> Sequence[str]:
        """Return what was propagated from other scopes of its kind and rests on all of its messages, too."""
        scope = reflection.scope
        query: Row = {
            "message_ids": {"$all": [source.message_id for source in reflection.sources]},
            "propagated_scope": {"$regex": f"^{scope.kind}:", "$ne": scope.key},
            "retired_at": None,
        }
        return [row["_id"] async for row in self._reflections.find(query, {"_id": 1}, sort=[("_id", 1)])]

    async def reflections_beyond(self, reflection_id: str, version: int) -> Sequence[ReflectionFormed]:
        """Return the versions of a reflection decided above this one, in order."""
        return await self._beyond(f"reflection:{reflection_id}", version, ReflectionFormed)

    async def private_among(self, message_ids: Iterable[str]) -> set[str]:
        """Return the messages of each private fact that rests on any of these."""
        query: Row = {"message_ids": {"$in": list(message_ids)}, "private": True}
        rows = await self._stored_facts.find(query, {"message_ids": 1}).to_list()
        return {message for row in rows for message in row["message_ids"]}

    async def _beyond(self, name: str, version: int, kind: type[E]) -> list[E]:
        found: list[E] = []
        while row := await self._outcomes.find_one({"writes": f"{name}@{version + 1}"}, {"records": 1}):
            version += 1
            events = (self._event(record, kind.NAME) for record in row.get("records", ()))
            found += [event for event in events if isinstance(event, kind)]
        return found

    async def _page(self, scope_key: str, numbers: range) -> Outcomes:
        found = await self._facts_of.get(f"{scope_key}#{number}" for number in numbers)
        return {int(name.rpartition("#")[2]): facts for name, facts in found.items()}

    async def _read_marks(self, scope_keys: list[str]) -> dict[str, int]:
        rows = await self._snapshots.find({"_id": {"$in": scope_keys}}, {"applied": 1}).to_list()
        return {row["_id"]: row.get("applied", 0) for row in rows}

    async def _read_facts(self, writes: list[str]) -> dict[str, tuple[FactChanged, ...]]:
        """Return the facts of the outcomes with these writes; an outcome has one number."""
        rows = await self._outcomes.find({"writes": {"$in": writes}}, {"writes": 1, "records": 1}).to_list()
        wanted = set(writes)
        return {name: self._facts(row) for row in rows for name in row["writes"] if name in wanted}

    def _facts(self, row: Row) -> tuple[FactChanged, ...]:
        """Return the facts among an outcome's records; none once the janitor has removed them."""
        events = (self._event(record, FactChanged.NAME) for record in row.get("records", ()))
        return tuple(event for event in events if isinstance(event, FactChanged))

    def _event(self, record: Mapping[str, Any], wanted: str) -> Event | None:
        envelope = Envelope.of_headers((name, bytes(value)) for name, value in record["h"])
        if envelope.name != wanted or record["v"] is None:
            return None
        return self._decode(envelope.name, envelope.version, bytes(record["v"]))

    def _keep(self, scope_key: str, outcomes: Outcomes) -> None:
        """Cache a scope's outcomes, which never change, and drop the least recently used beyond the limit."""
        if outcomes:
            self._kept[scope_key] = outcomes
        size = sum(len(facts) for outcomes_of in self._kept.values() for facts in outcomes_of.values())
        while size > MOST_KEPT and self._kept:
            _, oldest = self._kept.popitem(last=False)
            size -= sum(map(len, oldest.values()))
