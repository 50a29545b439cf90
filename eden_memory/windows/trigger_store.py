"""Store formation-trigger's state and how far each partition is, and erase the texts of windows that are done."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from bson.errors import InvalidDocument
from pymongo import UpdateMany, UpdateOne
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.errors import PyMongoError

from eden_memory.errors import describe
from eden_memory.logs import LibraryLogger
from eden_memory.mongo.transactions import SharedReads, Transactions, unstorable
from eden_memory.mongo.validators import Indexes, index_on
from eden_memory.names import Names
from eden_memory.schemas.events.chat import AGENT_SIDE
from eden_memory.stages.codec import event_id
from eden_memory.stages.dead_letter_store import KEPT as LETTERS_KEPT
from eden_memory.windows import trigger_write_store as documents
from eden_memory.windows.formation_requests import BatchWrite, EarlierWindow, StoredWindow, WindowPlace
from eden_memory.windows.session_state import Session, StoredMessage
from eden_memory.windows.trigger_write_store import (
    Row,
    SessionsTogether,
    message_writes,
    partition_writes,
    session_writes,
    transactions_of,
    window_writes,
    write_together,
)
from eden_memory.windows.window_list_store import PENDING, WAITS
from eden_memory.windows.window_rule import Limits

log = LibraryLogger()


HELD: Row = {"erased_at": None}
"""Windows with texts; the index is over these alone."""
KEPT = timedelta(days=7)
"""After everything that reads them is done."""
FACTS, REFLECTIONS = "fact-extraction", "reflection-extraction"
TOGETHER = 500
WITH_TEXTS = ("messages", "before")
"""Lists of a window that hold texts."""


@dataclass(frozen=True, slots=True)
class Concluded:
    """How a stage ended its work on a window."""

    at: datetime
    dead: bool = False
    settled: bool = False
    """A dead letter that was tried again with success, or dropped."""

    def final(self, now: datetime) -> bool:
        """Tell whether the stage will not read the window again."""
        return not self.dead or self.settled or now - self.at >= LETTERS_KEPT


async def erase_window_texts(
    windows: AsyncCollection[Row], message_ids: Sequence[str], up_to: str | None = None
) -> None:
    """Erase the texts of messages in closed windows and before them; with `up_to`, of versions up to that one."""
    if not message_ids:
        return
    of = {} if up_to is None else {"one.version": {"$lte": up_to}}
    for part in WITH_TEXTS:
        await windows.update_many(
            {f"{part}.message_id": {"$in": message_ids}},
            {"$set": {f"{part}.$[one].text": None}},
            array_filters=[{"one.message_id": {"$in": message_ids}, **of}],
        )


def of_messages(message_ids: Sequence[str], up_to: str | None = None) -> Row:
    """Return the query for windows formed in sight of these messages; with `up_to`, of versions up to that one."""
    seen: Row = {"message_id": {"$in": message_ids}}
    if up_to is not None:
        seen["version"] = {"$lte": up_to}
    return {"$or": [{part: {"$elemMatch": seen}} for part in WITH_TEXTS]}


class WindowTextRetention:
    """A round of the janitor over the collections `windows` and `outcomes`.

    `is_settled`: whether the dead letter of a member, of a stage, was tried again with success, or dropped.
    """

    def __init__(
        self, database: AsyncDatabase[Row], names: Names, is_settled: Callable[[str, str], Awaitable[bool]]
    ) -> None:
        self._windows, self._outcomes = database[names["windows"]], database[names["outcomes"]]
        self._is_settled = is_settled

    async def round(self, now: datetime) -> int:
        """Note which windows are complete, erase those that were for long enough, and return how many."""
        after = ""
        while waiting := await self._incomplete(after, TOGETHER):
            members = {name: readers_of(name) for name in waiting}
            concluded = await self._concluded([member for pair in members.values() for member in pair])
            done = [
                name for name in waiting if complete([concluded.get(member) for member in members[name]], now)
            ]
            if done:
                await self._note_complete(done, now, now + KEPT)
            after = waiting[-1]
        return await self._erase(now)

    async def _incomplete(self, after: str, most: int) -> Sequence[str]:
        """Return requested formations that are not known to be complete, by id, from behind `after` on."""
        wanted: Row = {**HELD, "erase_after": None, "_id": {"$gt": after}, "requested": {"$ne": None}}
        rows = await self._windows.find(wanted, {"_id": 1}, sort={"_id": 1}, limit=most).to_list()
        return [row["_id"] for row in rows]

    async def _concluded(self, members: Sequence[str]) -> Mapping[str, Concluded]:
        """Return how the ledger's members (`<stage>:<event id>`) ended; those that have not are left out."""
        fields = {"members": 1, "at": 1, "dead": 1}
        found: dict[str, Concluded] = {}
        for row in await self._outcomes.find({"members": {"$in": list(members)}}, fields).to_list():
            dead = row.get("dead") is not None
            for member in set(row["members"]) & set(members):
                settled = dead and await self._is_settled(member, member.partition(":")[0])
                found[member] = Concluded(row["at"], dead=dead, settled=settled)
        return found

    async def _note_complete(self, formation_ids: Sequence[str], at: datetime, erase_after: datetime) -> None:
        """Note that nothing reads these any more."""
        change = {"$set": {"completed_at": at, "erase_after": erase_after}}
        await self._windows.update_many({"_id": {"$in": list(formation_ids)}}, change)

    async def _erase(self, now: datetime) -> int:
        """Erase the texts that are due by now; return of how many windows."""
        due: Row = {**HELD, "erase_after": {"$lte": now}}
        explained: Row = {**due, "before.0": {"$exists": True}}
        await self._windows.update_many(explained, {"$set": {"before.$[].text": None}})
        gone: Row = {"$set": {"messages.$[].text": None, "names": {}, "erased_at": now}}
        done = await self._windows.update_many(due, gone)
        return done.modified_count


def complete(stages: Sequence[Concluded | None], now: datetime) -> bool:
    """Tell whether all stages that read a window are done with it; None: a stage has not ended its work."""
    return all(stage is not None and stage.final(now) for stage in stages)


def readers_of(formation_id: str) -> tuple[str, str]:
    """Return the members of the ledger which say that a window was read for the last time.

    Fact extraction is known by the FormationRequested, reflection extraction by the FactsExtracted: the first event
    of what the former decided.
    """
    asked = f"formation/{formation_id}"
    return f"{FACTS}:{asked}", f"{REFLECTIONS}:{event_id(asked, FACTS, 0)}"


K = TypeVar("K")
V = TypeVar("V")
CLAUSES = 200
"""Sessions whose waiting messages one query looks for from a place of their own on."""
TRIGGER_INDEXES: Indexes = {
    "sessions": (
        index_on("partition", "due_at", partialFilterExpression={"due_at": {"$exists": True}}),
        index_on("partition", "unpublished", "_id", partialFilterExpression={"unpublished": True}),
        index_on("deletions.message_id", partialFilterExpression={"deletions": {"$exists": True}}),
    ),
    "messages": (
        index_on("session_id", "place"),
        index_on("missing", partialFilterExpression={"missing": True}),
        index_on("misread", partialFilterExpression={"misread": True}),
        index_on("alias_of", partialFilterExpression={"alias_of": {"$exists": True}}),
        index_on("formation_id", "place", name="pending", partialFilterExpression=PENDING),
        index_on("session_id", "_id"),
        index_on("user_id", "_id"),
        index_on("user_id", "-time", name="added", partialFilterExpression={"mapping": None}),
    ),
    "windows": (
        index_on("session_id", "seq"),
        index_on("messages.message_id"),
        index_on("before.message_id"),
        index_on("erase_after", partialFilterExpression={"erased_at": None}),
        index_on("in_flight.agent_id", partialFilterExpression={"in_flight": {"$exists": True}}),
    ),
}
"""Due and unpublished sessions, waiting messages, messages and windows by session."""
DueQuery = tuple[int, Any, int]
"""A partition, the bound of the query, and how many sessions at most."""


class MongoTriggerStore:
    """Reads and writes the collections of one namespace."""

    def __init__(self, database: AsyncDatabase[Row], names: Names, limits: Limits) -> None:
        self._transactions = Transactions(database.client)
        self._messages: AsyncCollection[Row] = database[names["messages"]]
        self._sessions: AsyncCollection[Row] = database[names["sessions"]]
        self._windows: AsyncCollection[Row] = database[names["windows"]]
        self._partitions: AsyncCollection[Row] = database[names["partitions"]]
        self._limits = limits
        self._window_rows = SharedReads(self._read_windows)
        # Partitions that ask at the same moment share a query.
        self._due = SharedReads(self._read_due)
        self._unpublished = SharedReads(self._read_unpublished)
        self._waiting_count = SharedReads(self._count_waiting)

    async def create_indexes(self) -> None:
        """Create the indexes."""
        await self._sessions.create_indexes(list(TRIGGER_INDEXES["sessions"]))
        await self._messages.create_indexes(list(TRIGGER_INDEXES["messages"]))
        await self._windows.create_indexes(list(TRIGGER_INDEXES["windows"]))
        await self._partitions.create_index("_id")  # so that it is there before a transaction writes to it

    async def sessions(self, ids: Iterable[str], partition: int) -> dict[str, Session]:
        """Return sessions with the messages that wait in them; one that has no document is of `partition`.

        A session whose document, or one of whose messages, cannot be read is left out.
        """
        wanted = list(ids)
        rows = await self._sessions.find({"_id": {"$in": wanted}}).to_list() if wanted else []
        found = {row["_id"]: row for row in rows}
        waiting = await self._waiting(
            {name: found[name].get("formed_to", 0) if name in found else 0 for name in wanted}
        )
        sessions: dict[str, Session] = {}
        for name in wanted:
            try:
                sessions[name] = self._session(name, partition, found.get(name), waiting[name])
            except Exception as error:  # noqa: BLE001 - whatever it is, one of the session's documents raised it
                log.error("a session cannot be read", session=name, error=describe(error))
        return sessions

    async def _waiting(self, formed_to: Mapping[str, int]) -> Mapping[str, list[Row]]:
        """Return the messages that wait in sessions: those with a place behind the last window's."""
        unformed = [name for name, place in formed_to.items() if place == 0]
        formed = [(name, place) for name, place in formed_to.items() if place]
        clauses: list[Row] = [{"session_id": {"$in": unformed}, "place": {"$gt": 0}}] if unformed else []
        for start in range(0, len(formed), CLAUSES):
            some = formed[start : start + CLAUSES]
            clauses.append({"$or": [{"session_id": name, "place": {"$gt": place}} for name, place in some]})
        found: defaultdict[str, list[Row]] = defaultdict(list)
        for clause in clauses:
            for row in await self._messages.find(clause).to_list():
                if row.get("formation_id") is None:
                    found[row["session_id"]].append(row)
        return found

    async def due(self, partition: int, time: datetime, most: int) -> list[str]:
        """Return the sessions of a partition that have gone cold or stale by `time`, the longest ago first."""
        asked = partition, time, most
        return list((await self._due.get([asked]))[asked])

    async def unpublished(self, partition: int, after: str, most: int) -> list[str]:
        """Return the sessions of a partition with something in the outbox, by id, from behind the id `after` on."""
        asked = partition, after, most
        return list((await self._unpublished.get([asked]))[asked])

    async def waiting(self, partition: int) -> int:
        """Count the sessions of a partition that wait for a document."""
        return (await self._waiting_count.get([partition])).get(partition, 0)

    async def _read_due(self, asked: Sequence[DueQuery]) -> Mapping[DueQuery, Sequence[str]]:
        return await self._together(asked, lambda time: {"due_at": {"$lte": time}}, "due_at")

    async def _read_unpublished(self, asked: Sequence[DueQuery]) -> Mapping[DueQuery, Sequence[str]]:
        return await self._together(asked, lambda after: {"unpublished": True, "_id": {"$gt": after}}, "_id")

    async def _together(
        self, asked: Sequence[DueQuery], query: Callable[[Any], Row], by: str
    ) -> Mapping[DueQuery, Sequence[str]]:
        """Answer all with one query if its limit is not reached, so that no partition crowds out another."""
        most = min(limit for _, _, limit in asked)
        each = [{"partition": partition, **query(what)} for partition, what, _ in asked]
        found = self._sessions.find({"$or": each}, {"partition": 1}, sort={by: 1}, limit=most)
        of: dict[int, list[str]] = {partition: [] for partition, _, _ in asked}
        rows = await found.to_list()
        if len(asked) > 1 and (len(rows) == most or len(of) < len(asked)):
            return {single: (await self._together([single], query, by))[single] for single in asked}
        for row in rows:
            of[row["partition"]].append(row["_id"])
        return {due_query: of[due_query[0]] for due_query in asked}

    async def _count_waiting(self, partitions: list[int]) -> Mapping[int, int]:
        which = {"partition": {"$in": partitions}, "unpublished": True, "waits_for": WAITS}
        counted = [{"$match": which}, {"$group": {"_id": "$partition", "sessions": {"$sum": 1}}}]
        rows = await (await self._sessions.aggregate(counted)).to_list()
        return {row["_id"]: row["sessions"] for row in rows}

    async def messages(self, ids: Iterable[str]) -> dict[str, StoredMessage]:
        """Return those of the messages that are known."""
        wanted = list(dict.fromkeys(ids))
        rows = await self._messages.find({"_id": {"$in": wanted}}).to_list() if wanted else []
        return {row["_id"]: documents.message_of(row) for row in rows}

    async def authors_among(
        self, session_id: str, users: Collection[str], besides: Collection[str]
    ) -> set[str]:
        """Return those of the users who take part in a session by writing, messages `besides` left out."""
        wanted: Row = {
            "session_id": session_id,
            "user_id": {"$in": list(users)},
            "role": {"$nin": sorted(AGENT_SIDE)},
            "_id": {"$nin": list(besides)},
        }
        return set(await self._messages.distinct("user_id", wanted))

    async def windows(self, formation_ids: Iterable[str]) -> dict[str, StoredWindow]:
        """Return closed windows whose texts are still there; one that cannot be read is left out."""
        rows = await self._window_rows.get(formation_ids)
        return _read({name: row for name, row in rows.items() if _kept(row)}, documents.window_of)

    async def windows_at(
        self, places: Collection[WindowPlace], most: int
    ) -> dict[WindowPlace, EarlierWindow]:
        """Return windows by session and number, with their last messages, `most` at most."""
        each: list[Row] = [{"session_id": session, "seq": seq} for session, seq in places]
        fields: Row = {
            "session_id": 1,
            "seq": 1,
            "requested": 1,
            "closed.because": 1,
            "messages": {"$slice": -most},
        }
        found: dict[WindowPlace, Row] = {}
        for start in range(0, len(each), CLAUSES):
            rows = self._windows.find({"$or": each[start : start + CLAUSES]}, fields)
            found |= {(row["session_id"], row["seq"]): row async for row in rows}
        return _read(found, documents.earlier_window_of)

    async def erase_in_windows(self, message_ids: Sequence[str]) -> None:
        """Erase the texts of messages in closed windows, and where they explain others."""
        await erase_window_texts(self._windows, message_ids)

    async def _read_windows(self, formation_ids: list[str]) -> dict[str, Row]:
        """Read windows; stages that read at the same moment share a query."""
        found = await self._windows.find({"_id": {"$in": formation_ids}}).to_list()
        return {row["_id"]: row for row in found}

    async def place(self, partition: int) -> int:
        """Return the last place given to a message of a partition."""
        row = await self._partitions.find_one({"_id": partition})
        return 0 if row is None else int(row["place"])

    async def put(self, write: BatchWrite) -> int | None:
        """Store a batch in transactions that each move the partition's place on; its last place now, or None."""
        await erase_window_texts(self._windows, write.forgotten)
        for name, up_to in write.superseded.items():
            await erase_window_texts(self._windows, [name], up_to)
        seen: int | None = write.seen
        for part in transactions_of(write):
            if seen is not None:
                seen = await self._part(write, seen, part)
        return seen

    async def _part(self, write: BatchWrite, seen: int, part: SessionsTogether) -> int | None:
        """Store a part; if one of its documents cannot be stored, its sessions each on their own."""
        place = max(seen, write.last) + 1
        try:
            writes = (
                partition_writes(self._partitions, write.partition, seen, place),
                message_writes(self._messages, part),
                session_writes(self._sessions, part),
                window_writes(self._windows, part),
            )
            stored = await write_together(self._transactions, writes)
            return place if stored else None
        except (PyMongoError, InvalidDocument) as error:
            if not unstorable(error):
                raise
            alone = part.alone()
            if len(alone) == 1:
                if not part.sessions:
                    raise
                write.failed.append(part.sessions[0].session_id)
                log.error("a session cannot be stored", session=write.failed[-1], error=type(error).__name__)
                return seen
        reached: int | None = seen
        for alone_part in alone:
            if reached is not None:
                reached = await self._part(write, reached, alone_part)
        return reached

    async def published(self, entries: Sequence[tuple[str, str]]) -> None:
        """Clear (session id, formation id) from the outboxes: they are confirmed."""
        confirmed: dict[str, list[str]] = {}
        for session, name in entries:
            confirmed.setdefault(session, []).append(name)
        names = [name for _, name in entries]
        none_asked: Row = {"deletions.asked": {"$ne": True}}
        alone: Row = {"_id": {"$in": list(confirmed)}, "outbox": {"$size": 1}, **none_asked}
        alone["outbox.formation_id"] = {"$in": names}
        cleared = await self._sessions.update_many(
            alone, {"$set": {"outbox": []}, "$unset": {"unpublished": ""}}
        )
        if cleared.modified_count == len(confirmed):
            return
        pulls: list[UpdateOne | UpdateMany] = [
            UpdateOne({"_id": session}, {"$pull": {"outbox": {"formation_id": {"$in": of}}}})
            for session, of in confirmed.items()
        ]
        empty: Row = {"_id": {"$in": list(confirmed)}, "outbox": [], "unpublished": True, **none_asked}
        pulls.append(UpdateMany(empty, {"$unset": {"unpublished": ""}}))
        await self._sessions.bulk_write(pulls, ordered=True)

    def _session(self, name: str, partition: int, row: Row | None, waiting_rows: Sequence[Row]) -> Session:
        waiting = sorted(map(documents.message_of, waiting_rows), key=_place)
        if row is None:
            return Session(
                name,
                partition,
                self._limits,
                held={message.message_id: message for message in waiting},
            )
        return documents.session_of(row, self._limits, waiting)


def _read(rows: Mapping[K, Row], read: Callable[[Row], V]) -> dict[K, V]:
    """Return what `read` makes of each row; a window that cannot be read is left out."""
    found: dict[K, V] = {}
    for key, row in rows.items():
        try:
            found[key] = read(row)
        except Exception as error:  # noqa: BLE001 - whatever it is, this window raised it
            log.error("a window cannot be read", formation=row.get("_id"), error=describe(error))
    return found


def _kept(row: Row) -> bool:
    """Tell whether a window still has its texts, or never had any."""
    return row.get("erased_at") is None or not row.get("messages")


def _place(message: StoredMessage) -> int:
    return message.place or 0
