"""The collections `webhooks` and `webhook_notices`, and whether what a notice names may still be told."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

from pymongo import UpdateOne
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import BulkWriteError

from eden_memory.errors import Conflict, NotFound
from eden_memory.forgotten import ForgottenMarks, ids_of
from eden_memory.mongo.client import majority
from eden_memory.mongo.documents import document_of, row_of
from eden_memory.mongo.refusals import only_duplicates
from eden_memory.mongo.transactions import SharedReads
from eden_memory.mongo.validators import Indexes, index_on
from eden_memory.names import Names
from eden_memory.schemas.documents import Fact, Reflection, Webhook, WebhookNotice, WebhookSubject
from eden_memory.schemas.scopes import Scope
from eden_memory.webhooks.webhook_rules import MOST_WEBHOOKS, StoredMemory, Told

Row = dict[str, Any]
ALL = "all"
TAKEN_KEPT = timedelta(days=3)
"""So long a record that comes again finds that it was told."""
WEBHOOK_INDEXES: Indexes = {
    WebhookNotice.COLLECTION: (
        index_on("webhook_id", "due"),
        index_on("taken_at", expireAfterSeconds=int(TAKEN_KEPT.total_seconds())),
    ),
}
WAITING: Row = {"webhook_id": {"$gt": ""}, "due": {"$gt": datetime.fromtimestamp(0, UTC)}}
"""Of any webhook: bounds on both fields of the index skip what is taken."""
WITHOUT_TEXT = {"embedding": 0, "history": 0, "statements": 0}


class Webhooks:
    """Webhooks of one installation, and their notices."""

    def __init__(
        self,
        database: AsyncDatabase[Row],
        names: Names,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._webhooks = majority(database, names[Webhook.COLLECTION])
        self._notices = majority(database, names[WebhookNotice.COLLECTION])
        self._clock = clock
        self._reads = SharedReads(self._read)

    async def prepare(self) -> None:
        """Create the indexes."""
        await self._notices.create_indexes(list(WEBHOOK_INDEXES[WebhookNotice.COLLECTION]))

    async def create(
        self,
        url: str,
        on: Sequence[WebhookSubject],
        agents: Sequence[str] | None,
        *,
        allow_private: bool,
        created_by: str,
    ) -> Webhook:
        """Add a webhook; agents typed. Conflict beyond MOST_WEBHOOKS."""
        if await self._webhooks.count_documents({}) >= MOST_WEBHOOKS:
            raise Conflict(f"there are {MOST_WEBHOOKS} webhooks already", "Remove one first.")
        webhook = Webhook(
            id=uuid4().hex[:12],
            url=url,
            on=tuple(dict.fromkeys(on)),
            agents=None if agents is None else tuple(agents),
            allow_private=allow_private,
            created_at=self._clock(),
            created_by=created_by[:256],
        )
        await self._webhooks.insert_one(row_of(webhook))
        return webhook

    async def webhooks(self) -> list[Webhook]:
        """Return all webhooks, oldest first; those who ask at the same time share a query."""
        return list((await self._reads.get([ALL]))[ALL])

    async def _read(self, _: list[str]) -> Mapping[str, Sequence[Webhook]]:
        rows = await self._webhooks.find({}).sort([("created_at", 1), ("_id", 1)]).to_list()
        return {ALL: [document_of(Webhook, row) for row in rows]}

    async def remove(self, webhook_id: str) -> None:
        """Remove a webhook with what waits for it. NotFound."""
        removed = await self._webhooks.delete_one({"_id": webhook_id})
        await self.remove_of([webhook_id])
        if not removed.deleted_count:
            raise NotFound(f"there is no webhook {webhook_id}", "`eden webhooks list` shows them.")

    async def remove_of(self, webhook_ids: Collection[str]) -> None:
        """Remove all notices for these webhooks."""
        if webhook_ids:
            await self._notices.delete_many({"webhook_id": {"$in": list(webhook_ids)}})

    async def waiting(self) -> dict[str, tuple[int, str | None]]:
        """Return by webhook how many notices wait, and why one of them has failed."""
        each: Row = {"_id": "$webhook_id", "count": {"$sum": 1}, "failure": {"$max": "$failure"}}
        found = await self._notices.aggregate([{"$match": WAITING}, {"$group": each}])
        return {row["_id"]: (row["count"], row["failure"]) async for row in found}

    async def add(self, notices: Sequence[WebhookNotice]) -> None:
        """Store notices; one that is there already stays as it is."""
        if not notices:
            return
        rows = [row_of(notice) for notice in notices]
        writes = [UpdateOne({"_id": row["_id"]}, {"$setOnInsert": row}, upsert=True) for row in rows]
        try:
            await self._notices.bulk_write(writes, ordered=False)
        except BulkWriteError as error:
            only_duplicates(error)

    async def put_back(self, notice: WebhookNotice) -> None:
        """Store a notice that was a dead letter, to be sent again."""
        await self._notices.replace_one({"_id": notice.id}, row_of(notice), upsert=True)

    async def due(self, webhook_id: str, most: int) -> list[WebhookNotice]:
        """Return up to `most` notices that are due, the longest due first; of one memory one alone."""
        wanted: Row = {"webhook_id": webhook_id, "due": {"$ne": None, "$lte": self._clock()}}
        rows = await self._notices.find(wanted).sort([("due", 1)]).limit(4 * most).to_list()
        first: dict[tuple[str, str], WebhookNotice] = {}
        for row in rows:
            notice = document_of(WebhookNotice, row)
            first.setdefault((notice.kind, notice.entity_id), notice)
        return list(first.values())[:most]

    async def begin(self, notice: WebhookNotice, next_at: datetime, *, as_changed: bool) -> bool:
        """Note that an attempt begins, before it does; False if the notice is gone.

        `as_changed`: it says that the memory has changed, so the notice is one of a change from now on.
        """
        told: Row = {"type": "memory.changed"} if as_changed else {}
        change: Row = {"$set": {"due": next_at, **told}, "$inc": {"attempts": 1}}
        return (await self._notices.update_one({"_id": notice.id}, change)).matched_count > 0

    async def postpone(self, notice: WebhookNotice, until: datetime, failure: str | None = None) -> None:
        """Have a notice wait, and note why its attempt failed; without a reason, none was made."""
        change: Row = {"due": until} | ({"failure": failure} if failure else {"attempts": notice.attempts})
        await self._notices.update_one({"_id": notice.id}, {"$set": change})

    async def taken(self, notice: WebhookNotice) -> None:
        """Note that the receiver has taken a notice."""
        change: Row = {"due": None, "failure": None, "taken_at": self._clock()}
        await self._notices.update_one({"_id": notice.id}, {"$set": change})

    async def drop(self, notice: WebhookNotice) -> None:
        """Remove a notice that is not sent any more."""
        await self._notices.delete_one({"_id": notice.id})


class TellableMemory:
    """The memory that notices are about; `forgotten`: the marks of its pipeline."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, forgotten: ForgottenMarks) -> None:
        self._facts = majority(database, names[Fact.COLLECTION])
        self._reflections = majority(database, names[Reflection.COLLECTION])
        self._forgotten = forgotten

    async def look(self, notice: WebhookNotice) -> Told:
        """Return what a notice is about as it stands; the marks are read after the memory.

        What was told before and is not stored any more is gone.
        """
        kind, name = notice.kind, notice.entity_id
        of_it, model = (self._facts, Fact) if kind == "fact" else (self._reflections, Reflection)
        row = await of_it.find_one({"_id": name}, WITHOUT_TEXT)
        named = {(kind, name), (kind, f"{name}@{notice.version}")}
        if row is None:
            marks = await self._forgotten.among(named)
            told = notice.type == "memory.forgotten" or notice.attempts > 0
            return "gone" if told or marks.entity_gone(kind, name, notice.version) else "awaited"
        found = document_of(model, row)
        scope = Scope.of_key(found.scope_key, found.agent_id)
        origin = found.propagated_from if isinstance(found, Reflection) else None
        marks = await self._forgotten.among(
            named | ids_of(scope, found.sources) | {("reflection", origin or "")}
        )
        if (
            marks.entity_gone(kind, name, notice.version)
            or marks.reaches(scope, found.sources, found.formed_at)
            or (origin is not None and marks.entity_gone("reflection", origin, 1))
        ):
            return "gone"
        if found.version < notice.version:
            return "awaited"
        return StoredMemory(found.version, found.scope_key, found.retired_at is not None)
