"""What fact-dedup has decided and the writer may not have applied: stored outcomes, by their number in the scope."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pymongo.asynchronous.database import AsyncDatabase
from pymongo.read_concern import ReadConcern

from eden_memory.domain.names import Names
from schemas.envelope import Envelope
from schemas.events import FactChanged, decode
from schemas.events.base import Event

Row = dict[str, Any]
Decode = Callable[[str, int, bytes], Event]
Outcomes = dict[int, tuple[FactChanged, ...]]
PAGE, LARGEST_PAGE = 4, 64
MOST_KEPT = 5_000
"""Facts of outcomes kept in the process, of all scopes together: outcomes never change."""


class MongoDecided:
    """Port Decided over `outcomes` and the mark in `snapshots`."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, decode: Decode = decode) -> None:
        majority = ReadConcern("majority")
        self._outcomes = database.get_collection(names["outcomes"], read_concern=majority)
        self._snapshots = database.get_collection(names["snapshots"], read_concern=majority)
        self._decode = decode
        self._kept: OrderedDict[str, Outcomes] = OrderedDict()

    async def applied(self, scope_key: str) -> int:
        """The writer's mark; 0 before its first commit."""
        row = await self._snapshots.find_one({"_id": scope_key}, {"applied": 1})
        return 0 if row is None else row.get("applied", 0)

    async def beyond(self, scope_key: str, applied: int) -> Sequence[FactChanged]:
        """The facts of the scope's decisions numbered above `applied`, up to the first number not given."""
        kept = {number: one for number, one in self._kept.pop(scope_key, {}).items() if number > applied}
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
        """The highest version ever given, of facts of which that is not the newest known: writes stay for ever."""
        asked, found = dict(known), dict[str, int]()
        while asked:
            names = {f"fact:{fact_id}@{version + 1}": fact_id for fact_id, version in asked.items()}
            rows = await self._outcomes.find({"writes": {"$in": list(names)}}, {"writes": 1}).to_list()
            taken = {names[one] for row in rows for one in row["writes"] if one in names}
            asked = {fact_id: asked[fact_id] + 1 for fact_id in taken}
            found |= asked
        return found

    async def _page(self, scope_key: str, numbers: range) -> Outcomes:
        wanted = {f"{scope_key}#{number}": number for number in numbers}
        rows = self._outcomes.find({"writes": {"$in": list(wanted)}}, {"writes": 1, "records": 1})
        return {
            wanted[name]: self._facts(row) async for row in rows for name in row["writes"] if name in wanted
        }

    def _facts(self, row: Row) -> tuple[FactChanged, ...]:
        """The facts among an outcome's records; none once those were removed, all having consumed them."""
        events = (self._event(one) for one in row.get("records", ()))
        return tuple(one for one in events if isinstance(one, FactChanged))

    def _event(self, record: Mapping[str, Any]) -> Event | None:
        envelope = Envelope.of_headers((name, bytes(value)) for name, value in record["h"])
        if envelope.name != FactChanged.NAME or record["v"] is None:
            return None
        return self._decode(envelope.name, envelope.version, bytes(record["v"]))

    def _keep(self, scope_key: str, outcomes: Outcomes) -> None:
        """Outcomes never change: the next question reads only what came since."""
        if outcomes:
            self._kept[scope_key] = outcomes
        size = sum(len(facts) for one in self._kept.values() for facts in one.values())
        while size > MOST_KEPT and self._kept:
            _, oldest = self._kept.popitem(last=False)
            size -= sum(map(len, oldest.values()))
