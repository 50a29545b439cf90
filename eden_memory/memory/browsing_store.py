"""Lists for people, page by page: agents, scopes, facts, reflections and blobs; and a fact's history."""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from operator import itemgetter
from typing import Any, Literal, cast, get_args

from pymongo.asynchronous.database import AsyncDatabase

from eden_memory.access.visible import Asker, VisibleMemory
from eden_memory.errors import Invalid, NotFound
from eden_memory.limits import MOST_LISTED
from eden_memory.memory import memory_views as views
from eden_memory.memory.memory_index_store import EARLIEST
from eden_memory.memory.memory_views import BlobView, FactHistory, FactOrigin, FactView, Page, ReflectionView
from eden_memory.memory.snapshot_store import MongoHidden, without
from eden_memory.mongo.documents import document_of
from eden_memory.mongo.lenient_decoding import readable
from eden_memory.names import Names
from eden_memory.schemas.documents import Access, Consolidated, Fact, Message, Reflection, Snapshot
from eden_memory.schemas.provenance import SourceMessage
from eden_memory.schemas.scopes import Scope, ScopeKind
from eden_memory.tasks import in_utc

Row = dict[str, Any]
FIELDS: Row = {
    "agent_id": 1,
    "active_facts": 1,
    "blob_version": 1,
    "changed_at": 1,
    "audience": 1,
    "buffered": {"$size": "$buffer"},
}
LAST = "\uffff"
"""Sorts after every key with the same beginning."""


@dataclass(frozen=True, slots=True)
class ListedScope:
    """A scope that has stored memory, in numbers."""

    scope: Scope
    facts: int
    """Active ones."""
    buffered: int
    """Reflections that no blob has absorbed."""
    blob_version: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class ScopeQuery:
    """Which scopes of one agent are listed; ids typed."""

    agent_id: str
    kind: ScopeKind
    beginning: str = ""
    """Of the typed id of the user, group or session, or of the shard's name, encoded as in the key."""
    users: Collection[str] | None = None
    """Only these users' own scopes, or sessions that these users were in; None: all."""
    after: str | None = None
    """The last key of the page before."""
    limit: int = 50


class ScopeLists:
    """Reads the snapshots of one namespace by their keys, so a page costs the same however many there are."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._snapshots = database[names[Snapshot.COLLECTION]]

    async def agents(self) -> list[str]:
        """Return the typed ids of the agents that remember anything."""
        found: list[str] = await self._snapshots.distinct("agent_id")
        return sorted(found)

    async def changed_last(self, limit: int) -> list[Scope]:
        """Return the agents', groups' and users' scopes that changed last, of all agents."""
        query: Row = {"scope": {"$in": ["agent", "group", "user"]}, "changed_at": {"$gt": EPOCH}}
        found = self._snapshots.find(query, {"agent_id": 1}).sort("changed_at", -1).limit(limit)
        return [Scope.of_key(row["_id"], row["agent_id"]) async for row in found]

    async def scopes(self, wanted: ScopeQuery) -> Page[ListedScope]:
        """Return a page; its cursor is the last key."""
        rows = await self._rows(wanted)
        page = [_listed(row) for row in rows[: wanted.limit]]
        return Page(tuple(page), page[-1].scope.key if len(rows) > wanted.limit else None)

    async def _rows(self, wanted: ScopeQuery) -> Sequence[Row]:
        within = f"{wanted.kind}:" if wanted.kind == "session" else f"{wanted.kind}:{wanted.agent_id}:"
        if wanted.kind == "agent":
            within = f"agent:{wanted.agent_id}"
        first = within + wanted.beginning
        bounds: Row = {"$gte": first, "$lt": first + LAST}
        if wanted.after is not None:
            bounds["$gt"] = wanted.after
        query: Row = {"_id": bounds, "scope": wanted.kind, "agent_id": wanted.agent_id}
        if wanted.users is not None:
            query["audience" if wanted.kind == "session" else "user_id"] = {"$in": sorted(wanted.users)}
        found = self._snapshots.find(query, FIELDS).sort("_id").limit(wanted.limit + 1)
        return await found.hint("_id_").to_list()


def _listed(row: Row) -> ListedScope:
    return ListedScope(
        Scope.of_key(row["_id"], row["agent_id"]),
        row.get("active_facts", 0),
        row.get("buffered", 0),
        row.get("blob_version", 0),
        row["changed_at"],
    )


KEY_TEXT = re.compile(r"[A-Za-z0-9_.~%:/-]{1,4096}")
KINDS: tuple[str, ...] = get_args(ScopeKind)
LONGEST = 8_192
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OCCURRED = "occurred_at"
FactOrder = Literal["formed_at", "valid_from", "occurred_at"]
Place = tuple[datetime, *tuple[int | str, ...]]
"""The values by which the last item of a page was sorted."""


def demand_kinds(scopes: Any) -> None:
    """Raise Invalid unless these are kinds of scope, or None."""
    listed = isinstance(scopes, Collection) and not isinstance(scopes, str)
    if scopes is not None and not (
        listed and all(scope in KINDS for scope in cast("Collection[Any]", scopes))
    ):
        raise Invalid("there is no such scope", f"Give a list of: {', '.join(KINDS)}.")


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of a list, checked; Invalid."""

    scopes: Sequence[ScopeKind] | None = None
    flag: bool | None = None
    """Facts: active; reflections: absorbed (False: neither absorbed nor retired). None: either."""
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 50
    cursor: str | None = None
    occurred_after: datetime | None = None
    """Only facts about what happened then or later; facts that do not say when are left out."""
    occurred_before: datetime | None = None

    def __post_init__(self) -> None:
        demand_kinds(self.scopes)
        if type(self.limit) is not int or not 1 <= self.limit <= MOST_LISTED:
            raise Invalid("a page has no such limit", f"1 to {MOST_LISTED}.")
        times = (self.since, self.until, self.occurred_after, self.occurred_before)
        if type(self.flag) not in (bool, type(None)) or not all(map(_is_time, times)):
            raise Invalid("a filter is not of its type", "Times are datetimes, switches are true or false.")
        if self.cursor is not None and not isinstance(self.cursor, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise Invalid("a cursor is a text")

    def digest(self, of: str, asked: Asker) -> str:
        """Return a hash of these filters, which names the list."""
        who = (asked.agent_id, asked.session_id, asked.user_id)
        scopes = None if self.scopes is None else sorted(self.scopes)
        bounds = (self.occurred_after, self.occurred_before)
        occurred = bounds if any(bounds) else ()
        return digest_of(of, who, scopes, self.flag, self.since, self.until, *occurred)


def _is_time(value: Any) -> bool:
    return value is None or isinstance(value, datetime)


@dataclass(frozen=True, slots=True)
class _List:
    """How a collection is listed: its switch, and the fields it is sorted by behind `first`, newest first.

    `since` and `until` go by `dated`, the time that lists show; sorted by `formed_at`, the order stays as it is while
    facts are stated anew, and sorted by `dated`, a page of long ago costs what the first one does.
    """

    of: str
    flag: str
    dated: str
    order: tuple[tuple[str, int], ...]
    types: tuple[type, ...]
    hidden: tuple[str, ...] = ()
    unlisted: str | None = None
    """The time that removes an item from the list of those whose switch is off."""
    first: str = "formed_at"

    @property
    def sort(self) -> list[tuple[str, int]]:
        return [(self.first, -1), *self.order]

    @property
    def name(self) -> str:
        """The list to which cursors are bound."""
        return self.of if self.first == "formed_at" else f"{self.of} by {self.first}"


FACTS = _List(Fact.COLLECTION, "active", "valid_from", (("_id", 1),), (str,), ("embedding", "history"))
FACT_LISTS: Mapping[str, _List] = {
    first: replace(FACTS, first=first) for first in ("formed_at", "valid_from", "occurred_at")
}
REFLECTIONS = _List(
    Reflection.COLLECTION,
    "absorbed",
    "said_at",
    (("position", -1), ("_id", -1)),
    (int, str),
    unlisted="retired_at",
)


class Browsing:
    """Lists memory; every call receives what the caller may see."""

    def __init__(self, database: AsyncDatabase[Row], names: Names) -> None:
        self._database, self._names = database, names

    async def facts(
        self, asked: Asker, view: VisibleMemory, filters: Filters, *, sort: FactOrder = "formed_at"
    ) -> Page[FactView]:
        """Newest first, by one of their times."""
        if sort not in FACT_LISTS:
            raise Invalid("facts have no such order", f"Sort by: {', '.join(FACT_LISTS)}.")
        scopes = scopes_of(asked, view)
        rows, cursor = await self._page(FACT_LISTS[sort], asked, view, filters)
        found = readable("fact", rows, partial(document_of, Fact))
        return Page(tuple(views.fact_view(fact, scopes[fact.scope_key], asked) for fact in found), cursor)

    async def histories(
        self,
        asked: Asker,
        view: VisibleMemory,
        filters: Filters,
        *,
        first: Literal["valid_from", "retired_at"] = "valid_from",
    ) -> list[FactHistory]:
        """Return the first page of facts with their earlier versions, by when they began to hold or were retired."""
        scopes = scopes_of(asked, view)
        listed = replace(FACTS, first=first, hidden=("embedding",))
        rows, _ = await self._page(listed, asked, view, filters)
        found = readable("fact", rows, partial(document_of, Fact))
        return [
            FactHistory(views.fact_view(fact, scopes[fact.scope_key], asked), views.versions_of(fact))
            for fact in found
        ]

    async def reflections(self, asked: Asker, view: VisibleMemory, filters: Filters) -> Page[ReflectionView]:
        """Newest first."""
        scopes = scopes_of(asked, view)
        rows, cursor = await self._page(REFLECTIONS, asked, view, filters)
        found = readable("reflection", rows, partial(document_of, Reflection))
        return Page(
            tuple(
                views.reflection_view(reflection, scopes[reflection.scope_key], asked) for reflection in found
            ),
            cursor,
        )

    async def blobs(self, asked: Asker, view: VisibleMemory, filters: Filters) -> list[BlobView]:
        """Return the blobs of the visible scopes, from broad to narrow."""
        scopes = scopes_of(asked, view)
        hidden = await MongoHidden(self._database, self._names).blobs(view.private)
        keys = [key for key in view.narrowed(filters.scopes).scope_keys if key not in hidden]
        rows = (
            await self._database[self._names[Consolidated.COLLECTION]].find({"_id": {"$in": keys}}).to_list()
        )
        blobs = {blob.id: blob for blob in readable("blob", rows, partial(document_of, Consolidated))}
        return [views.blob_view(blobs[key], scopes[key]) for key in keys if key in blobs]

    async def history(self, asked: Asker, view: VisibleMemory, fact_id: str) -> FactHistory:
        """Return a visible fact with all its versions; raises NotFound."""
        fact, scope = await self.fact(asked, view, fact_id)
        access = await self._database[self._names[Access.COLLECTION]].find_one({"_id": fact.id})
        return FactHistory(
            views.fact_view(fact, scope, asked),
            views.versions_of(fact),
            access["access_count"] if access else 0,
            access["last_accessed_at"] if access else None,
        )

    async def fact(self, asked: Asker, view: VisibleMemory, fact_id: str) -> tuple[Fact, Scope]:
        """Return a visible fact by its id, retired ones too; raises NotFound."""
        row = await self._visible(Fact.COLLECTION, view, fact_id)
        return document_of(Fact, row), scopes_of(asked, view)[row["scope_key"]]

    async def reflection(
        self, asked: Asker, view: VisibleMemory, reflection_id: str
    ) -> tuple[Reflection, Scope]:
        """Return a visible reflection by its id, retired ones too; raises NotFound."""
        row = await self._visible(Reflection.COLLECTION, view, reflection_id)
        return document_of(Reflection, row), scopes_of(asked, view)[row["scope_key"]]

    async def fact_or_reflection(
        self, asked: Asker, view: VisibleMemory, memory_id: str
    ) -> tuple[Fact | Reflection, Scope]:
        """Return a visible fact or reflection by its id, retired ones too; raises NotFound."""
        try:
            return await self.fact(asked, view, memory_id)
        except NotFound:
            return await self.reflection(asked, view, memory_id)

    async def resting_on(self, fact: Fact) -> list[Reflection]:
        """Return the reflections of a fact's scope that rest on any of its messages, oldest first."""
        query: Row = {"message_ids": {"$in": list(fact.message_ids)}, "scope_key": fact.scope_key}
        rows = self._database[self._names[Reflection.COLLECTION]].find({**query, "retired_at": None})
        found = await rows.sort([("formed_at", 1), ("_id", 1)]).to_list()
        return list(readable("reflection", found, partial(document_of, Reflection)))

    async def sources(self, what: str, target: str) -> tuple[SourceMessage, ...]:
        """Return the messages on which a stored fact or reflection rests; none for anything else."""
        kind = {"fact": Fact, "reflection": Reflection}.get(what)
        if kind is None:
            return ()
        row = await self._database[self._names[kind.COLLECTION]].find_one({"_id": target}, {"embedding": 0})
        return () if row is None else document_of(kind, row).sources

    async def origins(self, fact_ids: Collection[str]) -> dict[str, FactOrigin]:
        """Return, by fact, the newest message that it rests on; a fact that rests on none is left out."""
        facts = self._database[self._names[Fact.COLLECTION]]
        rows = await facts.find({"_id": {"$in": list(fact_ids)}}, {"sources": 1}).to_list()
        newest = {
            row["_id"]: max(row["sources"], key=itemgetter("said_at")) for row in rows if row.get("sources")
        }
        messages = self._database[self._names[Message.COLLECTION]]
        wanted = [source["message_id"] for source in newest.values()]
        roles = {
            row["_id"]: row["role"] async for row in messages.find({"_id": {"$in": wanted}}, {"role": 1})
        }
        return {
            fact_id: FactOrigin(roles.get(source["message_id"]), source["said_at"])
            for fact_id, source in newest.items()
        }

    async def _visible(self, name: str, view: VisibleMemory, wanted: Any) -> Row:
        row = None
        if isinstance(wanted, str) and KEY_TEXT.fullmatch(wanted):
            query = {"_id": wanted, **without(view.private)}
            row = await self._database[self._names[name]].find_one(query, {"embedding": 0})
        if row is None or row["scope_key"] not in view.scope_keys:
            raise NotFound(f"there is no such {name.removesuffix('s')} here")
        return row

    async def _page(
        self, listed: _List, asked: Asker, view: VisibleMemory, filters: Filters
    ) -> tuple[list[Row], str | None]:
        digest = filters.digest(listed.name, asked)
        keys = view.narrowed(filters.scopes).scope_keys
        query = page_query(listed, keys, filters, digest) | without(view.private)
        fields = dict.fromkeys(listed.hidden, 0) or None
        found = self._database[self._names[listed.of]].find(query, fields)
        rows = await found.sort(listed.sort).limit(filters.limit + 1).to_list()
        page = rows[: filters.limit]
        if len(rows) == len(page):
            return page, None
        last = page[-1]
        return page, cursor_of(digest, [last[name] for name, _ in listed.sort])


def page_query(listed: _List, keys: Sequence[str], filters: Filters, digest: str) -> Row:
    """Return a page's query: values of the index's first two fields, a range of the third, so nothing is sorted."""
    query: Row = {
        "scope_key": {"$in": list(keys)},
        listed.flag: {"$in": [True, False]} if filters.flag is None else filters.flag,
    }
    if listed.unlisted is not None and filters.flag is False:
        query[listed.unlisted] = None
    if filters.cursor is not None:
        place = place_of(digest, filters.cursor, listed.types)
        query |= {listed.first: {"$lte": place[0]}, "$or": _behind(listed.sort, place)}
    if times := [*_occurring(listed, filters), *_within(listed, filters)]:
        query["$and"] = times
    return query


def _occurring(listed: _List, filters: Filters) -> list[Row]:
    """Select by when something happened; the list in that order leaves out facts that do not say when."""
    bounds = _bounds(filters.occurred_after, filters.occurred_before)
    if listed.first == OCCURRED:
        bounds = {"$gte": EARLIEST, **bounds}
    return [{OCCURRED: bounds}] if bounds else []


def _within(listed: _List, filters: Filters) -> list[Row]:
    """Select by the time of the list."""
    bounds = _bounds(filters.since, filters.until)
    return [{listed.dated: bounds}] if bounds else []


def _bounds(since: datetime | None, until: datetime | None) -> dict[str, datetime]:
    asked = {"$gte": since, "$lt": until}
    return {name: in_utc(moment) for name, moment in asked.items() if moment is not None}


def _behind(sort: Sequence[tuple[str, int]], place: Sequence[Any]) -> list[Row]:
    """Return conditions, one of which holds for everything sorted after a place."""
    conditions: list[Row] = []
    for number, (name, direction) in enumerate(sort):
        same = {other: place[index] for index, (other, _) in enumerate(sort[:number])}
        conditions.append({**same, name: {"$lt" if direction < 0 else "$gt": place[number]}})
    return conditions


def scopes_of(asked: Asker, view: VisibleMemory) -> dict[str, Scope]:
    """Return the visible scopes by key."""
    stored = {shown.scope.key: shown.scope for shown in view.shown}
    return {key: stored.get(key) or Scope.of_key(key, asked.agent_id) for key in view.scope_keys}


def digest_of(*filters: Any) -> str:
    """Return a hash of the filters that a cursor is bound to."""
    return sha256(json.dumps(filters, default=str).encode()).hexdigest()[:16]


def cursor_of(digest: str, place: Sequence[Any]) -> str:
    """Return the cursor at which the next page begins."""
    at, *rest = place
    plain = [digest, (at - EPOCH) // timedelta(milliseconds=1), *rest]
    return urlsafe_b64encode(json.dumps(plain, separators=(",", ":")).encode()).decode().rstrip("=")


def place_of(digest: str, cursor: str, types: Sequence[type]) -> list[Any]:
    """Return the time and values of a cursor, of these types; Invalid unless it is a cursor of this list."""
    try:
        found: Any = json.loads(urlsafe_b64decode(cursor[:LONGEST] + "=" * (-len(cursor) % 4)))
        bound, milliseconds, *rest = cast("list[Any]", found)
        fits = (
            isinstance(found, list)
            and type(milliseconds) is int
            and [type(key) for key in rest] == list(types)
        )
        at = EPOCH + timedelta(milliseconds=milliseconds) if fits and bound == digest else None
        storable = all(map(_is_storable, rest))
    except (ValueError, TypeError, OverflowError, RecursionError):
        at, rest, storable = None, [], False
    if at is None or not storable:
        raise Invalid("this is no cursor of this list", "Give the last page's cursor with the same filters.")
    return [at, *rest]


def _is_storable(value: Any) -> bool:
    """Return whether MongoDB can compare with it; a UnicodeEncodeError (ValueError) for what is no text."""
    return len(value.encode()) <= LONGEST if isinstance(value, str) else -(2**63) <= value < 2**63
